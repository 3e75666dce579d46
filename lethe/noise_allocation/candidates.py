"""Candidates: the ways of placing noise that a planner compares, and what a person is told of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lethe.certificates.certificate import Certificate
from lethe.noise_allocation.noise_shapes import Shape
from lethe.run.batches import Cyclic, Poisson
from lethe.run.noise.growth import growths
from lethe.run.participation import Participation, unknown_participation
from lethe.run.run import Run
from lethe.run.schedules.base import Array

UNITS = "Noise: the standard deviation that all noise together gives a coordinate of the last model, in parameter units."

WORDS: Mapping[str, str] = {
    "uniform": "the same at every step",
    "pass_ends": "at the end of each pass, none between",
    "exponential": "changes by one factor a step",
    "influence": "less where it matters more",
    "joint": "the best if only the last model is shown",
    "correlated": "later steps take part of it back",
    "poisson": "the same at every step, batches drawn by chance",
    "cyclic": "correlated, batches in a fixed order",
}
"""What each way of placing noise is, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Candidate:
    r"""One way of placing noise, scaled to the target.

    Args:
        shape: its name.
        run: the run with this noise; None if it cannot be had.
        certificate: of that run.
        harm: $\sum_t q_t\tau_t^2$ (`lethe.noise_allocation.harm`); inf if it cannot be had.
        why: the reason against it, or empty.
        needs: what the run would have to change for it, or empty; then it is shown, and never chosen.
    """

    shape: str
    run: Run | None
    certificate: Certificate | None
    harm: float
    why: str = ""
    needs: str = ""

    @property
    def noise(self) -> float:
        r"""$\sqrt{\mathrm{harm}}$: standard deviation in parameter units, of a coordinate of the last model.

        Where an influence says that noise fades: of noise at the most influential step that does the same harm.
        """
        return math.sqrt(self.harm)

    @property
    def words(self) -> str:
        """What it is, and what it needs, in a few words."""
        said = WORDS.get(self.shape, self.shape)
        return f"{said}; needs {self.needs}" if self.needs else said

    def __repr__(self) -> str:
        certificate = self.certificate
        large = ", delta >= 1/records" if certificate is not None and certificate.large_delta else ""
        said = self.why if certificate is None else f"harm {self.harm:.4g}, epsilon {certificate.epsilon:.6g}{large}"
        return f"Candidate({self.shape}: {said})"


def other_designs(run: Run) -> list[tuple[str, Run, Shape, str]]:
    """The run in batches that it does not have, to say what they would have given: name, run, shape of its noise, and what it needs.

    Of a run whose batches are drawn afresh: cyclic ones, with correlated noise; of one in passes: Poisson batches, with uniform noise.

    Args:
        run: as it was given.
    """
    batches = run.batches
    size = batches.nominal_size(run.records)
    if batches.whole(run.records) or batches.cap is not None or run.noise_at != "every_step" or run.pass_weights is not None:
        return []
    match batches.participation:
        case Participation.EVERY_STEP:
            return []
        case Participation.PUBLIC_SLOT | Participation.SECRET_SLOT | Participation.FRESH_SECRET_SLOT:
            return [("poisson", run.replace(batches=Poisson(size=size)), "uniform", "poisson batches")]
        case Participation.INDEPENDENT_DRAW | Participation.DRAW_IN_PUBLIC_GROUP:
            if run.neighbours not in Cyclic.neighbours:
                return []
            return [("cyclic", run.replace(batches=Cyclic(size=size)), "correlated", "cyclic batches")]
    raise unknown_participation(batches.design, batches.participation)


def step_noise(run: Run) -> Array:
    """The noise multiplier that each noisy step has: of correlated noise, of what reaches the step, shape (noisy steps,)."""
    multipliers = run.uncorrelated.noise_multipliers
    grown = multipliers if run.noise is None else multipliers * growths(run.noise, run.total_steps)
    return grown[run.noisy_steps]
