"""HuberRegressor: private regression by Huber's loss, for targets with outliers.

Called by users. Its gradient is bounded whatever the targets are, so the range of the targets, which `PrivateRegressor` truncates them to,
is needed only to centre them, and to set the loss where no residual bound is given.
"""

import math

from lethe.calculus.domains import require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.targets import TargetRange
from lethe.estimators.models.regressors import PenalisedRegressor
from lethe.estimators.private_estimator import with_constructor

_SHARE = 0.5  # of half the range of the targets: about 1.35 standard deviations of residuals where two thirds are explained
_FAR = 1e100  # so that no sum of losses overflows


@with_constructor
class HuberRegressor(PenalisedRegressor):
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

    def _bound(self) -> float | None:
        """The residual bound that was given, or None for "auto"."""
        if isinstance(self.residual_bound, str) and self.residual_bound == "auto":
            return None
        return require_positive("residual_bound", self.residual_bound)

    def _declared_range(self) -> TargetRange | None:
        bound = self._bound()
        if self.target_bound is not None:
            return super()._declared_range()
        if bound is None:
            raise InputError(
                'target_bound = None with residual_bound = "auto": nothing says how far apart targets are.',
                source="the parameters target_bound and residual_bound",
                remedy='give a residual_bound known without looking at the data, or target_bound="auto": private quantiles, paid for',
            )
        return TargetRange(centre=0.0, half=bound)

    def _against_narrowing(self) -> str | None:
        return None if self._bound() is None else "residual_bound is given, and the noise is in proportion to it, not to the range"

    def _taken_as_public(self, target_range: TargetRange) -> list[str]:
        bound = self._bound()
        if bound is None:
            return [f"targets between {target_range.ends[0]:g} and {target_range.ends[1]:g}, about"]
        return [f"residual_bound = {bound:g}", *([] if self.target_bound is None else [f"targets around {target_range.centre:g}"])]

    def _residual_bound(self, target_range: TargetRange) -> float:
        bound = self._bound()
        return _SHARE * target_range.half if bound is None else bound

    def _limit(self, target_range: TargetRange) -> float:
        return _FAR

    def _ends(self, target_range: TargetRange) -> tuple[float, float]:
        return (-math.inf, math.inf) if self.target_bound is None else target_range.ends

    def _unit(self, target_range: TargetRange) -> tuple[float, float | None]:
        # With a bound of its own the loss is known beforehand, and a range that was released only centres the targets.
        return super()._unit(target_range) if self._bound() is None or target_range.statement is None else (1.0, None)
