"""The fields of a Run: their allowed words, refusals of what does not go together or overflows, and all fields as plain data.

`run.Run` calls these when one is made, so that no Run with a contradiction exists.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field

from lethe.documents.specification import Missing
from lethe.errors import InputError
from lethe.run.batches import Batches
from lethe.run.losses import LOSSES
from lethe.run.losses.base import Loss
from lethe.run.losses.linear import LinearLoss
from lethe.run.participation import Neighbours, Participation, Unit
from lethe.run.regularisers import Regulariser
from lethe.run.schedules import Explicit, as_schedule, schedule_document
from lethe.run.schedules.shapes import Array, Schedule

NoiseAt = Literal["every_step", "pass_ends"]

Release = Literal["last", "all"]

RELEASE = Missing(
    meaning="a run must say what anybody outside may ever see of its training. "
    "last: only the final parameters; the epsilon is smaller and void once anything else gets out, such as an earlier checkpoint, "
    "one picked for its score, an average of iterates, or the optimiser's state. "
    "all: every iterate may be seen, so anything computed from them is covered too.",
    remedy="write release: last if nothing but the final parameters is ever kept, shown or used; else, or when in doubt, release: all.",
)
"""What is said where it is left out."""

ClipMethod = Literal["clip", "envelope", "normalise", "automatic", "adaptive", "directional", "directional_isotropic"]
r"""`clip` $v\min(1, C/\|v\|)$, a projection; `envelope`: the gradient of the loss's Lipschitz envelope in the scores, see
`lethe.losses.LinearLoss.envelope_slopes`; `normalise` $vC/\|v\|$ (0 stays 0); `automatic` $vC/(\|v\|+0.01)$;
`adaptive`: `clip` with a norm that follows a private quantile of the gradients' norms; `directional`: the loss's slope along a direction u
that depends on no record, clipped to [-C, C], with noise along u alone; `directional_isotropic` the same of a unit vector u, a projection
on the segment from -Cu to Cu, with noise in all directions."""

SHORTENING: tuple[ClipMethod, ...] = ("clip", "envelope", "directional_isotropic")
"""The methods that make no gradient longer: what bounds the loss's own gradients bounds theirs."""

COUNT_SHARE = 0.01
"""What of each step's $1/z^2$ an adaptive clip norm spends on its count."""

# Groups of 0.6 and 0.8 make 1, but for rounding; the code that clips stays below its norm by a far larger margin.
_ROUNDING = 1 + 1e-14


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


ClipGroups = Annotated[tuple[Annotated[float, Field(gt=0)], ...] | None, BeforeValidator(_as_tuple)]
"""Norms of groups of parameters, or None: one norm for all."""


def refuse_clipping(clip_norm: float | None, method: ClipMethod, groups: tuple[float, ...] | None, loss: Loss, unit: Unit) -> None:
    r"""Refuse a clip method or groups without a clip norm, and groups whose norms add up to more than it: $\sqrt{\sum_k C_k^2} > C$."""
    if groups == ():
        raise InputError("clip_groups: got none; it needs a norm for each group.", remedy="leave it out: one norm for all parameters.")
    if clip_norm is None:
        if method != "clip" or groups is not None:
            name, got = ("clip_method", method) if method != "clip" else ("clip_groups", groups)
            raise InputError(f"{name}: got {got}, and clip_norm is null: nothing is clipped.", remedy="set clip_norm.")
        return
    if method == "envelope":
        _refuse_envelope(loss, groups, unit)
    if groups is not None and not math.hypot(*groups) <= clip_norm * _ROUNDING:
        raise InputError(
            f"clip_groups: together they bound a record by {math.hypot(*groups):.17g}; clip_norm says {clip_norm:.17g}.",
            source="clip_groups and clip_norm",
            remedy="make the root of the sum of their squares at most clip_norm.",
        )


def _refuse_envelope(loss: Loss, groups: tuple[float, ...] | None, unit: Unit) -> None:
    """Refuse an envelope where it is not known: of a loss that is not a linear model's, of groups, or of the mean over a user's records."""
    if not isinstance(loss, LinearLoss) or not loss.has_envelope():
        kinds = [kind for kind, loss_class in LOSSES.items() if issubclass(loss_class, LinearLoss) and loss_class.has_envelope()]
        raise InputError(
            f"clip_method: got envelope with loss.kind {loss.kind}; it needs {', '.join(kinds[:-1])} or {kinds[-1]}.",
            source="clip_method, loss.kind",
            remedy="choose one of these losses, and train it as a Linear or a Head; or set clip_method: clip.",
        )
    if groups is not None:
        raise InputError(
            f"clip_groups: got {list(groups)}, and clip_method is envelope, which bounds all parameters of a linear model together.",
            source="clip_groups and clip_method",
            remedy="drop clip_groups.",
        )
    if unit != "record":
        raise InputError(
            f"unit: {unit}, and clip_method is envelope: of a user's mean loss, which has several feature vectors, none is known.",
            source="unit and clip_method",
            remedy="use clip_method: clip.",
        )


