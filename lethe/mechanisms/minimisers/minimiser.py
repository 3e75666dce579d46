r"""The minimiser of a regularised risk to a certified accuracy: Newton's method, and a descent that always arrives where it falls short."""

from __future__ import annotations

import math

import numpy as np

from lethe.calculus.rounding import MOST_COUNT, count_above
from lethe.errors import LetheError
from lethe.mechanisms.base import Array
from lethe.mechanisms.minimisers.newton import Objective, newton


def minimiser(objective: Objective, tolerance: float) -> Array:
    r"""A point $\tilde W$ with $\|\nabla F(\tilde W)\| \le \tau$, so that $\|\tilde W - W^*\| \le \tau/\lambda$ for the minimiser $W^*$.

    Strong convexity gives $\lambda\|W - W^*\| \le \|\nabla F(W) - \nabla F(W^*)\| = \|\nabla F(W)\|$. The same data, the same answer:
    nothing is random. Newton's method is tried first. If it falls short, accelerated descent starts at the best point found, whose
    gradient is no longer than the one at 0, and after
    $$2\sqrt\kappa\,\log\frac{\sqrt2\,\kappa\,\|\nabla F(0)\|}{\tau},\qquad \kappa = \frac{\beta + \lambda}{\lambda},$$
    steps it has arrived, whatever the data: $F(W_k) - F^* \le (1 - \kappa^{-1/2})^k(\beta+\lambda)\|W_0 - W^*\|^2$,
    $\|W_0 - W^*\| \le \|\nabla F(W_0)\|/\lambda$, and $\|\nabla F\|^2 \le 2(\beta+\lambda)(F - F^*)$.

    Args:
        objective: F.
        tolerance: $\tau > 0$, well above the rounding of F's gradient.
    Returns:
        $\tilde W$, shape (D, k).
    Raises:
        LetheError: rounding alone kept the gradient above the tolerance; nothing has been released.
    Reference: Nesterov 2018, "Lectures on convex optimization", Theorem 2.2.3.
    """
    zero = np.zeros(objective.shape)
    at_zero = _length(objective.value_and_gradient(zero)[1])
    found = newton(objective, tolerance)
    length = _length(objective.value_and_gradient(found)[1])
    if length <= tolerance:
        return found
    start = found if length < at_zero else zero
    return _accelerated(objective, start, min(length, at_zero), tolerance)


def most_steps(condition: float, gradient: float, tolerance: float) -> int:
    r"""The largest number of steps of accelerated descent: the bound in `minimiser`, plus one.

    Args:
        condition: $\kappa \ge 1$.
        gradient: $\|\nabla F(0)\|$.
        tolerance: $\tau > 0$.
    """
    steps = 2.0 * math.sqrt(condition) * math.log(max(math.sqrt(2.0) * condition * gradient / tolerance, 1.0))
    return int(count_above(steps, MOST_COUNT)) + 1


def _accelerated(objective: Objective, start: Array, gradient_length: float, tolerance: float) -> Array:
    smoothness = objective.loss.smoothness + objective.regularisation
    condition = smoothness / objective.regularisation
    momentum = (math.sqrt(condition) - 1.0) / (math.sqrt(condition) + 1.0)
    here, ahead = start, start
    for _ in range(most_steps(condition, gradient_length, tolerance)):
        there = ahead - objective.value_and_gradient(ahead)[1] / smoothness
        here, ahead = there, there + momentum * (there - here)
        if _length(objective.value_and_gradient(here)[1]) <= tolerance:
            return here
    raise LetheError(
        f"the minimiser was not found to a gradient of {tolerance:g}: rounding is larger than that.",
        source="the solver; nothing was released",
        remedy="scale the features to a norm near 1, take a larger regularisation or a larger tolerance",
    )


def _length(gradient: Array) -> float:
    return float(np.linalg.norm(gradient))
