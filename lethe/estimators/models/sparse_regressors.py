"""Private regression with an l1 penalty, taken by proximal steps on noisy gradients: Lasso and elastic net."""

from __future__ import annotations

from typing import Any

from lethe.calculus.domains import require_nonnegative, require_probability
from lethe.estimators.models.regressors import PrivateRegressor


class ElasticNet(PrivateRegressor):
    r"""Least squares with $\lambda = a\rho$ and $\kappa = a(1 - \rho)$, a = alpha and $\rho$ = l1_ratio, as in scikit-learn.

    Only a run takes $\lambda > 0$, by a proximal step after the noise of each step. So `coef_` may have exact zeros, the fewer the larger
    the noise; which weights are zero is covered by the certificate, as their values are.

    Args:
        alpha: $\ge 0$.
        l1_ratio: in [0, 1].
        target_bound, epsilon, delta, allow_large_delta, neighbours, mechanism, batches, passes, schedule, feature_norm, fit_intercept,
            max_weight, random_state, seed_noise: as `PrivateRegressor`.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        allow_large_delta: bool = False,
        alpha: float = 1.0,
        l1_ratio: float = 0.5,
        target_bound: Any = "auto",
        neighbours: str = "replace_one",
        mechanism: str = "auto",
        batches: str = "auto",
        passes: int | str = "auto",
        schedule: str = "auto",
        feature_norm: float | str | None = "auto",
        fit_intercept: bool = True,
        max_weight: float = 1.0,
        random_state: Any = None,
        seed_noise: bool = False,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            allow_large_delta=allow_large_delta,
            target_bound=target_bound,
            neighbours=neighbours,
            mechanism=mechanism,
            batches=batches,
            passes=passes,
            schedule=schedule,
            feature_norm=feature_norm,
            fit_intercept=fit_intercept,
            max_weight=max_weight,
            random_state=random_state,
            seed_noise=seed_noise,
        )
        self.alpha = alpha
        self.l1_ratio = l1_ratio

    def _penalties(self, records: int) -> tuple[float, float]:
        alpha, ratio = require_nonnegative("alpha", self.alpha, allow_infinity=False), require_probability("l1_ratio", self.l1_ratio)
        return alpha * (1.0 - ratio), alpha * ratio


class Lasso(PrivateRegressor):
    r"""Least squares with $\lambda = \text{alpha}$: `ElasticNet` with l1_ratio 1.

    Args:
        alpha: $\ge 0$.
        target_bound, epsilon, delta, allow_large_delta, neighbours, mechanism, batches, passes, schedule, feature_norm, fit_intercept,
            max_weight, random_state, seed_noise: as `PrivateRegressor`.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        allow_large_delta: bool = False,
        alpha: float = 1.0,
        target_bound: Any = "auto",
        neighbours: str = "replace_one",
        mechanism: str = "auto",
        batches: str = "auto",
        passes: int | str = "auto",
        schedule: str = "auto",
        feature_norm: float | str | None = "auto",
        fit_intercept: bool = True,
        max_weight: float = 1.0,
        random_state: Any = None,
        seed_noise: bool = False,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            allow_large_delta=allow_large_delta,
            target_bound=target_bound,
            neighbours=neighbours,
            mechanism=mechanism,
            batches=batches,
            passes=passes,
            schedule=schedule,
            feature_norm=feature_norm,
            fit_intercept=fit_intercept,
            max_weight=max_weight,
            random_state=random_state,
            seed_noise=seed_noise,
        )
        self.alpha = alpha

    def _penalties(self, records: int) -> tuple[float, float]:
        return 0.0, require_nonnegative("alpha", self.alpha, allow_infinity=False)