def refuse_quantile(quantile: float | None, method: ClipMethod, share: float | None, **conflicts: bool) -> None:
    """Refuse a quantile without an adaptive norm, the reverse, and, of such a norm or a sparse selection, other fields that are set."""
    if (quantile is None) == (method == "adaptive"):
        got = "null" if quantile is None else f"{quantile:g}"
        remedy = "set clip_quantile, such as 0.5, together with clip_method: adaptive, or neither."
        raise InputError(f"clip_quantile: got {got}, and clip_method is {method}.", source="clip_quantile, clip_method", remedy=remedy)
    if (method == "adaptive" or share is not None) and (
        conflicting := [name.replace("_", " ") for name, is_set in conflicts.items() if is_set]
    ):
        name, got = ("clip_method", method) if method == "adaptive" else ("sparse_selection", share)
        needs = "it needs one norm, noise of its own at every step, and release: all."
        raise InputError(f"{name}: got {got} with {conflicting[0]}; {needs}", source=name, remedy=f"change that, or leave {name} out.")


def refuse_averaging(batches: Batches, noise_at: NoiseAt, *, steps: int, per_pass: int) -> None:
    """Refuse pass weights without fixed batches, two or more a pass, whole passes, and noise at pass ends."""
    if not batches.fixed or per_pass == 1:
        got = f"{batches.design} batches" if not batches.fixed else "one batch a pass"
        raise InputError(
            f"pass_weights: got {got}; averaging needs fixed batches, two or more a pass.",
            source="pass_weights, batches",
            remedy="drop pass_weights, or take cyclic or shuffled batches.",
        )
    if noise_at != "pass_ends" or steps % per_pass:
        raise InputError(
            f"pass_weights: got noise_at = {noise_at} and {steps} steps, {per_pass} a pass; averaging needs noise at pass ends and "
            "whole passes.",
            source="pass_weights, noise_at, steps",
            remedy="set noise_at: pass_ends, and passes instead of steps.",
        )


def refuse_no_weight(weights: Array) -> None:
    """Refuse pass weights of which none is positive."""
    if not weights.max() > 0:
        raise InputError("pass_weights: all are 0; some iterate of the pass needs a weight > 0.", remedy="give 1 to average all alike.")


def refuse_filtering(batches: Batches, noise_at: NoiseAt, *, release: Release, averaged: bool) -> None:
    """Refuse a noise budget unless every iterate counts as released, with noise at every step and batches that are not cut."""
    if release != "all" or noise_at != "every_step" or averaged:
        raise InputError(
            f"noise_budget: got release = {release}, noise_at = {noise_at}{' and pass_weights' if averaged else ''}; it needs "
            "noise at every step.",
            source="noise_budget",
            remedy="set release: all and noise_at: every_step.",
        )
    if batches.cap is not None:
        raise InputError(
            f"noise_budget: got batches cut at {batches.cap} records; what that costs grows with the steps, whose number a filter "
            "decides along the way.",
            source="noise_budget and batches.truncate_at",
            remedy="drop truncate_at; a physical size bounds the memory and costs nothing.",
        )


def run_document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a run; of passes and steps only the one that is set, and of the fields that few runs have those that are set."""
    rare = {
        "clip_method": None if fields["clip_method"] == "clip" else fields["clip_method"],
        "clip_quantile": fields["clip_quantile"],
        "clip_groups": None if fields["clip_groups"] is None else list(fields["clip_groups"]),
        "pass_weights": schedule_document(fields["pass_weights"]),
        "noise_budget": fields["noise_budget"],
        "noise": None if fields["noise"] is None else fields["noise"].to_document(),
        "sparse_selection": fields["sparse_selection"],
        "seeded": fields["seeded"] or None,
        "unit": None if fields["unit"] == "record" else fields["unit"],
        "precision": None if fields["precision"] is None else fields["precision"].to_document(),
    }
    part: Regulariser | tuple[Regulariser, ...] | None = fields["regulariser"]
    return {
        "records": fields["records"],
        "batches": fields["batches"].to_document(),
        **({"steps": fields["steps"]} if fields["passes"] is None else {"passes": fields["passes"]}),
        "step_size": schedule_document(fields["step_size"]),
        "clip_norm": fields["clip_norm"],
        "noise_multiplier": schedule_document(fields["noise_multiplier"]),
        "noise_at": fields["noise_at"],
        **{name: value for name, value in rare.items() if value is not None},
        "loss": fields["loss"].to_document(),
        "regulariser": [penalty.to_document() for penalty in part]
        if isinstance(part, tuple)
        else None
        if part is None
        else part.to_document(),
        "release": fields["release"],
        "neighbours": fields["neighbours"],
    }


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
        step = int(step_sizes.argmin())
        raise InputError(f"step_size: step {step + 1} has size {step_sizes[step]:g}; every step needs a size > 0.")


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
