"""Private regression of counts and costs: Poisson, gamma and Tweedie, with a logarithmic link.

Called by users. Deviances of counts and costs have unbounded derivatives, so the loss is cut: its derivative in the score is clipped (slope
cut). That biases predictions, which a second release corrects (level.py). Targets are trained on in units in which their upper bound is T =
8.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import Tags

from lethe.calculus.domains import as_number, outside, require_nonnegative
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.tables import SPARSE, read_table
from lethe.estimators.inputs.targets import TargetRange
from lethe.estimators.models.level import LevelRelease
from lethe.estimators.models.linear_model import Users
from lethe.estimators.models.regressors import PrivateRegressor
from lethe.estimators.private_estimator import with_constructor
from lethe.mechanisms.base import Array
from lethe.run.losses import Tweedie

# T, the bound on targets in units of the training: an eighth of the upper end of their range, about their mean where they are skewed.
_BOUND = 8.0
_SMALLEST = 1e-12  # of the upper end: a mean of 0 has no deviance


@with_constructor
class PrivateLogLink(PrivateRegressor, ABC):
    r"""Base class of the private regressors of counts and costs.

    $$\min_{w,b} \frac1n\sum_i w_i\,l_c\big(\langle w, x_i\rangle + b,\ y_i/u\big) + \frac\alpha2\|w\|^2,\qquad
      \hat\mu = u\,e^{\langle w, x\rangle + b},$$

    as far as privacy and the mechanism allow, l half the deviance of power p, $l_c$ the same with its derivative in the score clipped to
    [-c, c], u an eighth of the upper end of the range. The intercept is moved so that the means add up to the targets, by sums that are
    released after the training for 1 to 15 % of the budget (in squared mu); not of users, nor where records are so few that noise would
    hide it: there slopes are cut far out alone.

    Args:
        alpha: $\ge 0$, in scikit-learn's sense of targets divided by u.
        target_bound: where targets lie, none below 0: a public number B for up to B, a public pair (low, high), or "auto": up to
            twice a private quantile, the 0.98, paid for with 5 % of the budget (in squared mu), or up to 30 % where records are few.
        fit_intercept: False: none but the unit u, without a correction of the level.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        feature_norm: as of `PrivateLinearModel`.
    Attributes: those of `PrivateLinearModel`, and `target_range_`, (0, high): released, public, or public and narrowed.
    """

    alpha: float = 0.0

    score_name: ClassVar[str] = "D^2"
    _of_costs: ClassVar[bool] = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @abstractmethod
    def _power(self) -> float:
        """p, checked."""

    def _penalties(self, records: int) -> tuple[float, float]:
        return require_nonnegative("alpha", self.alpha, allow_infinity=False), 0.0

    def _loss(self, target_range: TargetRange, unit: float) -> Tweedie:
        return Tweedie(feature_norm=1.0, power=self._power(), target_bound=_BOUND, cut=_BOUND)

    def _unit(self, target_range: TargetRange) -> tuple[float, float | None]:
        return target_range.half / _BOUND, _BOUND

    def _ends(self, target_range: TargetRange) -> tuple[float, float]:
        return 0.0, target_range.half

    def _correction(self, records: int, budget: PrivacyBudget, users: Users) -> LevelRelease | None:
        return LevelRelease.planned(records, budget, bound=_BOUND) if self.fit_intercept and users is None else None

    def _in_target_units(self, coefficients: Array, intercept: float, target_range: TargetRange, unit: float) -> tuple[Array, float]:
        return coefficients.copy(), intercept + math.log(unit)

    def predict(self, X: Any) -> Array:
        """Predicted means, shape (n,), above 0 and at most the upper end of `target_range_`."""
        scores = self._scores(X)
        if self.whitened_ is not None:
            table = read_table(self, X, reset=False, **SPARSE)
            scores = self.score_rule.projected(scores[:, None], table, self.coef_[:, None])[:, 0]
        high = self.target_range_[1]
        return np.maximum(np.exp(np.minimum(scores + self.intercept_, math.log(high))), _SMALLEST * high)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """$D^2$ of the power: the share of the deviance that is explained, as scikit-learn's.

        Args:
            X, y: records that were not trained on, and their targets, shape (n,), 0 or above, of power 2 above 0.
            sample_weight: shape (n,); None: all 1.
        """
        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=self._power()))  # pyright: ignore[reportArgumentType]  # sklearn's stub


class PoissonRegressor(PrivateLogLink):
    """Counts, and rates with their exposures as weights: power 1.

    Args: as of `PrivateLogLink`.
    """

    def _power(self) -> float:
        return 1.0


class GammaRegressor(PrivateLogLink):
    """Costs above 0, whose spread is in proportion to their mean: power 2.

    Args: as of `PrivateLogLink`.
    """

    def _power(self) -> float:
        return 2.0


@with_constructor
class TweedieRegressor(PrivateLogLink):
    """Costs of which many may be 0: a power between 1 and 2, or one of these.

    Args:
        power: in [1, 2]; of others the deviance is not convex in the score, or squares, for which there is `Ridge`.
        alpha, target_bound, feature_norm, fit_intercept: as of `PrivateLogLink`.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
    """

    power: float = 1.5

    def _power(self) -> float:
        power = as_number("power", self.power, "a number from 1 to 2")
        if not 1.0 <= power <= 2.0:
            raise outside("power", self.power, "a number from 1 to 2")
        return power
