r"""split_budget: a privacy budget divided among several fits on the same records.

What a step may cost follows from what is known of it before it is fitted (`lethe.estimators.search.step_tries` has the proof):

- All steps Gaussian: squares of $\mu$ add up, so a step of share p gets $\mu\sqrt p$, calibrated at the total's $\delta$.
- Else a step of share p that need not be Gaussian gets $(p\epsilon, p\delta)$, whatever mechanism it comes to use, and the Gaussian ones
  have the rest together: epsilons and deltas add up.

A split by $\mu$ for all of them is not enough: that a fit meets $(\epsilon, \delta)$ at one point says nothing of the rest of its privacy
profile, on which the composition depends. With objective perturbation, which `mechanism="auto"` may choose, such a split came to 4.08 of 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from lethe.calculus.domains import outside, require_vector
from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.preprocessing.transformer import PrivateTransformer
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.estimators.search.step_tries import step_tries
from lethe.estimators.search.tries import Try, is_gaussian

_DOWN = 1.0 - 1e-11  # what calibration and composition round up by, many times over


def split_budget(steps: Sequence[PrivateEstimator], epsilon: float, delta: float, *, shares: Sequence[float]) -> tuple[Any, ...]:
    r"""The same steps, each with an epsilon and a delta of its own, such that together they meet $(\epsilon, \delta)$ on the same records.

    A step counts as Gaussian if it is a transformer, or a linear model that names a mechanism of `tries.GAUSSIAN` and public bounds. A
    mechanism that is named gets more out of its share than "auto", whose choice is not known before the fit.

    Args:
        steps: estimators of this package, in the order in which they are fitted; each is fitted once.
        epsilon: the total, > 0.
        delta: in (0, 1).
        shares: p > 0 of each step, of sum at most 1; what is left of 1 stays unspent.
    Returns:
        Clones with their epsilon and delta set; change nothing else that says which mechanism they use.
    Raises:
        InputError: an argument is out of its range, or a step is no estimator of this package.
        CalibrationError: a share is too small for any epsilon.
    Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Corollary 3.3.
    """
    listed = list(steps) if isinstance(steps, list | tuple) else []
    if not listed or not all(isinstance(step, PrivateEstimator) for step in listed):
        raise outside("steps", steps, "a list of estimators of lethe.estimators, at least one")
    parts = require_vector("shares", list(shares), low=0.0, strict=True).tolist()
    total = math.fsum(parts)
    if len(parts) != len(listed) or total > 1.0 + 1e-12:
        raise InputError(
            f"shares: {len(parts)} of {len(listed)} steps, of sum {total:g}; it needs one for each step, together at most 1.",
            source="the argument shares",
            remedy="divide them by their sum",
        )
    budget, names = PrivacyBudget(epsilon=epsilon, delta=delta), [str(place) for place in range(len(listed))]
    gaussian = {name: _is_gaussian(step) for name, step in zip(names, listed, strict=True)}
    whole = _whole(budget, min(total, 1.0), gaussian=all(gaussian.values()))
    found = step_tries(whole, gaussian, dict(zip(names, parts, strict=True)), delta=budget.delta)
    made: list[Any] = [clone(step) for step in listed]
    for name, step in zip(names, made, strict=True):
        step.set_params(epsilon=found[name].target.epsilon_bound, delta=found[name].target.delta_bound)
    return tuple(made)


def _is_gaussian(step: PrivateEstimator) -> bool:
    """Whether its parameters say that a fit is mu-GDP, whatever the data."""
    return isinstance(step, PrivateTransformer) or (isinstance(step, PrivateLinearModel) and is_gaussian(step))


def _whole(budget: PrivacyBudget, part: float, *, gaussian: bool) -> Try:
    """What all steps may cost together: so much of the budget."""
    if gaussian:
        mu = budget.total_mu * math.sqrt(part) * _DOWN
        return Try(guarantee=GDP(mu), target=ApproxDP(GDP(mu).epsilon(budget.delta), budget.delta))
    point = ApproxDP(budget.epsilon * part * _DOWN, budget.delta * part * _DOWN)
    return Try(guarantee=point, target=point)
