"""Samplers: the records of each step's batch, for every batch design of `lethe.run.batches` (cyclic, Poisson, ...).

`BatchStream` (networks), the linear loop and Flower's rounds draw from here, so that the sampling that a certificate assumes is executed.

A batch is a slice or an index tensor, so `rows[batch]` are its rows. The divisor of the gradient sum is always the run's nominal
batch size, never the length of what was drawn.
"""

from collections.abc import Iterator
from itertools import cycle, islice, repeat

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.batches import (
    BallsInBins,
    Cyclic,
    CyclicPoisson,
    Full,
    Poisson,
    RandomAllocation,
    Shuffled,
    ShuffledOnce,
    WithoutReplacement,
)
from lethe.run.known_fields import require_run
from lethe.run.run import Run

Batch = Tensor | slice

_DRAWN = (Full, Cyclic, ShuffledOnce, Shuffled, Poisson, CyclicPoisson, WithoutReplacement, RandomAllocation, BallsInBins)


def length(batch: Batch) -> int:
    """How many records a batch holds."""
    return batch.stop - batch.start if isinstance(batch, slice) else len(batch)


def refuse_other_records(records: int, actual: int, words: str = "the data have {}") -> None:
    """Raise InputError for data of another number of records than the run's. `words` say it of the data, with {} for the number."""
    if actual != records:
        raise InputError(
            f"records: the run says {records}; {words.format(actual)}.",
            source="run.records",
            remedy="certify and train the same number of records.",
        )


def draw_batches(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    """The batches of a run, one for each of its steps; `lethe.run.batches` says what each design is.

    The order of full and cyclic batches is that of the data; the last records, fewer than a batch, are never used. Larger batches than
    the design's truncate_at are cut to it by a uniform choice, a bin once for all passes. The generator, on the CPU, is used for batches
    only, and not touched by full and cyclic.
    """
    require_run(run)
    if type(run.batches) not in _DRAWN:
        raise InputError(f"batches.design: got {run.batches.design}; the trainer draws {', '.join(design.design for design in _DRAWN)}.")
    return islice(_drawn(run, generator), run.total_steps)


def _drawn(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    """Batches without end; `per_pass` steps make a pass over the data."""
    records, size, per_pass, chance = run.records, run.batch_size, run.steps_per_pass, run.batch_size / run.records

    def permuted() -> tuple[Tensor, ...]:  # the batches of one pass, in a random order of the records
        return _uniform(records, generator).argsort()[: per_pass * size].split(size)

    def thrown(cap: int | None) -> Iterator[Tensor]:  # each record in the batch of one random step of the pass
        bins = (_uniform(records, generator) * per_pass).to(torch.int64).clamp_(max=per_pass - 1)
        together = bins.argsort(stable=True).split(bins.bincount(minlength=per_pass).tolist())
        return (_cut(batch, cap, generator) for batch in together)

    match run.batches:
        case Cyclic():
            yield from cycle([slice(first, first + size) for first in range(0, per_pass * size, size)])
        case ShuffledOnce():
            yield from cycle(permuted())
        case Shuffled():
            while True:
                yield from permuted()
        case Poisson(cap=cap):
            while True:
                yield _cut(torch.nonzero(_uniform(records, generator) < chance).squeeze(1), cap, generator)
        case CyclicPoisson(groups=groups):
            for group in cycle(range(groups)):
                group_records = torch.arange(group, records, groups)
                yield group_records[_uniform(len(group_records), generator) < groups * size / records]
        case WithoutReplacement():
            while True:
                yield _uniform(records, generator).topk(size, sorted=False).indices
        case RandomAllocation(cap=cap):
            while True:
                yield from thrown(cap)
        case BallsInBins(cap=cap):
            yield from cycle(list(thrown(cap)))
        case _:
            yield from repeat(slice(0, records))


def _cut(batch: Tensor, cap: int | None, generator: torch.Generator) -> Tensor:
    """The batch, or a uniform choice of `cap` of its records, in their order: what `lethe.theorems.truncation` is the price of."""
    if cap is None or len(batch) <= cap:
        return batch
    return batch[_uniform(len(batch), generator).topk(cap, sorted=False).indices.sort().values]


def _uniform(count: int, generator: torch.Generator) -> Tensor:
    # 53-bit keys instead of torch.randperm and torch.randint, whose 32-bit remainders favour some outcomes by a share of count / 2**32.
    return torch.rand(count, generator=generator, dtype=torch.float64)
