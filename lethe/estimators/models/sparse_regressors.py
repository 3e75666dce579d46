"""Private regression with an l1 penalty, taken by proximal steps on noisy gradients: Lasso and elastic net."""

from __future__ import annotations

from typing import ClassVar

from lethe.calculus.domains import require_nonnegative, require_probability
from lethe.estimators.models.regressors import PrivateRegressor

_AGAINST_WHITENING = "an l1 penalty on the weights of whitened rows would leave no weight of a feature at zero"


class ElasticNet(PrivateRegressor):
    r"""Least squares with $\lambda = a\rho$ and $\kappa = a(1 - \rho)$, a = alpha and $\rho$ = l1_ratio, as in scikit-learn.

    Only a run takes $\lambda > 0$, by a proximal step after the noise of each step. So `coef_` may have exact zeros, the fewer the larger
    the noise; which weights are zero is covered by the certificate, as their values are.

    Args:
        alpha: $\ge 0$.
        l1_ratio: in [0, 1].
    """

    alpha: float = 1.0
    l1_ratio: float = 0.5

    _against_whitening: ClassVar[str | None] = _AGAINST_WHITENING

    def _penalties(self, records: int) -> tuple[float, float]:
        alpha, ratio = require_nonnegative("alpha", self.alpha, allow_infinity=False), require_probability("l1_ratio", self.l1_ratio)
        return alpha * (1.0 - ratio), alpha * ratio


class Lasso(PrivateRegressor):
    r"""Least squares with $\lambda = \text{alpha}$: `ElasticNet` with l1_ratio 1.

    Args:
        alpha: $\ge 0$.
    """

    alpha: float = 1.0

    _against_whitening: ClassVar[str | None] = _AGAINST_WHITENING

    def _penalties(self, records: int) -> tuple[float, float]:
        return 0.0, require_nonnegative("alpha", self.alpha, allow_infinity=False)
