"""The fields of a Run about noise: where it is added, averages inside passes, and adaptive noise."""

from __future__ import annotations

from typing import Literal

from lethe.errors import InputError
from lethe.run.batches import Batches
from lethe.run.release_field import Release
from lethe.run.schedules.base import Array

NoiseAt = Literal["every_step", "pass_ends"]


def refuse_averaging(batches: Batches, noise_at: NoiseAt, *, steps: int, per_pass: int) -> None:
    """Refuse pass weights without fixed batches, two or more a pass, whole passes, and noise at pass ends.

    Args:
        batches: must be fixed.
        noise_at: must be pass_ends.
        steps: of the whole run; must be whole passes.
        per_pass: steps of a pass, >= 2.
    Raises:
        InputError: see above.
    """
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
    """Refuse pass weights of which none is positive.

    Raises:
        InputError: see above.
    """
    if not weights.max() > 0:
        raise InputError("pass_weights: all are 0; some iterate of the pass needs a weight > 0.", remedy="give 1 to average all alike.")


def refuse_filtering(batches: Batches, noise_at: NoiseAt, *, release: Release, averaged: bool) -> None:
    """Refuse a noise budget unless every iterate counts as released, with noise at every step and batches that are not cut.

    Args:
        batches: must have no cap.
        noise_at: must be every_step.
        release: must be all.
        averaged: whether the run has pass weights; must be False.
    Raises:
        InputError: see above.
    """
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
