"""Scale columns by ranges that everybody knows: nothing is learned, so nothing is paid for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array

from lethe.calculus.domains import require_switch
from lethe.errors import InputError
from lethe.errors.names import answering
from lethe.estimators.inputs.tables import FLOATS, read_table
from lethe.estimators.options import ABSENT
from lethe.mechanisms.base import Array
from lethe.mechanisms.tables import one_a_column

_LARGEST = 1e100


@answering(ABSENT)
@dataclass(eq=False, repr=False)
class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Columns mapped from public ranges to [-1, 1]: $x \mapsto \frac{2x - (\mathrm{low} + \mathrm{high})}{\mathrm{high} - \mathrm{low}}$.

    `fit` keeps the number and the names of the columns alone, so `privacy_of` counts it as free, and `PrivateSearch` takes it. That
    rests on the ranges being known without a look at the records: of a form, an instrument, a law. Missing entries stay missing.

    Args:
        low: where a column's range begins, a finite number, or one a column.
        high: where it ends, above low.
        clip: whether an entry beyond its range becomes -1 or 1. Otherwise it makes a long row, and a model that shortens long rows shrinks
            all the other entries of it too. Of d columns rows then have norm at most $\sqrt d$, by construction.
    Attributes: `n_features_in_`, `feature_names_in_`.
    """

    low: Any
    high: Any
    _: KW_ONLY
    clip: bool = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = self.keeps_zeros
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the ranges, and keep the columns, of records, shape (n, d); a CSR table where every range is symmetric about 0."""
        require_switch("clip", self.clip)
        self._ranges(self._rows(X, reset=True).shape[1])
        return self

    def transform(self, X: Any) -> Any:
        """Rows mapped, shape (n, d), a CSR table if they came as one."""
        rows, clips = self._rows(X, reset=False), require_switch("clip", self.clip)
        middle, half = self._ranges(rows.shape[1])
        if not isinstance(rows, np.ndarray):  # sparse: every middle is 0, so zeros stay zeros
            scaled = rows.astype(np.float64)
            entries, width = scaled.data, half[scaled.indices]
        else:
            scaled = entries = rows - middle
            width = half
        if clips:
            np.clip(entries, -width, width, out=entries)  # before a quotient could overflow
        entries /= width
        return scaled

    def inverse_transform(self, X: Any) -> Array:
        """Rows in the units they came in, shape (n, d); what was clipped stays clipped."""
        rows = np.asarray(check_array(X, dtype="float64", ensure_all_finite="allow-nan"))  # pyright: ignore[reportArgumentType]
        middle, half = self._ranges(rows.shape[1])
        return rows * half + middle

    def _rows(self, X: Any, *, reset: bool) -> Any:
        if not self.keeps_zeros and sparse.issparse(X):
            raise InputError(
                "X: got a sparse table; a range that is not symmetric about 0 would leave no zeros.",
                source="the argument X and the parameters low and high",
                remedy="give ranges from -b to b, or a dense table",
            )
        return read_table(
            self,
            X,
            reset=reset,
            accept_sparse="csr" if self.keeps_zeros else False,
            dtype=FLOATS,
            ensure_all_finite="allow-nan",
        )

    @property
    def keeps_zeros(self) -> bool:
        """Whether every range is symmetric about 0; False of what are no ranges."""
        try:
            return bool(np.all(np.asarray(self.low, dtype=np.float64) == -np.asarray(self.high, dtype=np.float64)))
        except (TypeError, ValueError):
            return False

    def _ranges(self, columns: int) -> tuple[Array, Array]:
        """The middle and half the width of each, shape (d,)."""
        remedy = "give ranges known without looking at the records, numbers or one a column"
        low, high = ordered_bounds("low", self.low, "high", self.high, columns, remedy=remedy)
        half = (high - low) / 2.0
        if not half.all():
            raise InputError("low and high: a range is too narrow for floating-point numbers.", source="the parameters low and high")
        return (low + high) / 2.0, half


def ordered_bounds(name: str, low: Any, other: str, high: Any, columns: int, *, remedy: str) -> tuple[Array, Array]:
    """Public bounds of d columns, low and high, shape (d,) each, from a number or one a column; low must be below high."""
    lower, upper = one_a_column(name, low, columns), one_a_column(other, high, columns)
    wrong = ~((lower >= -_LARGEST) & (lower < upper) & (upper <= _LARGEST))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{name} and {other} of column {first}: got {lower[first]:g} and {upper[first]:g}; low must be below high, both within 1e100.",
            source=f"the parameters {name} and {other}",
            remedy=remedy,
        )
    return lower, upper
