"""How much memory a piece of work held at once: what the CPU allocator of PyTorch gave and took back, and what NumPy and Python held.

The profiler is on before the first tensor is made, so nothing is left out and nothing is subtracted: parameters, optimiser state,
activations, the temporary tensors inside an operation, and what is kept between steps. NumPy's and Python's memory comes from tracemalloc,
and the two peaks are added, which is at most too much. Not seen: scratch memory inside oneDNN and BLAS, which all share.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

_MARK = "step of which memory is measured"


def peaks(build: Callable[[], Callable[[], None]], steps: int) -> list[int]:
    """The largest number of bytes held at once in each step, in what is built by `build`.

    Args:
        build: makes everything, and returns the step.
        steps: how many are taken.
    """
    others: list[int] = []
    tracemalloc.start()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step = build()
        for _ in range(steps):
            tracemalloc.reset_peak()
            with record_function(_MARK):
                step()
            others.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
    profiler: Any = profiled.profiler
    events = profiler.kineto_results.events()
    marks = sorted((event.start_ns(), event.end_ns()) for event in events if event.name() == _MARK)
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    held, place, found = 0, 0, []
    for begin, end in marks:
        while place < len(changes) and changes[place][0] < begin:
            held, place = held + changes[place][1], place + 1
        most = held
        while place < len(changes) and changes[place][0] <= end:
            held, place = held + changes[place][1], place + 1
            most = max(most, held)
        found.append(most)
    return [tensors + other for tensors, other in zip(found, others, strict=True)]
