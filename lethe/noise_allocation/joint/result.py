"""What a solver of the joint problem returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lethe.calculus.rounding import root_above
from lethe.noise_allocation.joint.inputs import JointProblem
from lethe.run.schedules.base import Array


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
    iterations: int
    """Of the interior-point method, in all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """Feasible variances in a problem's own units, their cost and a proven lower bound on the optimum."""

    variances: Array
    value: float
    bound: float


def finished(problem: JointProblem, found: Found, window: int, iterations: int) -> CyclicJoint:
    """The result in the units of `problem`.

    Args:
        problem: as the user stated it.
        found: the solution in the problem's own units.
        window: the step after which the shift is reset, 0 if never.
        iterations: of the interior-point method, in all.
    """
    # The square root may round down.
    noise = np.where(found.variances <= 0.0, 0.0, root_above(found.variances * problem.variance_unit))
    value = float(np.sum(problem.weights * noise**2))
    bound = found.bound * float(np.max(problem.weights)) * problem.variance_unit
    return CyclicJoint(noise_stds=noise, value=value, lower_bound=min(bound, value), window=window, iterations=iterations)
