"""Private regression by least squares: what the regressors share, linear regression and ridge."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from lethe.calculus.domains import require_nonnegative
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.targets import TargetRange, declared_range, range_cost, released_range
from lethe.estimators.inputs.users import row_by_row
from lethe.estimators.inputs.validation import declared_switch, table_and_targets
from lethe.estimators.models.linear_model import PrivateLinearModel
from lethe.estimators.models.narrowed_range import PlannedNarrowing, narrowed_range, planned_narrowing
from lethe.estimators.options import options_of
from lethe.estimators.partitioned.gathered import BlockColumns
from lethe.estimators.partitioned.tables import examined_numbers
from lethe.estimators.partitioned.targets import Centred
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import table_in_blocks
from lethe.run.losses import LeastSquares


class PrivateRegressor(RegressorMixin, PrivateLinearModel):
    r"""Base class of the private regressors.

    $$\min_w \frac1n\sum_i w_i\,l_B(\langle w, x_i\rangle - y_i) + \frac\kappa2\|w\|^2 + \lambda\|w\|_1,$$

    as far as privacy and the mechanism allow; $l_B$ is half the square, and its tangent where the residual is beyond $\pm B$. Targets are
    centred on the middle of their range and truncated at its ends; B is half of it. The penalty is also on the intercept, which the
    centring keeps small. Predictions are truncated at the ends as targets are, which brings none further from a truncated target.

    Args:
        target_bound: where targets lie: a public number B for $\pm B$, a public pair (low, high), or "auto": one and a half times the
            range between two private quantiles, paid for with 5 % of the budget (in squared mu), or up to 30 % where records are few.
    Attributes: those of `PrivateLinearModel`, and `target_range_`, (low, high): released, public, or public and narrowed.
    """

    target_bound: Any = "auto"

    takes_options: ClassVar[frozenset[str]] = PrivateLinearModel.takes_options | {"narrow_range"}
    _frame_of_targets = True  # of one column, without a warning, as in scikit-learn's least squares

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
        return declared_range(self.target_bound, centred=bool(self.fit_intercept))

    def _against_narrowing(self) -> str | None:
        """Why a range of a model like this one cannot be narrowed; None: it can."""
        return None

    def _narrowing(
        self, given: TargetRange | None, records: int, budget: PrivacyBudget, *, by_users: bool, in_blocks: bool
    ) -> PlannedNarrowing | None:
        """What is to be released to narrow the given range by; None: nothing."""
        against, asked = self._against_narrowing(), options_of(self)
        if in_blocks:
            against = "the table is in blocks"
        elif by_users:
            against = "the moments are released from single rows, of which one user may have many"
        return planned_narrowing(
            asked.narrow_range, given, records, budget, may_choose=asked.mechanism == "auto", against=against, neighbours=self.neighbours
        )

    def _taken_as_public(self, known: TargetRange) -> list[str]:
        """Lines on a range that was given."""
        return [f"targets between {known.centre - known.half:g} and {known.centre + known.half:g}; others are truncated"]

    def _loss(self, known: TargetRange) -> LeastSquares:
        """The loss on rows of norm at most 1."""
        return LeastSquares(feature_norm=1.0, residual_bound=known.half)

    def _limit(self, known: TargetRange) -> float:
        """At plus and minus which targets are truncated, once they are centred."""
        return known.half

    def _ends(self, known: TargetRange) -> tuple[float, float]:
        """Where predictions lie."""
        return known.centre - known.half, known.centre + known.half

    def _unit(self, known: TargetRange) -> tuple[float, float | None]:
        """In what unit targets are trained on, and their bound in it: B itself where it was released, for plans must not depend on it."""
        return (1.0, known.half) if known.statement is None else (known.half, 1.0)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, users: Any = None) -> Self:
        """Train on records X of shape (n, d), an array, a frame or a CSR table, with targets y of shape (n,).

        Args:
            X: features; or a table in blocks: a table of `lethe.partitions`, or a DataFrame or an Array of Dask.
            y: targets; of a table in blocks the name of their column, or a collection of Dask in the same partitions.
            sample_weight: at most max_weight each; None: all 1. They are private. Of a table in blocks the name of their column.
            users: the id of each row's user, whole numbers or texts: the certificate is then by users, all of whose rows may change
                together. A user's loss is the mean over its rows. Only runs train so; bounds need to be given. None: by records. Of a
                table in blocks the name of their column, and full batches alone.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        blocks, targets = table_in_blocks(X, y, beside=(sample_weight, users)), None
        if blocks is None:
            table, targets = table_and_targets(self, X, y, numeric=True, frame=self._frame_of_targets)
        else:
            table = examined_numbers(self, blocks)
        grouped, records, chance = self._grouped(users, table)
        ridge, l1 = self._penalties(records)
        budget = self._budget(records)
        known = self._declared_range()
        if known is None and grouped is not None:
            raise row_by_row('target_bound = "auto"', "the range of the targets, a number or a pair")
        public = [] if known is None else self._taken_as_public(known)
        narrowing = self._narrowing(known, records, budget, by_users=grouped is not None, in_blocks=blocks is not None)
        if narrowing is None and declared_switch("narrow_range", options_of(self).narrow_range):
            public.append(
                f"that range is not narrowed, though asked for: {records} records tell nothing of it at this epsilon; it cost nothing"
            )
        if narrowing is not None:
            cost, known = narrowing.cost, None
        elif known is None:
            cost = range_cost(records, budget, neighbours=self.neighbours)
        else:
            cost = None
        # A range that is to be released stands for itself by one of half width 1, in whose units the plan is the same for all.
        ahead = known or TargetRange(centre=0.0, half=1.0, statement=cost)
        planned_loss = self._loss(ahead)
        unit, bound = self._unit(ahead)
        planned = self._plan(
            table,
            _in_units(planned_loss, unit),
            budget=budget,
            alpha=ridge,
            l1=l1 / unit,
            target_bound=bound,
            range_cost=ahead.statement,
            sample_weight=sample_weight,
            users=grouped,
        )
        settings: dict[str, Any] = {"centred": bool(self.fit_intercept), "neighbours": self.neighbours, "generator": chance.norm}
        if narrowing is not None:
            assert targets is not None
            known = narrowed_range(targets, narrowing, budget, **settings)
            public.append(_released_beside(narrowing.given, known))
        elif known is None:
            known = released_range(BlockColumns(table, target=True) if targets is None else targets, budget, **settings)
        if known.statement is not None:
            budget = budget.with_spent(known.statement)
        loss, (unit, _) = self._loss(known), self._unit(known)
        centred = Centred(centre=known.centre, limit=self._limit(known), unit=unit)
        coefficients, intercepts = self._train(
            planned,
            table,
            centred if targets is None else centred(targets),
            _in_units(loss, unit),
            budget=budget,
            chance=chance,
            alpha=ridge,
            l1=l1 / unit,
            users=grouped,
            public=public,
        )
        ends = self._ends(known)
        if narrowing is not None:  # not beyond the given ends by rounding: what is above 0 stays so
            lowest, highest = self._ends(narrowing.given)
            ends = max(ends[0], lowest), min(ends[1], highest)
        self.target_range_ = ends
        self._release(unit * coefficients[:, 0], unit * float(intercepts[0]) + known.centre)
        return self

    def predict(self, X: Any) -> Array:
        """Predicted targets, shape (n,), within `target_range_`."""
        return np.clip(self._scores(X) + self.intercept_, *self.target_range_)


def _released_beside(given: TargetRange, known: TargetRange) -> str:
    """A line of the report below the one on the range that was given."""
    if known.half == given.half:
        return "NOT public, but released: the moments of the targets leave that range as it is"
    low, high = known.centre - known.half, known.centre + known.half
    return f"NOT public, but released: the moments of the targets narrow that range to between {low:g} and {high:g}"


def _in_units(loss: LeastSquares, unit: float) -> LeastSquares:
    return LeastSquares(feature_norm=1.0, residual_bound=loss.residual_bound / unit)


class LinearRegression(PrivateRegressor):
    """Least squares without a penalty of its own."""


class Ridge(PrivateRegressor):
    r"""Least squares with $\kappa = \text{alpha}/n$: scikit-learn's Ridge, whose sum of squares is $2n$ times ours.

    Args:
        alpha: $\ge 0$.
    """

    alpha: float = 1.0

    def _penalties(self, records: int) -> tuple[float, float]:
        return require_nonnegative("alpha", self.alpha, allow_infinity=False) / records, 0.0
