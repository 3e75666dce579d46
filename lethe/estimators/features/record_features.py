r"""Features of records of a table, each by itself: random Fourier features, records by their own mean, spread and norm, and whitening.

Users put these before a private model in a pipeline (`lethe.features`); a step that treats each record by itself and learns nothing keeps
neighbours (data sets that differ in one record) neighbours. The whitening is shared with `PrivateWhitening` (moments.py) and with
whitened_rows.py, whose mean m and covariance are released ones.

Channels are centred and whitened by a mean and a covariance: the same C x C matrix at every position of every record.

$$z_p \mapsto V\,\mathrm{diag}\bigl(\max(\lambda, f)^{-1/2}\bigr)V^\top(z_p - m),$$

with $\Sigma = V\,\mathrm{diag}(\lambda)V^\top$. The square root that is symmetric leaves every channel as near to itself as whitening can.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from lethe.calculus.domains import outside, require_count, require_positive, require_switch
from lethe.errors import InputError
from lethe.estimators.features.images import ImageFeatures, synthetic_images
from lethe.estimators.inputs.tables import FLOATS, read_table
from lethe.mechanisms.base import Array
from lethe.mechanisms.moments import positions_of

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


class RecordTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A transformer of single records that needs no fit, and gives them back in their own floating-point type."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(eq=False, repr=False)
class RecordNormalizer(RecordTransformer):
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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the columns, of records, shape (n, d); y is not used."""
        self._parameters(read_table(self, X, dtype=FLOATS).shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """The records normalised, shape (n, d), of their own floating-point type."""
        rows = read_table(self, X, reset=False, dtype=FLOATS)
        norm, groups, smoothing = self._parameters(rows.shape[1])
        transformed = np.empty_like(rows)
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
            transformed[first : first + size] = part
        return transformed

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whitening:
    """What is done to every position."""

    mean: Array  # m, shape (C,)
    matrix: Array  # shape (C, C), symmetric

    def apply(self, table: Any) -> np.ndarray[Any, Any]:
        """Records of shape (n, C P), all positions of the first channel, then of the next, whitened, of their own floating-point type."""
        channels = len(self.mean)
        # A matrix on the left of all positions: m goes off by way of its product.
        matrix, offset = self.matrix.astype(table.dtype), (self.matrix @ self.mean).astype(table.dtype)
        whitened = np.empty_like(table, order="C")
        size = max(1, _ENTRIES // table.shape[1])
        for first in range(0, len(table), size):
            part = np.ascontiguousarray(table[first : first + size]).reshape(-1, channels, table.shape[1] // channels)
            whitened[first : first + size] = (matrix @ part - offset[:, None]).reshape(len(part), -1)
        return whitened


def whitening_of(mean: Array, covariance: Array, *, floor: float) -> Whitening:
    """The whitening by a mean, shape (C,), and a covariance, shape (C, C), which may have negative eigenvalues; least is f > 0."""
    values, vectors = np.linalg.eigh(covariance)
    return Whitening(mean=mean, matrix=(vectors / np.sqrt(np.maximum(values, floor))) @ vectors.T)


def noise_floor(covariance: Array, noise_std: float, *, share: float) -> float:
    r"""f, the larger of a share of the mean eigenvalue and of $\sqrt{2C}\,\tau$, about the noise's largest, $\tau$ of a diagonal entry."""
    channels = len(covariance)
    return max(share * max(float(np.trace(covariance)), 0.0) / channels, math.sqrt(2.0 * channels) * noise_std)


@dataclass(eq=False, repr=False)
class PublicWhitening(RecordTransformer):
    r"""Channels centred and whitened, the same at every position, by a mean and a covariance that everybody may know.

    $z_p \mapsto \Sigma_f^{-1/2}(z_p - m)$ for the C channels of every position, with no eigenvalue below $f\,\mathrm{tr}\Sigma/C$.
    `fit` keeps the number and the names of the columns alone, so `privacy_of` counts it as free: that rests on mean and covariance being
    known without the private records. `of_public_data` makes one of records that you declare to be public, `of_synthetic_images` one of
    images that a seeded generator draws, which rests on nothing.

    Args:
        mean: m, shape (C,).
        covariance: $\Sigma$, shape (C, C), symmetric, with a trace above 0.
        floor: f > 0: smaller eigenvalues, as fractions of their mean, count as f.
    Attributes: `n_features_in_`, `feature_names_in_`.
    """

    mean: Any
    covariance: Any
    _: KW_ONLY
    floor: float = 1e-3

    @classmethod
    def of_public_data(cls, features: Any, *, channels: int, floor: float = 1e-3, scale_only: bool = False) -> Self:
        """One by the moments of records that are public: not these, nor chosen by a look at these.

        Args:
            features: of the public records, shape (m, C P), as the step before gives them.
            channels: C.
            floor: as for the class.
            scale_only: each channel is divided by its own standard deviation, and none are mixed: before a `PrivateWhitening`, which mixes
                them by what the records are like.
        """
        scaled = require_switch("scale_only", scale_only)
        table = read_table(PublicWhitening(0.0, 0.0), features, dtype=FLOATS)
        mean, covariance = _moments_of(table, channels)
        return cls(mean, np.diag(np.diag(covariance)) if scaled else covariance, floor=floor)

    @classmethod
    def of_synthetic_images(
        cls,
        features: ImageFeatures,
        image_shape: tuple[int, ...],
        *,
        channels: int,
        images: int = 1000,
        seed: int = 0,
        floor: float = 1e-3,
        scale_only: bool = False,
    ) -> Self:
        """One by the moments of what a transformer makes of `synthetic_images`: no data at all.

        Args:
            features: a transformer of images of this package.
            image_shape: (rows, columns) or (channels, rows, columns) of the images that the records are.
            channels: C, of what the transformer makes.
            images: how many are drawn, at least 2.
            seed: of the images.
            floor: as for the class.
            scale_only: as for `of_public_data`.
        """
        require_switch("scale_only", scale_only)  # before the images, which take a while
        if not isinstance(features, ImageFeatures):
            raise outside("features", features, "ScatteringFeatures or RandomConvolutionFeatures")
        table = features.transform(synthetic_images(image_shape, images=images, seed=seed))
        return cls.of_public_data(table, channels=channels, floor=floor, scale_only=scale_only)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the columns, of records, shape (n, C P); y is not used."""
        rows = read_table(self, X, dtype=FLOATS)
        positions_of(rows.shape[1], len(self._whitening().mean))
        return self

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """Records whitened, shape (n, C P), of their own floating-point type: all positions of the first channel, then of the next."""
        rows, whitening = read_table(self, X, reset=False, dtype=FLOATS), self._whitening()
        positions_of(rows.shape[1], len(whitening.mean))
        return whitening.apply(rows)

    def _whitening(self) -> Whitening:
        from lethe.train.linear.models import numbers  # loads torch, which takes seconds

        mean, covariance = (numbers(name, getattr(self, name)) for name in ("mean", "covariance"))
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)) or not np.allclose(covariance, covariance.T):
            raise InputError(
                f"mean and covariance: got shapes {mean.shape} and {covariance.shape}; they need (C,) and (C, C), symmetric.",
                source="the parameters mean and covariance",
                remedy="take PublicWhitening.of_public_data or of_synthetic_images",
            )
        average = float(np.trace(covariance)) / max(len(mean), 1)
        if not 0.0 < average < np.inf:
            raise outside("covariance", f"a matrix of trace {np.trace(covariance):g}", "variances of which one is above 0")
        return whitening_of(mean, (covariance + covariance.T) / 2.0, floor=require_positive("floor", self.floor) * average)


def _moments_of(table: Any, channels: int) -> tuple[Array, Array]:
    """Mean and covariance of channels over records and positions, shapes (C,) and (C, C), without noise: for data that are public."""
    positions = positions_of(table.shape[1], channels)
    mean, square = np.zeros(channels), np.zeros((channels, channels))
    size = max(1, _ENTRIES // table.shape[1])
    for first in range(0, len(table), size):
        part = table[first : first + size].astype(np.float64)
        flat = part.reshape(len(part), channels, positions).transpose(1, 0, 2).reshape(channels, -1)
        mean += flat.sum(axis=1)
        square += flat @ flat.T
    count = len(table) * positions
    mean /= count
    return mean, square / count - np.outer(mean, mean)
