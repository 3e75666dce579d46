r"""Centring and whitening of channels by a mean and a covariance: the same C x C matrix at every position of every record.

$$z_p \mapsto V\,\mathrm{diag}\bigl(\max(\lambda, f)^{-1/2}\bigr)V^\top(z_p - m),$$

with $\Sigma = V\,\mathrm{diag}(\lambda)V^\top$. The square root that is symmetric leaves every channel as near to itself as whitening can.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags

from lethe.calculus.domains import outside, require_positive, require_switch
from lethe.errors import InputError
from lethe.estimators.features.images import ImageFeatures, synthetic_images
from lethe.estimators.inputs.tables import FLOATS, read_table
from lethe.mechanisms.base import Array
from lethe.mechanisms.moments import positions_of

_ENTRIES = 2**20  # of a block


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
        found = np.empty_like(table, order="C")
        size = max(1, _ENTRIES // table.shape[1])
        for first in range(0, len(table), size):
            part = np.ascontiguousarray(table[first : first + size]).reshape(-1, channels, table.shape[1] // channels)
            found[first : first + size] = (matrix @ part - offset[:, None]).reshape(len(part), -1)
        return found


def whitening_of(mean: Array, covariance: Array, *, least: float) -> Whitening:
    """The whitening by a mean, shape (C,), and a covariance, shape (C, C), which may have negative eigenvalues; least is f > 0."""
    values, vectors = np.linalg.eigh(covariance)
    return Whitening(mean=mean, matrix=(vectors / np.sqrt(np.maximum(values, least))) @ vectors.T)


def noise_floor(covariance: Array, noise_std: float, *, share: float) -> float:
    r"""f, the smallest eigenvalue that is whitened as what it is: the larger of a share of the mean eigenvalue and of $\sqrt{2C}\,\tau$.

    $\tau$ is of the noise of a diagonal entry of the covariance, shape (C, C); the other is about the largest eigenvalue of the noise.
    """
    channels = len(covariance)
    return max(share * max(float(np.trace(covariance)), 0.0) / channels, math.sqrt(2.0 * channels) * noise_std)


@dataclass(eq=False, repr=False)
class PublicWhitening(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters, and keep the columns, of records, shape (n, C P); y is not used."""
        rows = read_table(self, X, dtype=FLOATS)
        positions_of(rows.shape[1], len(self._whitening().mean))
        return self

    def transform(self, X: Any) -> np.ndarray[Any, Any]:
        """Records whitened, shape (n, C P), of their own floating-point type.

        All positions of the first channel come first, then of the next.
        """
        rows, whitening = read_table(self, X, reset=False, dtype=FLOATS), self._whitening()
        positions_of(rows.shape[1], len(whitening.mean))
        return whitening.apply(rows)

    def _whitening(self) -> Whitening:
        mean, covariance = (_numbers(name, getattr(self, name)) for name in ("mean", "covariance"))
        if mean.ndim != 1 or covariance.shape != (len(mean), len(mean)) or not np.allclose(covariance, covariance.T):
            raise InputError(
                f"mean and covariance: got shapes {mean.shape} and {covariance.shape}; they need (C,) and (C, C), symmetric.",
                source="the parameters mean and covariance",
                remedy="take PublicWhitening.of_public_data or of_synthetic_images",
            )
        average = float(np.trace(covariance)) / max(len(mean), 1)
        if not 0.0 < average < np.inf:
            raise outside("covariance", f"a matrix of trace {np.trace(covariance):g}", "variances of which one is above 0")
        return whitening_of(mean, (covariance + covariance.T) / 2.0, least=require_positive("floor", self.floor) * average)


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


def _numbers(name: str, value: Any) -> Array:
    needed = "finite numbers"
    try:
        found = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise outside(name, type(value).__name__, needed) from None
    if not np.isfinite(found).all():
        raise outside(name, "an array with entries that are missing or infinite", needed)
    return found
