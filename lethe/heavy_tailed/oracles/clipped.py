"""Mean oracle 1: clip each gradient's Euclidean norm, average, add Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.oracles.base import MeanOracle, finite_rows, require_rows
from lethe.heavy_tailed.solution import Release, gaussian_release

_LARGEST = 1e150


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedMean(MeanOracle):
    r"""$\tilde\nu = \frac1s\sum_i\Pi_C(z_i) + N(0, \sigma^2 I_d)$, $\sigma^2 = \frac{(2C/s)^2}{2\rho}$, with $\Pi_C(z) = z\min(1,
    C/\|z\|)$.

    Formal guarantee: $\sqrt{2\rho}$-GDP, so $\rho$-zCDP, for replacing one of the s records (s public).
    Proof: two sets of records that differ in row u have clipped means that differ by $\frac1s(\Pi_C(z_u) - \Pi_C(z_u'))$, of norm at most
    $2C/s$ (attained by opposite long rows); $N(0, \sigma^2 I)$ against its shift by $\Delta$ is exactly $\|\Delta\|/\sigma$-GDP. The
    clip norm must not depend on the data.

    Error: with $E\|z\|^k \le r^k$ the bias is at most `moments.clipping_bias` and
    $E\|\tilde\nu - E\tilde\nu\|^2 \le d\sigma^2 + r_2^2/s$, because clipping is 1-Lipschitz. (The paper's chain
    $\|E\hat\nu - \nu\| \le E\|\hat\nu - \nu\| \le$ bias is false in the middle: that term holds the sampling error.)

    Args:
        clip_norm: $C > 0$, at most 1e150, in loss per parameter unit.
        rho: $\rho > 0$ of all that one record takes part in; infinity: no noise, not private.
    Raises:
        InputError: a number out of range.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 1 and Lemma 6.
    """

    clip_norm: float
    rho: float

    def __post_init__(self) -> None:
        clip = require_positive("clip_norm", self.clip_norm)
        if clip > _LARGEST:
            raise outside("clip_norm", self.clip_norm, f"a number at most {_LARGEST:g}; for no clipping take ExactMean")
        object.__setattr__(self, "clip_norm", clip)
        object.__setattr__(self, "rho", require_rho(self.rho))

    @property
    def clip_level(self) -> float:
        """The clip norm."""
        return self.clip_norm

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """See `MeanOracle`; noise in all d coordinates at every batch size."""
        return self.noisy(clip_rows(require_rows(rows), self.clip_norm).mean(axis=0), len(rows), generator)

    def noisy(self, mean: Array, size: int, generator: np.random.Generator) -> Array:
        """A mean of clipped rows, with the noise of this oracle.

        Args:
            mean: shape (d,).
            size: how many rows it is the mean of.
            generator: of the noise.
        """
        return mean + self.release(size, len(mean)).noise_std * noise_generator(generator).standard_normal(len(mean))

    def release(self, size: int, dimension: int) -> Release:
        """See `MeanOracle`; the dimension does not matter."""
        sensitivity = round_up(2.0 * self.clip_norm / require_count("size", size), 1e-15)
        return gaussian_release(sensitivity, noise_for(sensitivity, self.rho))

    def shared(self, touches: int) -> ClippedMean:
        r"""With $\rho$ split evenly."""
        return replace(self, rho=self.rho / require_count("touches", touches))


def require_rho(value: object) -> float:
    r"""Return $\rho > 0$ as a float, infinity included, or raise InputError."""
    rho = require_nonnegative("rho", value)
    if rho < 1e-100:
        raise outside("rho", value, "a number >= 1e-100, or infinity for no noise")
    return rho


def noise_for(sensitivity: float, rho: float) -> float:
    r"""$\sigma = s/\sqrt{2\rho}$, rounded up; 0 at $\rho = \infty$."""
    return 0.0 if rho == math.inf else round_up(sensitivity / math.sqrt(2.0 * rho), 4e-15)


def clip_rows(rows: Array, clip_norm: float) -> Array:
    """The rows, those longer than `clip_norm` shortened to it; a row with a nan or an infinity becomes 0.

    Lengths are compared to a value below `clip_norm` by their own rounding error, so that no row comes out longer in exact arithmetic.

    Args:
        rows: shape (s, d).
        clip_norm: > 0.
    """
    rows = finite_rows(rows)
    limit = clip_norm * (1.0 - (rows.shape[1] + 8) * 2.0**-53)
    # By the largest entry first: squares of entries beyond 1e154 would overflow, and below 1e-154 underflow.
    scales = np.abs(rows).max(axis=1)
    divisors = np.where(scales > 0.0, scales, 1.0)
    units = rows / divisors[:, None]
    norms = np.linalg.norm(units, axis=1)
    with np.errstate(over="ignore"):
        long = norms * divisors > limit
    factors = limit / np.where(long, norms, 1.0)
    return np.where(long[:, None], units * factors[:, None], rows)
