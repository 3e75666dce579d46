"""Correlated noise: how the noise of a step depends on that of the steps before it.

A Run holds a strategy as `noise`; this reads it from documents and refuses it where only independent noise is understood. Later noise
partly cancels earlier, so that sums of gradients are less noisy.
"""

from typing import Any

from lethe.documents.specification import from_tagged
from lethe.errors import InputError
from lethe.run.noise.strategies import BandedInverse, BandedToeplitz, BufferedToeplitz, CorrelatedNoise, LowerTriangular

__all__ = ["BandedInverse", "BandedToeplitz", "BufferedToeplitz", "LowerTriangular"]

NOISES: dict[str, type[CorrelatedNoise]] = {
    strategy.kind: strategy for strategy in (BandedToeplitz, BufferedToeplitz, BandedInverse, LowerTriangular)
}

INDEPENDENT = "independent"
"""The kind of noise that is drawn anew at each step; a Run has None for it."""

REMEDY = "drop noise, or use what knows correlated noise: certify, plan, fit and PrivacyEngine (docs/correlated_noise.md)."
"""What to do where correlated noise is refused."""


def parse_noise(value: object) -> CorrelatedNoise | None:
    """Read {kind: ..., ...}; null and {kind: independent} are None."""
    independent: dict[str, str] = {"kind": INDEPENDENT}
    if value is None or value == independent:
        return None
    if isinstance(value, int | float):
        raise InputError(f"got {value!r}; how the noise of the steps depends on one another.", remedy="did you mean noise_multiplier?")
    return from_tagged(value, tag="kind", classes=NOISES)


def refuse_correlating(noise: CorrelatedNoise, run: Any) -> None:
    """Refuse correlated noise with what no theorem on it knows; `run` is the same Run with independent noise."""
    if run.batches.period(run.records) is None:
        raise InputError(
            f"noise: {noise.kind} noise does not go with {run.batches.design} batches: a record must keep its place in all passes.",
            source=f"noise, batches.design = {run.batches.design}",
            remedy="take cyclic, shuffled_once, cyclic_poisson or full batches, or independent noise.",
        )
    noise.strategy(run.total_steps)
    conflicts = [] if run.noise_at == "every_step" else [f"noise_at = {run.noise_at}"]
    conflicts += [name for name in ("pass_weights", "noise_budget") if getattr(run, name) is not None]
    if conflicts:
        raise InputError(
            f"noise: {noise.kind} noise does not go with {' and '.join(conflicts)}: it is drawn at every step, in advance.",
            source="noise",
            remedy="drop them, or take independent noise.",
        )
    if run.noise_multiplier is not None and run.noise_multipliers.min() != run.noise_multipliers.max():
        raise InputError(
            f"noise_multiplier: got {run.noise_multipliers.min():g} to {run.noise_multipliers.max():g}; {noise.kind} noise "
            "needs one number.",
            source="noise, noise_multiplier",
            remedy="give one number, or put the schedule into a lower_triangular strategy: divide its rows by it.",
        )


def refuse_correlated(noise: CorrelatedNoise | None) -> None:
    """Refuse to say how much correlated noise each step has: whoever asks that takes it for independent."""
    if noise is not None:
        raise InputError(
            f"noise: this run has {noise.kind} noise; what was asked of it knows independent noise only.", source="run.noise", remedy=REMEDY
        )
