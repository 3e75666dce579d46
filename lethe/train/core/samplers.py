"""Samplers: the records of each step's batch, for every design.

A batch is a slice or an index tensor, so `rows[batch]` are its rows. The divisor of the gradient sum is always the run's nominal
batch size, never the length of what was drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, islice

import torch

from lethe.errors import InputError
from lethe.run.batches import BallsInBins, Batches, Cyclic, CyclicPoisson, Full, Poisson, Shuffled, ShuffledOnce, WithoutReplacement
from lethe.run.known_fields import require_run
from lethe.run.run import Run

Batch = torch.Tensor | slice


def refuse_other_records(records: int, found: int, words: str = "the data have {}") -> None:
    """Refuse data of another number of records than the run's.

    Args:
        records: of the run.
        found: of the data.
        words: what to say of the data, with {} for the number.
    Raises:
        InputError: the two differ.
    """
    if found != records:
        raise InputError(
            f"records: the run says {records}; {words.format(found)}.",
            source="run.records",
            remedy="certify and train the same number of records.",
        )


def draw_batches(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    """The batches of a run, one for each of its steps.

    full: all records. cyclic: consecutive disjoint slices in data order; the last records, fewer than a batch, are never used.
    shuffled_once: the same after one secret permutation. shuffled: a fresh secret permutation every pass (so others are left out each
    time). poisson: each record with probability size / records; empty batches are legal. cyclic_poisson: the same among the records whose
    number is the step's modulo `groups`, with probability groups x size / records. without_replacement: a uniform set of exactly
    `size` records. balls_in_bins: every record thrown once into one of the bins, which are visited in turn; their sizes vary. Where the
    design says truncate_at, larger batches are cut to it, a bin once for all passes.

    Args:
        run: gives the design, records, size, cap and number of steps.
        generator: a CPU generator, used for batches only; not touched by full and cyclic.
    Raises:
        InputError: a design without a sampler.
    """
    require_run(run)
    sampler = _SAMPLERS.get(type(run.batches))
    if sampler is None:
        raise InputError(f"batches.design: got {run.batches.design}; the trainer draws {', '.join(one.design for one in _SAMPLERS)}.")
    return islice(sampler(run, generator), run.total_steps)


def truncated(batch: torch.Tensor, cap: int | None, generator: torch.Generator) -> torch.Tensor:
    """`batch`, or a uniform choice of `cap` of its records, in their order, if it holds more.

    `lethe.theorems.truncation.truncation_slack` says what it costs.

    Args:
        batch: record indices, shape (b,), of a design with batches of random size.
        cap: the most records kept; None: all.
        generator: drawn from only if records are dropped.
    """
    if cap is None or len(batch) <= cap:
        return batch
    return batch[_uniform(len(batch), generator).topk(cap, sorted=False).indices.sort().values]


def _full(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    return cycle([slice(0, run.records)])


def _cyclic(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    size = run.batch_size
    return cycle([slice(first, first + size) for first in range(0, run.steps_per_pass * size, size)])


def _shuffled_once(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    return cycle(_permuted_pass(run, generator))


def _shuffled(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    while True:
        yield from _permuted_pass(run, generator)


def _poisson(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    chance = run.batch_size / run.records
    while True:
        yield truncated(torch.nonzero(_uniform(run.records, generator) < chance).squeeze(1), run.batches.cap, generator)


def _cyclic_poisson(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    groups = run.batches.groups_of_records
    chance = groups * run.batch_size / run.records
    for group in cycle(range(groups)):
        own = torch.arange(group, run.records, groups)
        yield own[_uniform(len(own), generator) < chance]


def _without_replacement(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    while True:
        yield _uniform(run.records, generator).topk(run.batch_size, sorted=False).indices


def _balls_in_bins(run: Run, generator: torch.Generator) -> Iterator[Batch]:
    bins = run.steps_per_pass
    thrown = (_uniform(run.records, generator) * bins).to(torch.int64).clamp_(max=bins - 1)
    return cycle([truncated(torch.nonzero(thrown == place).squeeze(1), run.batches.cap, generator) for place in range(bins)])


def _permuted_pass(run: Run, generator: torch.Generator) -> list[torch.Tensor]:
    order = _uniform(run.records, generator).argsort()
    return list(order[: run.steps_per_pass * run.batch_size].split(run.batch_size))


def _uniform(count: int, generator: torch.Generator) -> torch.Tensor:
    # 53-bit keys instead of torch.randperm and torch.randint, whose 32-bit remainders favour some outcomes by a share of count / 2**32.
    return torch.rand(count, generator=generator, dtype=torch.float64)


_SAMPLERS: dict[type[Batches], Callable[[Run, torch.Generator], Iterator[Batch]]] = {
    Full: _full,
    Cyclic: _cyclic,
    ShuffledOnce: _shuffled_once,
    Shuffled: _shuffled,
    Poisson: _poisson,
    CyclicPoisson: _cyclic_poisson,
    WithoutReplacement: _without_replacement,
    BallsInBins: _balls_in_bins,
}
