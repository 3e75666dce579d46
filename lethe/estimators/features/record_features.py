"""Features of records of a table, each by itself: random Fourier features, and records by their own mean, spread and norm."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.tables import FLOATS, read_table
from lethe.mechanisms.base import Array

_ENTRIES = 2**20  # of a block
_EPS = float(np.finfo(np.float64).eps)
_SHORTEST, _LONGEST = 1e-30, 1e30
_INWARD = 1.0 - 1e-6  # float32 rounds every entry: the norm of a row stays at most what it should be


@dataclass(eq=False, repr=False)
class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""$z(x) = k^{-1/2}(\cos\langle w_i, x\rangle, \sin\langle w_i, x\rangle)_{i \le k}$ with $w_i \sim N(0, 2\gamma I)$, not
    learned.

    $\langle z(x), z(y)\rangle$ has the mean $\exp(-\gamma\|x - y\|^2)$, and is off by more than t with probability at most
    $2\exp(-kt^2/2)$. Every row has norm 1 (at most 1, rounding included), so a model behind it takes feature_norm=1.0 as a fact. `fit`
    draws the frequencies by the number of columns and the seed, which are public, so `privacy_of` counts it as free.

    Args:
        n_frequencies: k, at least 1; 2k features come out.
        gamma: $\gamma$ > 0 of the kernel. A number known without the records: one read off them would not be free.
        seed: of the frequencies, public.
    Attributes: `frequencies_`, shape (d, k), float64; `n_features_in_`, `feature_names_in_`.
    Reference: Rahimi, Recht 2007, Random features for large-scale kernel machines, NIPS; Sutherland, Schneider 2015, arXiv:1506.02785v1.
    """

    n_frequencies: int = 500
    _: KW_ONLY
    gamma: float = 1.0
    seed: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the frequencies, of records, shape (n, d); y is not used."""
        count = require_count("n_frequencies", self.n_frequencies, high=10**7)
        scale = float(np.sqrt(2.0 * require_positive("gamma", self.gamma)))
        drawn = np.random.default_rng(require_count("seed", self.seed, low=0, high=2**63 - 1))
        columns = read_table(self, X, dtype=FLOATS).shape[1]
        self.frequencies_: Array = scale * drawn.standard_normal((columns, count))
        self._n_features_out = 2 * count
        return self

    def transform(self, X: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The features, shape (n, 2k), float32: all cosines, then all sines; a block of records at a time."""
        check_is_fitted(self)
        rows = read_table(self, X, reset=False, dtype=FLOATS)
        half = self.frequencies_.shape[1]
        factor = _INWARD / np.sqrt(half)
        features = np.empty((len(rows), 2 * half), dtype=np.float32)
        size = max(1, _ENTRIES // max(2 * half, rows.shape[1]))
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            phases = rows[part].astype(np.float64, copy=False) @ self.frequencies_
            features[part, :half] = factor * np.cos(phases)
            features[part, half:] = factor * np.sin(phases)
        return features


@dataclass(eq=False, repr=False)
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

    norm: float | None = 1.0
    _: KW_ONLY
    groups: int | None = None
    smoothing: float = 1e-5

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the columns, of records, shape (n, d); y is not used."""
        self._parameters(read_table(self, X, dtype=FLOATS).shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """The records normalised, shape (n, d), of their own floating-point type."""
        rows = read_table(self, X, reset=False, dtype=FLOATS)
        norm, groups, smoothing = self._parameters(rows.shape[1])
        found = np.empty_like(rows)
        size = max(1, _ENTRIES // rows.shape[1])
        inward = _INWARD if rows.dtype == np.float32 else 1.0 - (rows.shape[1] + 16) * _EPS
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
