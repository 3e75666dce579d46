"""The batches of a run from any step on, identical wherever training is resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch

from lethe.run.run import Run
from lethe.train.core.samplers import Batch, draw_batches


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Anchor:
    """A point from which the draws can be resumed.

    Args:
        step: how many steps had been drawn; the end of a pass, or 0.
        state: of the generator then. Whoever has it knows every later batch.
    """

    step: int
    state: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """One step's batch: its 1-based number, its records, and the last anchor before it."""

    step: int
    batch: Batch
    anchor: Anchor


def draw_from(run: Run, generator: torch.Generator, anchor: Anchor, done: int) -> Iterator[Drawn]:
    """The batches of the steps after `done`: those of `draw_batches`.

    The generator is put in the anchor's state, and the draws between the anchor and `done`, a pass at most, are made again. A design whose
    passes repeat is drawn once.

    Args:
        run: gives the design, records, size, cap and number of steps.
        generator: a CPU generator that nothing else draws from.
        anchor: of this run, at most `done`.
        done: steps that are over.
    """
    generator.set_state(anchor.state)
    per_pass = run.steps_per_pass
    if run.batches.repeats:
        one = list(islice(draw_batches(run, generator), per_pass))
        for step in range(done + 1, run.total_steps + 1):
            yield Drawn(step=step, batch=one[(step - 1) % per_pass], anchor=anchor)
        return
    # Beyond the anchor there is no memory of earlier draws, so the batches of a new run are those of the old run's later steps.
    batches = draw_batches(run, generator)
    for step in range(anchor.step + 1, run.total_steps + 1):
        if (step - 1) % per_pass == 0:
            anchor = Anchor(step=step - 1, state=generator.get_state())
        batch = next(batches)
        if step > done:
            yield Drawn(step=step, batch=batch, anchor=anchor)
