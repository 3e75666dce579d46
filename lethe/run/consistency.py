"""Consistency checks of a Run: contradicting fields, and numbers beyond floating point. Each raises an InputError."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lethe.errors import InputError
from lethe.run.batches import Batches
from lethe.run.losses.base import Loss
from lethe.run.neighbours import Neighbours
from lethe.run.participation import Participation
from lethe.run.regularisers import Regulariser
from lethe.run.schedules import Explicit, as_schedule
from lethe.run.schedules.base import Array, Schedule

MOST_STEPS = 20_000_000


class Range(NamedTuple):
    """An open interval, and the name of the numbers that must lie in it."""

    name: str
    smallest: float
    largest: float


# Privacy is a sum of squares of these, over at most MOST_STEPS steps: none may vanish or overflow.
STEP_RANGES: Mapping[str, Range] = {"sensitivities": Range("step_size: times the gradient bound it", 1e-280, 1e280)}
NOISE_RANGES: Mapping[str, Range] = {
    "noise_multipliers": Range("noise_multiplier: it", 1e-150, 1e150),
    "noise_stds": Range("noise_multiplier: times step_size and clip norm it", 1e-280, 1e280),
    "relative_noise": Range("noise_multiplier: relative to the largest gradient it", 1e-150, 1e150),
}


def refuse_length(passes: int | None, steps: int | None, total: int) -> None:
    """Refuse both lengths of a run, and none, and more steps in all than can be accounted."""
    if (passes is None) == (steps is None):
        raise InputError(f"passes: got {passes}, and steps: {steps}; exactly one of the two is needed.", remedy="keep passes or steps.")
    if total > MOST_STEPS:
        raise InputError(f"steps: {total} in all; at most {MOST_STEPS} can be accounted.", remedy="take larger batches.")


def refuse_batches(batches: Batches, records: int, neighbours: Neighbours) -> None:
    """Refuse a batch size that does not fit the number of records, and a neighbouring relation that the batch design does not admit."""
    size = batches.nominal_size(records)
    if size > records:
        raise InputError(f"batches.size: got {size}; it cannot exceed records = {records}.", remedy="take a smaller batch.")
    if batches.participation is Participation.EVERY_STEP and size != records:
        raise InputError(f"batches.design: {batches.design} holds all {records} records in every batch, and says {size}.")
    groups, per_pass = batches.groups_of_records, batches.per_pass(records)
    if not isinstance(groups, int) or groups < 1 or per_pass % groups:  # pyright: ignore[reportUnnecessaryIsInstance]  # of a made-up design
        raise InputError(
            f"batches.groups: got {groups}; it must divide the steps of a pass, which are records / size = {per_pass}, rounded down.",
            source="batches.groups, batches.size, records",
            remedy="change the number of groups, or the size, so that every group has as many steps in a pass.",
        )
    if neighbours not in batches.neighbours:
        why = "removing a record moves later ones into other batches" if neighbours == "add_or_remove" else "the design does not admit it"
        raise InputError(
            f"neighbours: {neighbours} does not go with {batches.design} batches: {why}.",
            source=f"batches.design = {batches.design}",
            remedy="set neighbours to zero_out or replace_one, or batches.design to poisson.",
        )


def refuse_standstill(step_sizes: Array) -> None:
    """Refuse a step whose size is not above 0."""
    if not step_sizes.min() > 0:
        place = int(step_sizes.argmin())
        raise InputError(f"step_size: step {place + 1} has size {step_sizes[place]:g}; every step needs a size > 0.")


def refuse_gradients(clip_norm: float | None, loss: Loss, regularisers: Sequence[Regulariser]) -> None:
    """Refuse gradients that nothing bounds, and bounds that no loss and no convex regulariser has: an outside class may state anything."""
    bound, curvature = loss.known_gradient_bound, loss.curvature
    if (bound is not None and not bound > 0) or (curvature is not None and not sum(curvature) >= 0):
        raise InputError(f"loss: {loss.kind} states the gradient bound {bound} and the curvature {curvature}, which no loss has.")
    for part in regularisers:
        if not (0 <= part.strong_convexity < math.inf and part.diameter > 0):
            raise InputError(
                f"regulariser: {part.kind} states the strong convexity {part.strong_convexity} and the diameter {part.diameter}, which no "
                "convex function has."
            )
    if clip_norm is None and bound is None:
        raise InputError(
            f"clip_norm: null, and the {loss.summary} has no gradient bound: one record's influence on a step is unbounded.",
            source="clip_norm and loss.gradient_bound",
            remedy="set clip_norm, or loss.gradient_bound if the gradients are bounded.",
        )


def refuse_relation(loss: Loss, neighbours: Neighbours, *, differences_only: bool) -> None:
    """Refuse a relation that takes a whole gradient away, where only the difference of two gradients is bounded."""
    if differences_only and neighbours != "replace_one":
        raise InputError(
            f"loss.gradient_bound: got {loss.gradient_bound:g}; on this domain gradients of a strongly convex loss exceed it.",
            source=f"loss.kind = strongly_convex, neighbours = {neighbours}",
            remedy="set clip_norm, or write the quadratic part as regulariser: {kind: ridge, strength: ...}.",
        )


def refuse_out_of_range(limits: Range, values: Array) -> None:
    """Refuse numbers whose products overflow, or underflow to what would read as no touch or no noise; nan too."""
    if values.size and not (values.min() > limits.smallest and values.max() < limits.largest):
        raise InputError(
            f"{limits.name} runs from {values.min():g} to {values.max():g}; it needs to stay between {limits.smallest:g} and "
            f"{limits.largest:g}.",
            remedy="choose other units of the loss, or give 0 to a step without noise.",
        )


def expanded(name: str, value: float | Schedule, count: int, *, unit: str) -> Array:
    """The finite numbers of a schedule, shape (count,); `unit` is what each of them is for, such as "step"."""
    if isinstance(value, Explicit) and len(value.listed) != count:
        raise InputError(f"{name}: lists {len(value.listed)} values; this run needs {count}, one for each {unit}.")
    values = as_schedule(value).values(count)
    if not np.isfinite(values).all():
        raise InputError(f"{name}: entry {int(np.argmin(np.isfinite(values))) + 1} overflows to {values.max():g}.")
    return values
