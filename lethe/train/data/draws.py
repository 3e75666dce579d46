"""The batches of a run from any step on, identical wherever training is resumed, and their parts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import torch

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.data.sources.base import length, require_whole


class Anchor(NamedTuple):
    """A point from which the draws can be resumed. Whoever has it knows every later batch."""

    step: int  # that was drawn last, the end of a pass, or 0
    state: torch.Tensor  # of the generator then


class Drawn(NamedTuple):
    """One step's batch: its 1-based number, its records, and the last anchor before it."""

    step: int
    batch: Batch
    anchor: Anchor


def draw_from(run: Run, generator: torch.Generator, anchor: Anchor, done: int) -> Iterator[Drawn]:
    """The batches of the steps after `done`: those of `draw_batches`.

    The generator is put in the anchor's state, and the draws between the anchor and `done`, a pass at most, are made again. A design whose
    passes repeat is drawn once.

    Args:
        run, generator: as of `draw_batches`.
        anchor: of this run, at most `done`.
        done: steps that are over.
    """
    generator.set_state(anchor.state)
    per_pass = run.steps_per_pass
    if run.batches.repeats:
        one = list(islice(draw_batches(run, generator), per_pass))
        for step in range(done + 1, run.total_steps + 1):
            yield Drawn(step, one[(step - 1) % per_pass], anchor)
        return
    # Beyond the anchor there is no memory of earlier draws, so the batches of a new run are those of the old run's later steps.
    batches = draw_batches(run, generator)
    for step in range(anchor.step + 1, run.total_steps + 1):
        if (step - 1) % per_pass == 0:
            anchor = Anchor(step - 1, generator.get_state())
        batch = next(batches)
        if step > done:
            yield Drawn(step, batch, anchor)


def shard(batch: Batch, rank: int, world_size: int) -> Batch:
    r"""The records of a batch of k that fall to process r of W: places $\lfloor kr/W \rfloor$ to
    $\lfloor k(r+1)/W \rfloor$.

    Every record falls to exactly one process, and no two processes differ by more than one record.

    Args:
        batch: the whole batch, the same in every process.
        rank, world_size: r, from 0 to W - 1, and W >= 1.
    Raises:
        InputError: a rank or a number of processes out of range.
    """
    world = require_whole("world_size", world_size, 1)
    if (place := require_whole("rank", rank, 0)) >= world:
        raise InputError(f"rank: got {place}; with world_size = {world} it needs to be at most {world - 1}.")
    size = length(batch)
    return part(batch, size * place // world, size * (place + 1) // world)


def part(batch: Batch, first: int, stop: int) -> Batch:
    """Some records of a batch: those of the range that exist.

    Args:
        batch: of a step.
        first, stop: the range of places in it, without `stop`.
    """
    if isinstance(batch, slice):
        return slice(min(batch.start + first, batch.stop), min(batch.start + stop, batch.stop))
    return batch[first:stop]
