"""PrivateTransformer, base class of private preprocessing; and a private StandardScaler and clipper of columns, by private quantiles.

Called by users as steps of a pipeline; ordinary scalers would release means and maxima of private records without noise. PCA and whitening
(moments.py) derive from `PrivateTransformer`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import as_number, outside
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_up
from lethe.certificates.findings import enforced
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.ranges import private_ranges, released_norm
from lethe.estimators.inputs.tables import FEWEST_RECORDS, FLOATS, read_rows, read_table
from lethe.estimators.partitioned.tables import columns_of, examined, norms_of, projected, standardised, transformed
from lethe.estimators.private_estimator import PrivateEstimator, with_constructor
from lethe.mechanisms.base import Array, target_mu
from lethe.mechanisms.standardise import standardise
from lethe.mechanisms.tables import ordered_bounds
from lethe.partitions.dask_tables import table_in_blocks

Generator = np.random.Generator | None


def gaussian_cost(goal: Guarantee) -> GDP:
    """What a Gaussian mechanism costs at most that is calibrated to a goal, whatever its sensitivity, with which rounding differs."""
    return GDP(round_up(target_mu(goal), 1e-12))


class PrivateTransformer(TransformerMixin, PrivateEstimator):
    r"""A transformation of single rows whose numbers are $(\epsilon, \delta)$-differentially private.

    `fit` takes records X of shape (n, d), or a table in blocks, and uses no y, which of the latter may be the name of a column that is no
    feature; of what cannot be used nothing is released. `transform` treats every row by itself, so what is fitted afterwards on the same
    records composes with it: `privacy_of(pipeline)` adds up.

    Args: as of `PrivateEstimator`; random_state matters only with seed_noise.
    Attributes: those of `PrivateEstimator`.
    """

    def _start(self, X: Any, y: Any = None) -> tuple[Any, PrivacyBudget, Generator]:
        """The table, checked, or in blocks and looked through, the whole budget, and the source of the noise; y as of `fit`."""
        blocks = table_in_blocks(X, y if isinstance(y, str) else None, targets=False)
        table = self._table(X, reset=True) if blocks is None else examined(self, blocks, targets=False)
        generator = self._randomness(table.shape[0], stored_order=blocks is not None).norm
        return table, self._budget(table.shape[0]), generator

    def _quantiles(
        self, table: Any, *, tail: float, wider: float, share: GDP, give: str, generator: Generator
    ) -> tuple[Array, Array, Statement]:
        """The range between two quantiles of every column, made `wider` times as wide around its middle, and what it costs."""
        ranges = private_ranges(
            columns_of(table),
            tail=tail,
            share=share,
            name=f"ranges of {table.shape[1]} columns (their {tail:g} and {1.0 - tail:g} quantiles)",
            give=give,
            neighbours=self.neighbours,
            generator=generator,
        )
        middle, half = (ranges.low + ranges.high) / 2.0, wider * (ranges.high - ranges.low) / 2.0
        return middle - half, middle + half, ranges.statement

    def _apply(self, X: Any, function: Callable[[], Callable[[Any], Any]], *, width: int | None = None) -> Any:
        """Rows transformed by what `function` makes, which must pickle; a table in blocks as it is read, to `width` columns."""
        check_is_fitted(self)
        blocks = table_in_blocks(X, targets=False)
        if blocks is None:
            return function()(self._table(X, reset=False))
        fitted: Any = self
        names = tuple(getattr(self, "feature_names_in_", range(fitted.n_features_in_)))
        return transformed(blocks, function(), names, width=width)

    def _table(self, X: Any, *, reset: bool) -> Any:
        min_records, sparse = FEWEST_RECORDS if reset else 1, "csr" if get_tags(self).input_tags.sparse else False
        return read_table(self, X, reset=reset, accept_sparse=sparse, dtype=FLOATS, ensure_min_samples=min_records)


_BOUNDS_SHARE = 0.5  # of the squared mu, for private bounds
_TAIL, _WIDER = 0.05, 1.5
# Least standard deviations, in half widths. A tenth of the records is at the 0.05 and 0.95 quantiles or beyond, at two thirds of the half
# width: so 0.2 holds for released bounds by itself, but for a column almost constant, whose rare values would come out enormous.
_SMALLEST, _LEAST_RELEASED = 0.01, 0.2
_DECLARED = {"public bounds": "a parameter, taken as public"}
_RELEASED = {"public bounds": "released before, by the code, and counted"}
_NEEDED = '"auto", or a pair (low, high) of numbers or of lists with one a column'
_NORM_SHARE = 0.2  # of the squared mu, where columns are clipped as well
_DOWN = 1.0 - 1e-11  # what composing thousands of columns rounds up by


@with_constructor
class PrivateStandardScaler(OneToOneFeatureMixin, PrivateTransformer):
    r"""Columns clipped to bounds, minus a private mean, over a private standard deviation.

    Tables must be dense: taking a mean off leaves no zeros.

    Args:
        bounds: a public pair (low, high), numbers or one a column, or "auto": one and a half times the range between two private
            quantiles of each column, for half of the budget (in squared mu).
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateTransformer`.
    Attributes: those of `PrivateTransformer`, and `low_`, `high_`, `mean_`, `scale_`, `var_`, each of shape (d,).

    Examples:
        >>> import numpy as np
        >>> from lethe.estimators import PrivateStandardScaler
        >>> X = np.random.default_rng(0).random((500, 3))
        >>> scaler = PrivateStandardScaler(epsilon=1.0, delta=1e-4, bounds=(0.0, 1.0)).fit(X)
        >>> scaler.transform(X).shape
        (500, 3)
    """

    bounds: Any = "auto"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release bounds where they are not given, then means and scales: in blocks these are one pass, and bounds three more."""
        table, budget, generator = self._start(X, y)
        records, columns = table.shape
        declared, parts = self._declared(columns), list[Statement]()
        public = [f"{columns} columns, and their names", *([] if declared is None else ["bounds of the columns"])]
        self._pay(budget.as_gaussian, budget, records)
        if declared is None:
            share = budget.share(_BOUNDS_SHARE)
            options: dict[str, Any] = {"tail": _TAIL, "wider": _WIDER, "give": "bounds=(low, high)"}
            low, high, cost = self._quantiles(table, share=share, generator=generator, **options)
            parts, budget = [cost], budget.with_spent(cost)
        else:
            low, high = declared
        standardised = standardise(
            table,
            low=low,
            high=high,
            target=budget.settle(gaussian_cost),
            neighbours=self.neighbours,
            records=records,
            least_scale=_LEAST_RELEASED if parts else _SMALLEST,
            generator=generator,
        )
        moments = replace(standardised.statement, findings=enforced(standardised.statement.findings, _RELEASED if parts else _DECLARED))
        self.low_, self.high_, self.mean_, self.scale_ = standardised.low, standardised.high, standardised.mean, standardised.scale
        self.var_ = np.square(standardised.scale)
        how = "given bounds" if not parts else f"bounds released for {_BOUNDS_SHARE:g} of the squared mu"
        self._state([*parts, moments], budget, records, why=[f"noisy moments within {how}"], public=public)
        return self

    def _declared(self, columns: int) -> tuple[Array, Array] | None:
        """The bounds given as public, or None where they are to be released."""
        bounds = self.bounds
        if isinstance(bounds, str) and bounds == "auto":
            return None
        if isinstance(bounds, str) or not hasattr(bounds, "__len__") or len(bounds) != 2:
            raise outside("bounds", bounds, _NEEDED)
        remedy = 'give bounds known without looking at the data, or bounds="auto": private quantiles, paid for'
        return ordered_bounds("bounds[0]", bounds[0], "bounds[1]", bounds[1], columns, remedy=remedy)

    def transform(self, X: Any) -> Any:
        """Rows clipped and standardised, shape (n, d); a table in blocks is one again, whose blocks are standardised as they are read."""
        return self._apply(X, lambda: partial(standardised, low=self.low_, high=self.high_, mean=self.mean_, scale=self.scale_))

    def inverse_transform(self, X: Any) -> Array:
        """Rows in the units they came in, shape (n, d); what was clipped stays clipped."""
        check_is_fitted(self)
        return read_rows(X) * self.scale_ + self.mean_


@with_constructor
class PrivateQuantileClipper(OneToOneFeatureMixin, PrivateTransformer):
    r"""Columns clipped between two private quantiles, then rows projected on the ball of a private norm and divided by it.

    With `norm_quantile` rows come out with norm at most 1, by construction: an estimator behind it takes feature_norm=1.0 as a fact, and
    pays for no quantile of its own. A CSR table is taken where only rows are clipped, since clipping columns would leave no zeros.

    Args:
        tail: in (0, 1/2): columns are clipped at the `tail` and `1 - tail` quantiles; None: they are not.
        norm_quantile: in (0, 1): rows are projected on that quantile of their norms; None: they are not.
        epsilon, delta, neighbours, random_state, seed_noise, ledger, options: as of `PrivateTransformer`.
    Attributes: those of `PrivateTransformer`; `low_` and `high_`, of shape (d,), or None; `feature_norm_`, or None.
    """

    tail: float | None = 0.05
    norm_quantile: float | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.tail is None
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the quantiles."""
        tail, level = _level("tail", self.tail, 0.5), _level("norm_quantile", self.norm_quantile, 1.0)
        if tail is None and level is None:
            raise InputError(
                "tail = None and norm_quantile = None: there is nothing to clip at.",
                source="the parameters tail and norm_quantile",
                remedy="give one of them, such as norm_quantile=0.75",
            )
        table, budget, generator = self._start(X, y)
        low = high = norm = None
        records, columns = table.shape
        self._pay(budget.as_gaussian, budget, records)
        of_norms = 0.0 if level is None else _NORM_SHARE if tail is not None else 1.0
        mu, parts = budget.total_mu, list[Statement]()
        if tail is not None:
            share = GDP(mu * (1.0 - of_norms) ** 0.5 * _DOWN)
            give = "by a PublicScaler in its place"
            low, high, cost = self._quantiles(table, tail=tail, wider=1.0, share=share, give=give, generator=generator)
            parts.append(cost)
        if level is not None:
            share, norms = GDP(mu * of_norms**0.5 * _DOWN), norms_of(table, low, high)
            norm, cost = released_norm(norms, quantile=level, share=share, neighbours=self.neighbours, generator=generator)
            parts.append(cost)
        # All at once: where a pass fails, what was found before it is not released.
        self.low_, self.high_, self.feature_norm_ = low, high, norm
        self._state(parts, budget, records, why=["private quantiles"], public=[f"{columns} columns, and their names"])
        return self

    def transform(self, X: Any) -> Any:
        """Rows clipped, shape (n, d), a CSR table if they came as one; a table in blocks is one again, clipped as it is read."""
        return self._apply(X, lambda: partial(projected, low=self.low_, high=self.high_, norm=self.feature_norm_))


def _level(name: str, value: Any, high: float) -> float | None:
    if value is None:
        return None
    needed = f"a number above 0 and below {high:g}, or None"
    number = as_number(name, value, needed)
    if not 0.0 < number < high:
        raise outside(name, value, needed)
    return number
