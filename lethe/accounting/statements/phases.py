"""Phases of a heavy-tailed solver as numbers that its guarantee follows from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lethe.calculus.any_guarantee.stored import guarantee_from_dict
from lethe.calculus.domains import require_count, require_nonnegative
from lethe.calculus.guarantees import Guarantee
from lethe.certificates.derivation import Derivation, derivation
from lethe.heavy_tailed.solution import Phase, Release, composed, gaussian_release


def phases_derivation(phases: Sequence[Phase]) -> Derivation:
    """The numbers of the phases: of Gaussian means sensitivity and noise, of others the guarantee that is stated of one, or of all."""
    return derivation("phases", phases=[_numbers(phase) for phase in phases])


def _numbers(phase: Phase) -> dict[str, Any]:
    where: dict[str, Any] = {"first": phase.first, "stop": phase.stop, "touches": phase.touches}
    if phase.whole is not None:
        return {**where, "whole": phase.whole.to_dict()}
    if phase.release.sensitivity is None:
        return {**where, "each": phase.release.guarantee.to_dict()}
    return {**where, "sensitivity": float(phase.release.sensitivity), "noise_std": float(phase.release.noise_std)}


def phases_guarantee(phases: Sequence[dict[str, Any]]) -> Guarantee:
    """The guarantee of phases from `phases_derivation`."""
    return composed([_phase(**numbers) for numbers in phases])


def phases_stated(phases: Sequence[dict[str, Any]]) -> bool:
    """Whether the guarantee of some phase is written and not computed."""
    return any("whole" in numbers or "each" in numbers for numbers in phases)


def _phase(
    *,
    first: int,
    stop: int,
    touches: int,
    sensitivity: float | None = None,
    noise_std: float | None = None,
    each: dict[str, Any] | None = None,
    whole: dict[str, Any] | None = None,
) -> Phase:
    if whole is not None:
        stated = guarantee_from_dict(whole)
        release = Release(guarantee=stated, sensitivity=None, noise_std=0.0)
    elif each is not None:
        stated, release = None, Release(guarantee=guarantee_from_dict(each), sensitivity=None, noise_std=0.0)
    else:
        moved = require_nonnegative("sensitivity", sensitivity, allow_infinity=False)
        stated, release = None, gaussian_release(moved, require_nonnegative("noise_std", noise_std, allow_infinity=False))
    require_count("touches", touches)
    require_count("stop", stop, low=require_count("first", first, low=0) + 1)
    # How many means there were, and of how many records, is in the sensitivity.
    return Phase(first=first, stop=stop, batch_size=1, steps=touches, touches=touches, release=release, clip_norm=None, whole=stated)
