"""One rate for all steps: the exponential that fits an estimate best."""

from __future__ import annotations

import math

import numpy as np

from lethe.errors import InputError
from lethe.influence.estimate import Estimate
from lethe.run.schedules.influence import Influence


def fit_exponential(estimate: Estimate) -> Influence:
    r"""$q_t \approx r^{T-t}$: least squares of $\log q_t = a + bt$ over the measured steps with $q_t > 0$, and $r = e^{-b}$.

    Steps whose measured weight is not above 0 are left out. That tilts the fit towards large weights, so the share left out is stated:
    if it is not small, take more repeats instead.

    Args:
        estimate: from any of the estimators.
    Returns:
        The influence with that rate; `detail` names $R^2$ of the fit and the share of entries left out.
    Raises:
        InputError: no estimate, or fewer than two entries above 0.
    Reference: Hong, Wang & Zhou 2022 (FAccT): a measured influence is roughly exponential in the step.
    """
    if not isinstance(estimate, Estimate):
        raise InputError(f"estimate: got {type(estimate).__name__}; it needs what an estimator of lethe.influence returns.")
    kept = estimate.weights > 0
    if kept.sum() < 2:
        raise InputError(
            f"weights: {int(kept.sum())} of {len(kept)} are above 0; a line needs two.", remedy="take more repeats, or measure more steps."
        )
    steps, logs = estimate.probes[kept].astype(np.float64), np.log(estimate.weights[kept])
    centred = steps - steps.mean()
    slope = float(centred @ logs / (centred @ centred))
    spread = float(((logs - logs.mean()) ** 2).sum())
    unexplained = float(((logs - logs.mean() - slope * centred) ** 2).sum())
    # A constant influence is a straight line, whatever rounding says of its spread.
    r_squared = 1.0 if spread <= 1e-20 * len(logs) else 1.0 - unexplained / spread
    left_out = 1.0 - float(kept.mean())
    detail = f"{estimate.detail}; exponential fit, R^2 = {r_squared:.4f}, {left_out:.0%} of {len(kept)} entries left out"
    return Influence(rate=math.exp(-slope), basis=estimate.basis, detail=detail)
