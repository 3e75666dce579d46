"""The joint problem of schedule and accounting in cyclic batches, and what a solver of it returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.rounding import root_above
from lethe.errors import InputError
from lethe.noise_allocation.joint.gaps import Booleans
from lethe.run.schedules.shapes import Array

_SMALLEST_UNIT = 1e-200


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointProblem:
    """What `joint_problem` makes: arrays of one length T >= 1, the floor 0 where no noise is allowed."""

    weights: Array
    lipschitz: Array
    sensitivity: Array
    batches: int
    mu: float
    noisy: Booleans
    floor: Array
    diameter: Array | None
    tolerance: float

    @property
    def steps(self) -> int:
        """T."""
        return self.weights.size

    @property
    def variance_unit(self) -> float:
        r"""$(\max_t s_t / \mu)^2$; 1 if nothing is touched."""
        largest = float(np.max(self.sensitivity))
        try:
            return (largest / self.mu) ** 2 if largest > 0.0 else 1.0
        except OverflowError:
            return math.inf

    def in_own_units(self) -> JointProblem:
        r"""The same problem with $\mu = 1$, $\max s_t = 1$ and $\max q_t = 1$; variances are to be multiplied by `variance_unit`."""
        largest, unit = float(np.max(self.sensitivity)) or 1.0, self.variance_unit
        with np.errstate(all="ignore"):
            floor = self.floor / unit
            diameter = None if self.diameter is None else self.diameter / largest
        if not (_SMALLEST_UNIT < unit < 1.0 / _SMALLEST_UNIT and bool(np.all(floor < 1.0 / _SMALLEST_UNIT))):
            raise InputError(
                f"(sensitivity / mu)^2 = ({largest:g} / {self.mu:g})^2 is beyond what doubles hold, alone or beside the floor.",
                source="the arguments sensitivity, mu and floor",
                remedy="choose another unit of length.",
            )
        return replace(
            self,
            weights=self.weights / np.max(self.weights),
            sensitivity=self.sensitivity / largest,
            mu=1.0,
            floor=floor,
            diameter=diameter,
        )


def joint_problem(
    weights: ArrayLike,
    lipschitz: ArrayLike,
    sensitivity: ArrayLike,
    batches_per_pass: int,
    *,
    mu: float = 1.0,
    noisy: ArrayLike | None = None,
    floor: ArrayLike = 0.0,
    diameter: ArrayLike | None = None,
    tolerance: float = 1e-7,
) -> JointProblem:
    r"""The problem that `joint_cyclic` solves.

    Args:
        weights: $q_t > 0$, shape (T,), cost of a unit of noise variance at each step; only ratios matter for the schedule.
        lipschitz: $L_t \ge 0$, shape (T,), Lipschitz constant of each step before its noise.
        sensitivity: $s_t \ge 0$, shape (T,), parameter units: how far step t moves the iterate when a record of its batch changes.
        batches_per_pass: $\ell \ge 1$; 1 for full batches.
        mu: $\mu > 0$, the privacy to meet.
        noisy: shape (T,), truth values: which steps may have noise. All, if left out.
        floor: $f_t \ge 0$, a number or shape (T,), parameter units squared: least noise variance of the steps that may have noise.
        diameter: $D_t \ge 0$, a number or shape (T,), parameter units: the two runs are never further apart after step t. The shift may
            then be set to it once, after the best of several steps; the noise before is at its floor.
        tolerance: relative distance to the optimum to reach, 1e-9 to 1e-2. The result says what was reached.
    """
    q, factors, touches = (np.asarray(column, dtype=np.float64) for column in (weights, lipschitz, sensitivity))
    allowed = np.ones(q.size, dtype=np.bool_) if noisy is None else np.asarray(noisy, dtype=np.bool_)
    return JointProblem(
        weights=q,
        lipschitz=factors,
        sensitivity=touches,
        batches=min(batches_per_pass, q.size),  # with more batches than steps each position is touched once at most, as with as many
        mu=mu,
        noisy=allowed,
        floor=np.broadcast_to(np.asarray(floor, dtype=np.float64), q.shape) * allowed,
        diameter=None if diameter is None else np.broadcast_to(np.asarray(diameter, dtype=np.float64), q.shape),
        tolerance=tolerance,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CyclicJoint:
    """A noise schedule that is private as asked, and how near it is to the cheapest."""

    noise_stds: Array
    r"""$\tau_t$, shape (T,), parameter units; exactly 0 where no noise is needed."""
    value: float
    r"""$\sum q_t \tau_t^2$."""
    lower_bound: float
    """No schedule that meets the constraints costs less: proved from multipliers. With a reset: none that uses the same one."""
    window: int
    r"""Step $\tau$ after which the shift is set to the diameter (or to the distance tracked so far, if smaller); 0 if never."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """Feasible variances in a problem's own units, their cost and a proven lower bound on the optimum."""

    variances: Array
    value: float
    bound: float


def finished(problem: JointProblem, found: Found, window: int) -> CyclicJoint:
    """The result in the units of `problem`; `window`: the step after which the shift is reset, 0 if never."""
    # The square root may round down.
    noise = np.where(found.variances <= 0.0, 0.0, root_above(found.variances * problem.variance_unit))
    value = float(np.sum(problem.weights * noise**2))
    bound = found.bound * float(np.max(problem.weights)) * problem.variance_unit
    return CyclicJoint(noise_stds=noise, value=value, lower_bound=min(bound, value), window=window)
