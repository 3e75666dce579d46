"""The fields of a Run about clipping, noise and release: their words, and what does not go together; all fields as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lethe.documents.specification import Missing
from lethe.errors import InputError
from lethe.run.batches import Batches
from lethe.run.losses import LOSSES
from lethe.run.losses.base import Loss
from lethe.run.losses.linear import LinearLoss
from lethe.run.neighbours import Unit
from lethe.run.regularisers import Regulariser
from lethe.run.schedules import schedule_document
from lethe.run.schedules.base import Array

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

ClipMethod = Literal["clip", "envelope", "normalise", "automatic"]
r"""`clip` $v\min(1, C/\|v\|)$, a projection; `envelope`: the gradient of the loss's Lipschitz envelope in the scores, see
`lethe.losses.LinearLoss.envelope_slopes`; `normalise` $vC/\|v\|$ (0 stays 0); `automatic` $vC/(\|v\|+0.01)$."""

SHORTENING: tuple[ClipMethod, ...] = ("clip", "envelope")
"""The methods that make no gradient longer: what bounds the loss's own gradients bounds theirs."""

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
        kinds = [kind for kind, known in LOSSES.items() if issubclass(known, LinearLoss) and known.has_envelope()]
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
        "clip_groups": None if fields["clip_groups"] is None else list(fields["clip_groups"]),
        "pass_weights": _schedule(fields["pass_weights"]),
        "noise_budget": fields["noise_budget"],
        "noise": None if fields["noise"] is None else fields["noise"].to_document(),
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
        "noise_multiplier": _schedule(fields["noise_multiplier"]),
        "noise_at": fields["noise_at"],
        **{name: value for name, value in rare.items() if value is not None},
        "loss": fields["loss"].to_document(),
        "regulariser": [one.to_document() for one in part] if isinstance(part, tuple) else None if part is None else part.to_document(),
        "release": fields["release"],
        "neighbours": fields["neighbours"],
    }


def _schedule(value: Any) -> Any:
    return None if value is None else schedule_document(value)
