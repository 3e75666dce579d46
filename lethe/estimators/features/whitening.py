r"""Centring and whitening of channels by a mean and a covariance: the same C x C matrix at every position of every record.

$$z_p \mapsto V\,\mathrm{diag}\bigl(\max(\lambda, f)^{-1/2}\bigr)V^\top(z_p - m),$$

with $\Sigma = V\,\mathrm{diag}(\lambda)V^\top$. The square root that is symmetric leaves every channel as near to itself as whitening can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.mechanisms.base import Array

_ENTRIES = 2**20  # of a block


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Whitening:
    """What is done to every position.

    Args:
        mean: m, shape (C,).
        matrix: shape (C, C), symmetric.
    """

    mean: Array
    matrix: Array

    def apply(self, table: Any) -> np.ndarray[Any, Any]:
        """Records whitened, shape (n, C P), of their own floating-point type; a block at a time.

        Args:
            table: shape (n, C P), all positions of the first channel, then of the next.
        """
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
    """The whitening by a mean and a covariance.

    Args:
        mean: m, shape (C,).
        covariance: shape (C, C), symmetric; it may have negative eigenvalues.
        least: f > 0, the smallest eigenvalue that counts as what it is.
    """
    values, vectors = np.linalg.eigh(covariance)
    return Whitening(mean=mean, matrix=(vectors / np.sqrt(np.maximum(values, least))) @ vectors.T)


def noise_floor(covariance: Array, noise_std: float, *, share: float) -> float:
    r"""f, the smallest eigenvalue that is whitened as what it is: the larger of a share of the mean eigenvalue and of $\sqrt{2C}\,\tau$.

    Args:
        covariance: as released, shape (C, C).
        noise_std: $\tau$, of the noise of a diagonal entry; $\sqrt{2C}\,\tau$ is about the largest eigenvalue of the noise.
        share: of the mean eigenvalue.
    """
    channels = len(covariance)
    return max(share * max(float(np.trace(covariance)), 0.0) / channels, math.sqrt(2.0 * channels) * noise_std)
