"""Clip columns at private quantiles, and rows at a private norm."""

from __future__ import annotations

from typing import Any, Self

from sklearn.base import OneToOneFeatureMixin
from sklearn.utils import Tags

from lethe.calculus.domains import as_number, outside
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.inputs.norms import released_norm
from lethe.estimators.partitioned.transformed import Projected
from lethe.estimators.preprocessing.bounds import released_bounds
from lethe.estimators.preprocessing.transformer import PrivateTransformer

_NORM_SHARE = 0.2  # of the squared mu, where columns are clipped as well


class PrivateQuantileClipper(OneToOneFeatureMixin, PrivateTransformer):
    r"""Columns clipped between two private quantiles, then rows projected on the ball of a private norm and divided by it.

    With `norm_quantile` rows come out with norm at most 1, by construction: an estimator behind it takes feature_norm=1.0 as a fact, and
    pays for no quantile of its own. A CSR table is taken where only rows are clipped, since clipping columns would leave no zeros.

    Args:
        tail: in (0, 1/2): columns are clipped at the `tail` and `1 - tail` quantiles; None: they are not.
        norm_quantile: in (0, 1): rows are projected on that quantile of their norms; None: they are not.
    Attributes: those of `PrivateTransformer`; `low_` and `high_`, of shape (d,), or None; `feature_norm_`, or None.
    """

    tail: float | None = 0.05
    norm_quantile: float | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.tail is None
        return tags

    def _sparse(self) -> str | bool:
        return "csr" if self.tail is None else False

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release the quantiles.

        Args:
            X: records, shape (n, d); or a table in blocks.
            y: not used; of a table in blocks it may be the name of a column that is no feature.
        Raises:
            InputError, ValueError: data or parameters that cannot be used; nothing is released then.
        """
        tail, level = _level("tail", self.tail, 0.5), _level("norm_quantile", self.norm_quantile, 1.0)
        if tail is None and level is None:
            raise InputError(
                "tail = None and norm_quantile = None: there is nothing to clip at.",
                source="the parameters tail and norm_quantile",
                remedy="give one of them, such as norm_quantile=0.75",
            )
        start = self._start(X, y)
        low = high = norm = None
        records, columns = start.table.shape
        self._pay(start.budget.as_gaussian, start.budget, records)
        share, parts = _shares(start.budget.total_mu, columns=tail is not None, rows=level is not None), list[Statement]()
        if tail is not None:
            bounds = released_bounds(
                start.columns(),
                tail=tail,
                wider=1.0,
                share=share[0],
                give="by a PublicScaler in its place",
                neighbours=self.neighbours,
                generator=start.generator,
            )
            assert bounds.statement is not None
            low, high = bounds.low, bounds.high
            parts.append(bounds.statement)
        if level is not None:
            norm, statement = released_norm(
                start.norms(low=low, high=high),
                quantile=level,
                share=share[1],
                neighbours=self.neighbours,
                generator=start.generator,
            )
            parts.append(statement)
        # All at once: where a pass fails, what was found before it is not released.
        self.low_, self.high_, self.feature_norm_ = low, high, norm
        self._state(parts, start.budget, records, why=["private quantiles"], public=[f"{columns} columns, and their names"])
        return self

    def transform(self, X: Any) -> Any:
        """Rows clipped, shape (n, d), a CSR table if they came as one; a table in blocks is one again, clipped as it is read."""
        return self._apply(X, lambda: Projected(self.low_, self.high_, self.feature_norm_))


def _level(name: str, value: Any, high: float) -> float | None:
    if value is None:
        return None
    needed = f"a number above 0 and below {high:g}, or None"
    number = as_number(name, value, needed)
    if not 0.0 < number < high:
        raise outside(name, value, needed)
    return number


def _shares(total_mu: float, *, columns: bool, rows: bool) -> tuple[GDP, GDP]:
    """What quantiles of columns and of norms may cost: squares of mu add up, rounded down."""
    part = _NORM_SHARE if columns and rows else float(rows)
    down = 1.0 - 1e-11  # what composing thousands of columns rounds up by
    return GDP(total_mu * (1.0 - part) ** 0.5 * down), GDP(total_mu * part**0.5 * down)
