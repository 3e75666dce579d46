r"""Random Fourier features: a table whose inner products are about those of a Gaussian kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import require_count, require_positive
from lethe.estimators.inputs.tables import read_table
from lethe.mechanisms.base import Array

_ENTRIES = 2**20  # of a block
_INWARD = 1.0 - 1e-6  # float32 rounds every entry: the norm of a row stays at most 1


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

    def __init__(self, n_frequencies: int = 500, *, gamma: float = 1.0, seed: int = 0) -> None:
        self.n_frequencies = n_frequencies
        self.gamma = gamma
        self.seed = seed

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the frequencies.

        Args:
            X: records, shape (n, d).
            y: not used.
        Raises:
            InputError, ValueError: a table or parameters that cannot be used.
        """
        count = require_count("n_frequencies", self.n_frequencies, high=10**7)
        scale = float(np.sqrt(2.0 * require_positive("gamma", self.gamma)))
        drawn = np.random.default_rng(require_count("seed", self.seed, low=0, high=2**63 - 1))
        columns = self._read(X, reset=True).shape[1]
        self.frequencies_: Array = scale * drawn.standard_normal((columns, count))
        self._n_features_out = 2 * count
        return self

    def transform(self, X: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
        """The features, shape (n, 2k), float32: all cosines, then all sines; a block of records at a time.

        Args:
            X: records, shape (n, d).
        Raises:
            InputError, ValueError: a table that cannot be used, or of other columns.
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
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

    def _read(self, X: Any, *, reset: bool) -> Any:
        return read_table(self, X, reset=reset, dtype=[np.float64, np.float32])
