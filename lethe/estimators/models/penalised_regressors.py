"""Private regression with a ridge, an l1 penalty or both, and by Huber's loss."""

from __future__ import annotations

import math
from typing import ClassVar

from lethe.calculus.domains import require_nonnegative, require_positive, require_probability
from lethe.errors import InputError
from lethe.estimators.inputs.targets import TargetRange
from lethe.estimators.models.regressors import PrivateRegressor
from lethe.estimators.private_estimator import with_constructor
from lethe.run.losses import LeastSquares

_AGAINST_WHITENING = "an l1 penalty on the weights of whitened rows would leave no weight of a feature at zero"
_HUBER_SHARE = 0.5  # of half the range of the targets: about 1.35 standard deviations of residuals where two thirds are explained
_FAR = 1e100  # so that no sum of losses overflows


@with_constructor
class _Penalised(PrivateRegressor):
    """Least squares with a penalty of strength alpha."""

    alpha: float = 1.0


class Ridge(_Penalised):
    r"""Least squares with $\kappa = \text{alpha}/n$: scikit-learn's Ridge, whose sum of squares is $2n$ times ours.

    Args:
        alpha: $\ge 0$.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        target_bound, feature_norm, fit_intercept: as of `PrivateRegressor`.
    """

    def _penalties(self, records: int) -> tuple[float, float]:
        return require_nonnegative("alpha", self.alpha, allow_infinity=False) / records, 0.0


class Lasso(_Penalised):
    r"""Least squares with $\lambda = \text{alpha}$: `ElasticNet` with l1_ratio 1.

    Args:
        alpha: $\ge 0$.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        target_bound, feature_norm, fit_intercept: as of `PrivateRegressor`.
    """

    _against_whitening: ClassVar[str | None] = _AGAINST_WHITENING

    def _penalties(self, records: int) -> tuple[float, float]:
        return 0.0, require_nonnegative("alpha", self.alpha, allow_infinity=False)


@with_constructor
class ElasticNet(_Penalised):
    r"""Least squares with $\lambda = a\rho$ and $\kappa = a(1 - \rho)$, a = alpha and $\rho$ = l1_ratio, as in scikit-learn.

    Only a run takes $\lambda > 0$, by a proximal step after the noise of each step. So `coef_` may have exact zeros, the fewer the larger
    the noise; which weights are zero is covered by the certificate, as their values are.

    Args:
        alpha: $\ge 0$.
        l1_ratio: in [0, 1].
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        target_bound, feature_norm, fit_intercept: as of `PrivateRegressor`.
    """

    l1_ratio: float = 0.5

    _against_whitening: ClassVar[str | None] = _AGAINST_WHITENING

    def _penalties(self, records: int) -> tuple[float, float]:
        alpha, ratio = require_nonnegative("alpha", self.alpha, allow_infinity=False), require_probability("l1_ratio", self.l1_ratio)
        return alpha * (1.0 - ratio), alpha * ratio


@with_constructor
class HuberRegressor(PrivateRegressor):
    r"""Regression by Huber's loss, whose gradient is bounded whatever the targets are, so that outliers do not pull far.

    $$\min_w \sum_i w_i\,l_\tau(\langle w, x_i\rangle - y_i) + \frac{\text{alpha}}2\|w\|^2,$$

    $l_\tau$ half the square within $\pm\tau$ and linear outside. No mechanism cuts it further, and those that fit squares are refused.

    Targets are centred but not truncated: a gross outlier pulls with $\tau$, whatever its size. Predictions lie within the range.

    Args:
        residual_bound: $\tau > 0$, public, in target units; "auto": a quarter of the width of the range of the targets.
        alpha: $\ge 0$.
        target_bound: where targets lie: a public number B for $\pm B$, a public pair (low, high), or "auto": one and a half times the
            range between two private quantiles, paid for with a twentieth of the budget. None, with a residual_bound: no range is needed,
            targets are not centred, and `target_range_` is infinite.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        feature_norm, fit_intercept: as of `PrivateLinearModel`.
    """

    residual_bound: float | str = "auto"
    alpha: float = 1e-4

    _keeps_loss = True

    def _penalties(self, records: int) -> tuple[float, float]:
        return require_nonnegative("alpha", self.alpha, allow_infinity=False) / records, 0.0

    def _bound(self) -> float | None:
        """The residual bound that was given, or None for "auto"."""
        if isinstance(self.residual_bound, str) and self.residual_bound == "auto":
            return None
        return require_positive("residual_bound", self.residual_bound)

    def _declared_range(self) -> TargetRange | None:
        given = self._bound()
        if self.target_bound is not None:
            return super()._declared_range()
        if given is None:
            raise InputError(
                'target_bound = None with residual_bound = "auto": nothing says how far apart targets are.',
                source="the parameters target_bound and residual_bound",
                remedy='give a residual_bound known without looking at the data, or target_bound="auto": private quantiles, paid for',
            )
        return TargetRange(centre=0.0, half=given)

    def _against_narrowing(self) -> str | None:
        return None if self._bound() is None else "residual_bound is given, and the noise is in proportion to it, not to the range"

    def _taken_as_public(self, known: TargetRange) -> list[str]:
        given = self._bound()
        if given is None:
            return [f"targets between {known.ends[0]:g} and {known.ends[1]:g}, about"]
        return [f"residual_bound = {given:g}", *([] if self.target_bound is None else [f"targets around {known.centre:g}"])]

    def _loss(self, known: TargetRange) -> LeastSquares:
        given = self._bound()
        return LeastSquares(feature_norm=1.0, residual_bound=_HUBER_SHARE * known.half if given is None else given)

    def _limit(self, known: TargetRange) -> float:
        return _FAR

    def _ends(self, known: TargetRange) -> tuple[float, float]:
        return (-math.inf, math.inf) if self.target_bound is None else known.ends

    def _unit(self, known: TargetRange) -> tuple[float, float | None]:
        # With a bound of its own the loss is known beforehand, and a range that was released only centres the targets.
        return super()._unit(known) if self._bound() is None or known.statement is None else (1.0, None)
