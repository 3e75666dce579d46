"""Meetings of all processes before they exchange anything: each tells what it is about to do, and hears of the errors of the others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist

from lethe.errors import LetheError
from lethe.train.distributed.collectives import StoppedElsewhere, control_device, reached

# How long a process that stops waits for the others to hear of it: they may be in the middle of a step, or may never come.
_PATIENCE = timedelta(seconds=20)


class Doing(IntEnum):
    """What a process is about to do."""

    STOPPED = 0
    COMPARE = 1
    BROADCAST = 2
    ADD = 3
    NOISE = 4
    END = 5
    GATHER = 6
    COLLECT = 7

    @property
    def words(self) -> str:
        """As an error says it."""
        return _WORDS[self]


_WORDS = {
    Doing.STOPPED: "stopped by an error",
    Doing.COMPARE: "comparing what they begin with",
    Doing.BROADCAST: "taking what process 0 sends",
    Doing.ADD: "adding up clipped sums",
    Doing.NOISE: "adding noise",
    Doing.END: "at the end of the run",
    Doing.GATHER: "gathering the model's shards",
    Doing.COLLECT: "adding up the clipped sums of a part of a batch",
}


def meet(doing: Doing, value: float, *, rank: int, world_size: int) -> list[float]:
    """All processes' values, once all are here to do the same.

    Args:
        doing: what this process is about to do.
        value: what it tells the others besides.
        rank, world_size: this process and their number.
    Raises:
        LetheError: they are about to do different things.
        StoppedElsewhere: another process had an error, or is gone.
    """
    with reached():
        told = _gathered(doing, value, world_size)
    done = [Doing(int(one[0])) for one in told]
    if stopped := [other for other, did in enumerate(done) if did == Doing.STOPPED]:
        raise StoppedElsewhere(
            f"process {' and '.join(map(str, stopped))} of {world_size} stopped with an error, and this one with it.",
            source=f"process {rank}, {doing.words}",
            remedy=f"read what process {stopped[0]} wrote; the model holds an unfinished iterate, which must not be released.",
        )
    if len(set(done)) > 1:
        raise LetheError(
            f"the processes are not at the same point of the loop: {listed([other.words for other in done])}.",
            remedy="run the same loop in every process, over all batches of its loader.",
        )
    return [one[1] for one in told]


def announce(world_size: int) -> None:
    """Tell the others of an error in this process, at their next meeting; they may be gone."""
    try:
        _gathered(Doing.STOPPED, 0.0, world_size, _PATIENCE)
    except RuntimeError:
        return  # nobody is there to hear it, and the error itself is what matters


def listed(values: Sequence[object]) -> str:
    """What each process has, in words."""
    return ", ".join(f"{value} in process {rank}" for rank, value in enumerate(values))


def _gathered(doing: Doing, value: float, world_size: int, patience: timedelta | None = None) -> list[list[float]]:
    mine = torch.tensor([doing, value], dtype=torch.float64, device=control_device())
    told = [torch.empty_like(mine) for _ in range(world_size)]
    work = dist.all_gather(told, mine, async_op=True)
    assert work is not None  # this process is in the default group
    _ = work.wait() if patience is None else work.wait(patience)
    return torch.stack(told).tolist()
