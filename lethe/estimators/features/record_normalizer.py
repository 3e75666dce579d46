"""Each record by its own mean, spread and norm."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.tables import read_table

_ENTRIES = 2**20  # of a block
_EPS = float(np.finfo(np.float64).eps)
_SHORTEST, _LONGEST = 1e-30, 1e30
_INWARD_SINGLE = 1.0 - 1e-6  # float32 rounds every entry


class RecordNormalizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Every record by itself: groups of its features to mean 0 and variance 1, then the whole record to one norm; nothing is learned.

    $$x_g \mapsto \frac{x_g - \bar x_g}{\sqrt{\mathrm{var}(x_g) + s}},\qquad x \mapsto R\,\frac{x}{\|x\|}.$$

    With a norm R a model behind it takes feature_norm=R as a fact: rows have norm at most R, rounding included. A record of zeros stays 0.

    Args:
        norm: R, from 1e-30 to 1e30; None: lengths stay as they are.
        groups: into how many groups of as many neighbouring columns each record is divided: of channels that come one after the other, 1
            is layer normalisation, their number is instance normalisation. None: no means and spreads are taken.
        smoothing: s > 0, so that a constant group becomes 0.
    Attributes: `n_features_in_`, `feature_names_in_`.
    Reference: Wu, He 2018, Group normalization, arXiv:1803.08494v3.
    """

    def __init__(self, norm: float | None = 1.0, *, groups: int | None = None, smoothing: float = 1e-5) -> None:
        self.norm = norm
        self.groups = groups
        self.smoothing = smoothing

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the columns.

        Args:
            X: records, shape (n, d).
            y: not used.
        Raises:
            InputError, ValueError: a table or parameters that cannot be used.
        """
        self._parameters(self._read(X, reset=True).shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """The records normalised, shape (n, d), of their own floating-point type.

        Args:
            X: records, shape (n, d).
        Raises:
            InputError, ValueError: a table or parameters that cannot be used.
        """
        rows = self._read(X, reset=False)
        norm, groups, smoothing = self._parameters(rows.shape[1])
        found = np.empty_like(rows)
        size = max(1, _ENTRIES // rows.shape[1])
        inward = _INWARD_SINGLE if rows.dtype == np.float32 else 1.0 - (rows.shape[1] + 16) * _EPS
        for first in range(0, len(rows), size):
            part = rows[first : first + size].astype(np.float64)
            if groups is not None:
                split = part.reshape(len(part), groups, -1)
                split = split - split.mean(axis=2, keepdims=True)
                part = (split / np.sqrt(np.square(split).mean(axis=2, keepdims=True) + smoothing)).reshape(part.shape)
            if norm is not None:
                lengths = np.sqrt(np.square(part).sum(axis=1, keepdims=True))
                part *= norm * inward / np.where(lengths > 0.0, lengths, np.inf)
            found[first : first + size] = part
        return found

    def _parameters(self, columns: int) -> tuple[float | None, int | None, float]:
        norm = None if self.norm is None else require_positive("norm", self.norm)
        if norm is not None and not _SHORTEST <= norm <= _LONGEST:
            raise outside("norm", norm, f"None, or a number from {_SHORTEST:g} to {_LONGEST:g}, which float32 holds")
        groups = None if self.groups is None else require_count("groups", self.groups, low=1, high=10**9)
        if groups is not None and columns % groups:
            raise InputError(
                f"groups = {groups}: {columns} columns cannot be divided into as many groups of one size.",
                source="the parameter groups",
                remedy="give a divisor of the number of columns, such as the number of channels",
            )
        return norm, groups, require_positive("smoothing", self.smoothing)

    def _read(self, X: Any, *, reset: bool) -> Any:
        return read_table(self, X, reset=reset, dtype=[np.float64, np.float32])
