"""Private regression by least squares: what the regressors share, with a ridge, an l1 penalty or both.

Called by users; log_link.py and huber.py derive from the base classes here. Noise is in proportion to the range of the targets, so `fit`
takes the range that was given, narrows it by a small release (a smaller range within it), or releases one.
"""

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from lethe.calculus.domains import require_nonnegative, require_probability
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.mechanism import RandomSources
from lethe.estimators.inputs.records import row_by_row
from lethe.estimators.inputs.tables import SPARSE, declared_switch, read_table_and_targets
from lethe.estimators.inputs.targets import Centred, TargetRange, declared_range, narrowed_range, narrowing_cost, range_cost, released_range
from lethe.estimators.models.level import LevelRelease
from lethe.estimators.models.linear_model import PrivateLinearModel, Users
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.tables import BlockColumns, examined
from lethe.estimators.private_estimator import with_constructor
from lethe.mechanisms.base import Array
from lethe.partitions.block import targets_of
from lethe.partitions.dask_tables import table_in_blocks
from lethe.run.losses import LeastSquares
from lethe.run.losses.linear import LinearLoss


@with_constructor
class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    r"""Base class of the private regressors.

    $$\min_w \frac1n\sum_i w_i\,l_B(\langle w, x_i\rangle - y_i) + \frac\kappa2\|w\|^2 + \lambda\|w\|_1,$$

    as far as privacy and the mechanism allow; $l_B$ is half the square, and its tangent where the residual is beyond $\pm B$. Targets are
    centred on the middle of their range and truncated at its ends; B is half of it. The penalty is also on the intercept, which the
    centring keeps small. Predictions are truncated at the ends as targets are, which brings none further from a truncated target.

    Args:
        target_bound: where targets lie: a public number B for $\pm B$, a public pair (low, high), or "auto": one and a half times the
            range between two private quantiles, paid for with 5 % of the budget (in squared mu), or up to 30 % where records are few.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        feature_norm, fit_intercept: as of `PrivateLinearModel`.
    Attributes: those of `PrivateLinearModel`, and `target_range_`, (low, high): released, public, or public and narrowed.
    """

    target_bound: Any = "auto"

    takes_options: ClassVar[frozenset[str]] = PrivateLinearModel.takes_options | {"narrow_range"}
    score_name: ClassVar[str] = "R^2"
    _of_costs: ClassVar[bool] = False  # whether no target is below 0, and means are those of a logarithmic link

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Of a few hundred records nobody learns much in private.
        tags.regressor_tags.poor_score = True
        return tags

    def _penalties(self, records: int) -> tuple[float, float]:
        r"""$\kappa$ and $\lambda$ for n records, checked."""
        return 0.0, 0.0

    def _declared_range(self) -> TargetRange | None:
        """The range of the targets, or None where it is to be released."""
        return declared_range(self.target_bound, centred=self._centred, costs=self._of_costs)

    @property
    def _centred(self) -> bool:
        """Whether the middle of the range is taken off the targets."""
        return bool(self.fit_intercept) and not self._of_costs

    def _against_narrowing(self) -> str | None:
        """Why the range of the targets is not replaced by a released, smaller one within it; None: it may be."""
        return None

    def _taken_as_public(self, target_range: TargetRange) -> list[str]:
        """Lines on a range that was given."""
        low, high = self._ends(target_range)
        return [f"targets between {low:g} and {high:g}; others are truncated"]

    def _residual_bound(self, target_range: TargetRange) -> float:
        """Of the loss, in target units."""
        return target_range.half

    def _loss(self, target_range: TargetRange, unit: float) -> LinearLoss:
        """The loss on rows of norm at most 1, of targets in this unit."""
        return LeastSquares(feature_norm=1.0, residual_bound=self._residual_bound(target_range) / unit)

    def _limit(self, target_range: TargetRange) -> float:
        """At plus and minus which targets are truncated, once they are centred."""
        return target_range.half

    def _ends(self, target_range: TargetRange) -> tuple[float, float]:
        """Where predictions lie."""
        return target_range.ends

    def _unit(self, target_range: TargetRange) -> tuple[float, float | None]:
        """In what unit targets are trained on, and their bound in it: B itself where it was released, for plans must not depend on it."""
        return (1.0, target_range.half) if target_range.statement is None else (target_range.half, 1.0)

    def _correction(self, records: int, budget: PrivacyBudget, users: Users) -> LevelRelease | None:
        """What is released after the training, to correct it."""
        return None

    def _in_target_units(self, coefficients: Array, intercept: float, target_range: TargetRange, unit: float) -> tuple[Array, float]:
        """Weights (d,) and intercept of the predictions, of those that were trained on targets in a unit."""
        return unit * coefficients, unit * intercept + target_range.centre

    def fit(self, X: Any, y: Any, sample_weight: Any = None, users: Any = None) -> Self:
        """Train on records X of shape (n, d), an array, a frame or a CSR table, with targets y of shape (n,).

        Args:
            X: features; or a table in blocks: a table of `lethe.partitions`, or a DataFrame or an Array of Dask.
            y: targets; of a table in blocks the name of their column, or a collection of Dask in the same partitions.
            sample_weight, users: as of `PrivateClassifier.fit`.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        table, targets, grouped, records, chance = self._read(X, y, sample_weight, users)
        ridge, l1 = self._penalties(records)
        budget, target_range = self._budget(records), self._declared_range()
        if target_range is None and grouped is not None:
            raise row_by_row('target_bound = "auto"', "the range of the targets, a number or a pair")
        public = [] if target_range is None else self._taken_as_public(target_range)
        public_range, no_narrowing, options = target_range, self._against_narrowing(), options_of(self)
        if targets is None:
            no_narrowing = "the table is in blocks"
        elif grouped is not None:
            no_narrowing = "the moments are released from single rows, of which one user may have many"
        may_choose = options.mechanism == "auto"
        cost = narrowing_cost(
            options.narrow_range, target_range, records, budget, may_choose=may_choose, against=no_narrowing, costs=self._of_costs
        )
        narrows = cost is not None
        if narrows:
            target_range = None
        else:
            if declared_switch("narrow_range", options.narrow_range):
                public.append(
                    f"that range is not narrowed, though asked for: {records} records tell nothing of it at this epsilon; it cost nothing"
                )
            cost = range_cost(records, budget, costs=self._of_costs) if target_range is None else None
        # A range that is yet to be released is planned with as [-1, 1]: in units of its half width the plan is the same for all ranges.
        planned_range = target_range or TargetRange(centre=0.0, half=1.0, statement=cost)
        unit, bound = self._unit(planned_range)
        correction = self._correction(records, budget, grouped)
        train = self._plan(
            table,
            self._loss(planned_range, unit),
            budget=budget,
            chance=chance,
            users=grouped,
            sample_weight=sample_weight,
            alpha=ridge,
            l1=l1 / unit,
            target_bound=bound,
            costs=[
                release_cost
                for release_cost in (planned_range.statement, None if correction is None else correction.cost)
                if release_cost is not None
            ],
            keeps_loss=self._keeps_loss or (self._of_costs and correction is None),
        )
        settings: dict[str, Any] = {"centred": self._centred, "costs": self._of_costs, "generator": chance.norm}
        if narrows:
            assert targets is not None
            assert public_range is not None
            target_range = narrowed_range(targets, public_range, budget, **settings)
            low, high = self._ends(target_range)
            done = (
                "leave that range as it is"
                if target_range.half == public_range.half
                else f"narrow that range to between {low:g} and {high:g}"
            )
            public.append(f"NOT public, but released: the {'sizes' if self._of_costs else 'moments'} of the targets {done}")
        elif target_range is None:
            target_range = released_range(BlockColumns(table, targets_of) if targets is None else targets, budget, **settings)
        if target_range.statement is not None:
            budget = budget.with_spent(target_range.statement)
        unit, _ = self._unit(target_range)
        centred = Centred(centre=target_range.centre, limit=self._limit(target_range), unit=unit)
        of_loss = centred if targets is None else centred(targets)
        corrected = None if correction is None else partial(correction, generator=chance.mechanism)
        coefficients, intercepts = train(
            of_loss, self._loss(target_range, unit), budget=budget, public=public, l1=l1 / unit, corrected=corrected
        )
        self.target_range_ = self._ends(target_range)
        if narrows and public_range is not None:  # not beyond the given ends by rounding: what is above 0 stays so
            (low, high), (lowest, highest) = self.target_range_, self._ends(public_range)
            self.target_range_ = max(low, lowest), min(high, highest)
        self._release(*self._in_target_units(coefficients[:, 0], float(intercepts[0]), target_range, unit))
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any, users: Any) -> tuple[Any, Array | None, Users, int, RandomSources]:
        """The table, its targets, None where it is in blocks, whose its rows are, how many records or users, and the randomness."""
        blocks = table_in_blocks(X, y, weights_and_users=(sample_weight, users))
        if blocks is not None:
            table: Any = examined(self, blocks, targets=True)
            return table, None, *self._grouped(users, table)
        table, targets = read_table_and_targets(self, X, y, numeric=True, **SPARSE)
        return table, targets, *self._grouped(users, table)

    def predict(self, X: Any) -> Array:
        """Predicted targets, shape (n,), within `target_range_`."""
        return np.clip(self._scores(X) + self.intercept_, *self.target_range_)


class LinearRegression(PrivateRegressor):
    """Least squares without a penalty of its own.

    Args: as of `PrivateRegressor`.

    Examples:
        >>> import numpy as np
        >>> from lethe.estimators import LinearRegression
        >>> X = np.random.default_rng(0).random((500, 3)) / 2
        >>> y = X @ [1.0, 0.0, 0.5]
        >>> model = LinearRegression(epsilon=2.0, delta=1e-4, feature_norm=1.0, target_bound=1.0).fit(X, y)
        >>> model.epsilon_ <= 2.0, model.coef_.shape
        (True, (3,))
    """


_AGAINST_WHITENING = "an l1 penalty on the weights of whitened rows would leave no weight of a feature at zero"


@with_constructor
class PenalisedRegressor(PrivateRegressor):
    r"""Least squares with a penalty of strength alpha, $\kappa = \text{alpha}/n$ where a class says nothing else."""

    alpha: float = 1.0

    def _penalties(self, records: int) -> tuple[float, float]:
        return require_nonnegative("alpha", self.alpha, allow_infinity=False) / records, 0.0


class Ridge(PenalisedRegressor):
    r"""Least squares with $\kappa = \text{alpha}/n$: scikit-learn's Ridge, whose sum of squares is $2n$ times ours.

    Args:
        alpha: $\ge 0$.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateEstimator`.
        target_bound, feature_norm, fit_intercept: as of `PrivateRegressor`.

    Examples:
        >>> import numpy as np
        >>> from lethe.estimators import Ridge
        >>> X = np.random.default_rng(0).random((500, 3)) / 2
        >>> model = Ridge(alpha=0.01, epsilon=2.0, delta=1e-4, feature_norm=1.0, target_bound=1.0).fit(X, X[:, 0])
        >>> model.coef_.shape
        (3,)
    """


class Lasso(PenalisedRegressor):
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
class ElasticNet(PenalisedRegressor):
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
