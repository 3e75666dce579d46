r"""Mean oracles: noisy means of a batch's gradients, and what they reveal (their privacy cost). Each solver here takes one and calls `mean`
once a step. $z_i$ is a gradient, s the batch size, C the clip norm, $\rho$ the zCDP cost of one mean, $\sigma$ the noise's standard
deviation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.calculus.guarantees import ApproxDP, NotPrivate
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down, round_up
from lethe.errors import InputError
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Release, gaussian_release

MOST_CLIP = 1e150


class MeanOracle(ABC):
    r"""A private estimate of a mean gradient.

    The privacy it states is that of everything one record takes part in: a solver that uses each record m times takes
    `shared(m)`, whose single means cost an m-th of it. The noise always comes from the size of the batch at hand.
    """

    @property
    def clip_level(self) -> float | None:
        """The clip norm or threshold; None if the oracle does not clip."""
        return None

    def for_records(self, records: int) -> Self:
        """Itself, for a solver on n records; InputError if what it states is too weak for so many."""
        del records
        return self

    @abstractmethod
    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """A noisy mean of gradients of shape (s, d), as shape (d,); a row with a nan or an infinity counts as 0."""

    @abstractmethod
    def release(self, size: int, dimension: int) -> Release:
        """The privacy cost of one mean of a batch of that size."""

    @abstractmethod
    def shared(self, touches: int) -> MeanOracle:
        """The oracle whose `touches` uses on one record cost together what one use of this one costs.

        Raises:
            InputError: this oracle cannot be used more than once on a record.
        """


@dataclass(frozen=True, slots=True)
class ExactMean(MeanOracle):
    """The mean itself, for comparison: no clipping, no noise, no privacy."""

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The mean of the rows."""
        return finite_rows(rows).mean(axis=0)

    def release(self, size: int, dimension: int) -> Release:
        """No guarantee: the mean is released without noise."""
        return Release(guarantee=NotPrivate(), sensitivity=None, noise_std=0.0)

    def shared(self, touches: int) -> ExactMean:
        """Itself."""
        return self


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
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 1 and Lemma 6.
    """

    clip_norm: float
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_norm", require_clip("clip_norm", self.clip_norm))
        object.__setattr__(self, "rho", require_rho(self.rho))

    @property
    def clip_level(self) -> float:
        """The clip norm."""
        return self.clip_norm

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The mean of rows, shape (s, d), clipped to C, with noise in all d coordinates; shape (d,)."""
        return self.noisy(clip_rows(rows, self.clip_norm).mean(axis=0), len(rows), generator)

    def noisy(self, mean: Array, size: int, generator: np.random.Generator) -> Array:
        """The mean of `size` clipped rows, shape (d,), with the noise of this oracle."""
        return mean + self.release(size, len(mean)).noise_std * noise_generator(generator).standard_normal(len(mean))

    def release(self, size: int, dimension: int) -> Release:
        """What one mean of `size` rows costs and its noise; the dimension does not matter."""
        sensitivity = round_up(2.0 * self.clip_norm / require_count("size", size), 1e-15)
        return gaussian_release(sensitivity, noise_for(sensitivity, self.rho))

    def shared(self, touches: int) -> ClippedMean:
        r"""The oracle with $\rho$ split evenly over so many uses of a record."""
        return replace(self, rho=self.rho / require_count("touches", touches))


@dataclass(frozen=True, slots=True, kw_only=True)
class PureClippedMean(MeanOracle):
    r"""$\tilde\nu = \frac1s\sum_i\Pi_C(z_i) + b\,\Gamma U$, $\Gamma$ of the gamma law of shape d, U uniform on the unit sphere,
    $b = \frac{2C}{s\epsilon}$.

    Formal guarantee: $(\epsilon, 0)$-DP for replacing one of the s records (s public).
    Proof: the noise has the density $c\,e^{-\|z\|/b}$ ($r^{d-1}e^{-r/b}$ of the length, over a surface that grows as $r^{d-1}$). A replaced
    record moves the mean by at most $\Delta = 2C/s$, as of `ClippedMean`, so by the triangle inequality the log ratio of two densities is
    everywhere at most $\Delta/b = \epsilon$, and it is attained. Batches of a record's own add up: $\epsilon/m$ for m uses.

    Its standard deviation in a coordinate is $\sqrt{d + 1}\,b$. With localised solvers and `multi_pass` it gives the rate's ingredients of
    Lowy 2026, whose text was not at hand: there Lipschitz extensions are minimised and the minimisers perturbed, which for losses of a
    linear score are the losses with clipped slopes. Here every step has noise, so that privacy needs no convexity; none of its bounds on
    the risk is claimed.

    Args:
        clip_norm: $C > 0$, at most 1e150, in loss per parameter unit.
        epsilon: $\epsilon$ in (0, 1e6] of all that one record takes part in.
    Reference: after Lowy 2026, arXiv:2604.06492. The noise: Chaudhuri, Monteleoni & Sarwate 2011, arXiv:0912.0071.
    """

    clip_norm: float
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_norm", require_clip("clip_norm", self.clip_norm))
        object.__setattr__(self, "epsilon", require_positive("epsilon", self.epsilon))
        if not 1e-100 <= self.epsilon <= 1e6:
            raise outside("epsilon", self.epsilon, "a number in [1e-100, 1e6]")

    @property
    def clip_level(self) -> float:
        """The clip norm."""
        return self.clip_norm

    def scale(self, size: int) -> float:
        """b, rounded up, in loss per parameter unit."""
        return round_up(2.0 * self.clip_norm / require_count("size", size) / self.epsilon, 1e-15)

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        r"""The mean of rows, shape (s, d), clipped to C, with noise of density proportional to $e^{-\|x\|/b}$; shape (d,)."""
        source, d = noise_generator(generator), rows.shape[1]
        length, direction = source.gamma(d), source.standard_normal(d)
        return clip_rows(rows, self.clip_norm).mean(axis=0) + self.scale(len(rows)) * length * direction / np.linalg.norm(direction)

    def release(self, size: int, dimension: int) -> Release:
        """What one mean of `size` rows of d numbers costs, and the standard deviation of its noise in a coordinate."""
        deviation = math.sqrt(require_count("dimension", dimension) + 1.0) * self.scale(size)
        return Release(guarantee=ApproxDP(self.epsilon, 0.0), sensitivity=None, noise_std=deviation)

    def shared(self, touches: int) -> PureClippedMean:
        r"""The oracle with $\epsilon$ split evenly over so many uses of a record, rounded down."""
        uses = require_count("touches", touches)
        return self if uses == 1 else replace(self, epsilon=round_down(self.epsilon / uses, 4e-15))


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinateMedian(MeanOracle):
    r"""$\tilde\nu_j = \mathrm{median}_i\,\frac1q\sum_{l \in G_i}\Pi_{[-\tau,\tau]}(z_{lj}) + N(0, \sigma^2)$ over m groups of $q =
    \lfloor s/m\rfloor$.

    $$\sigma^2 = \frac{4\tau^2 d}{2\rho q^2}$$

    Formal guarantee: $\sqrt{2\rho}$-GDP for replacing one of the s records.
    Proof: one record sits in one group, whose mean moves by at most $2\tau/q$ in each coordinate; the median is 1-Lipschitz in the maximum
    norm, so the vector of medians moves by at most $2\tau\sqrt d/q$ in the Euclidean norm. The paper's Lemma 52 has 72 for that 4; its
    algorithm has $m/s$ for $1/q$, which is too little noise where m does not divide s, and draws the noise inside the loop.

    Args:
        threshold: $\tau > 0$, at most 1e150.
        groups: m, odd; 1 is a plain mean of clipped coordinates.
        rho: $\rho > 0$ of all that one record takes part in; infinity: no noise, not private.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 12 and Lemma 52.
    """

    threshold: float
    groups: int
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", require_clip("threshold", self.threshold))
        object.__setattr__(self, "groups", require_groups(self.groups))
        object.__setattr__(self, "rho", require_rho(self.rho))

    @property
    def clip_level(self) -> float:
        """The threshold, for each coordinate."""
        return self.threshold

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The median of noisy group means by coordinate, shape (d,); records beyond m q are left out."""
        medians = np.median(self.group_means(rows), axis=0)
        return medians + self.release(*rows.shape).noise_std * noise_generator(generator).standard_normal(len(medians))

    def group_means(self, rows: Array) -> Array:
        """The means of m consecutive groups of clipped rows, shape (m, d); rows that do not fill a group are left out."""
        size = group_size(len(rows), self.groups)
        clipped = np.clip(finite_rows(rows)[: self.groups * size], -self.threshold, self.threshold)
        return clipped.reshape(self.groups, size, -1).mean(axis=1)

    def release(self, size: int, dimension: int) -> Release:
        """What one median of `size` rows costs and its noise."""
        d = require_count("dimension", dimension)
        sensitivity = round_up(2.0 * self.threshold * math.sqrt(d) / group_size(size, self.groups), 1e-15)
        return gaussian_release(sensitivity, noise_for(sensitivity, self.rho))

    def shared(self, touches: int) -> CoordinateMedian:
        r"""The oracle with $\rho$ split evenly over so many uses of a record."""
        return replace(self, rho=self.rho / require_count("touches", touches))


def require_rho(value: object) -> float:
    r"""Return $\rho > 0$ as a float, infinity included, or raise InputError."""
    rho = require_nonnegative("rho", value)
    if rho < 1e-100:
        raise outside("rho", value, "a number >= 1e-100, or infinity for no noise")
    return rho


def noise_scale(rho: float) -> float:
    r"""$\epsilon = \sqrt{2\rho}$: what the paper calls epsilon, a scale of noise and not the epsilon of differential privacy."""
    return math.sqrt(2.0 * require_rho(rho))


def noise_for(sensitivity: float, rho: float) -> float:
    r"""$\sigma = s/\sqrt{2\rho}$, rounded up; 0 at $\rho = \infty$."""
    return 0.0 if rho == math.inf else round_up(sensitivity / math.sqrt(2.0 * rho), 4e-15)


def require_clip(name: str, value: object) -> float:
    """Return a clip norm or threshold in (0, 1e150] as a float, or raise InputError."""
    clip = require_positive(name, value)
    if clip > MOST_CLIP:
        raise outside(name, value, f"a number at most {MOST_CLIP:g}; for no clipping take ExactMean")
    return clip


def require_groups(value: object) -> int:
    """Return an odd whole number, or raise InputError."""
    groups = require_count("groups", value)
    if groups % 2 == 0:
        raise outside("groups", value, "an odd whole number, so that the median is one of the group means")
    return groups


def group_size(size: int, groups: int) -> int:
    r"""$q = \lfloor s/m\rfloor$; InputError where a batch has fewer records than there are groups."""
    if require_count("size", size) < groups:
        raise InputError(
            f"a batch of {size} records and {groups} groups; each group needs a record.",
            source="groups",
            remedy="take fewer groups, or fewer steps with larger batches",
        )
    return size // groups


def finite_rows(rows: Array) -> Array:
    """The rows in float64, in which they are clipped and added, with those that hold a nan or an infinity set to 0."""
    rows = rows.astype(np.float64, copy=False)
    good: NDArray[np.bool_] = np.all(np.isfinite(rows), axis=1)
    return rows if bool(good.all()) else np.where(good[:, None], rows, 0.0)


def scaled_rows(rows: Array) -> tuple[Array, Array, Array]:
    """Rows divided by their largest entry, the norms of these, and the divisors: no square of an entry over- or underflows."""
    scales = np.abs(rows).max(axis=1)
    divisors = np.where(scales > 0.0, scales, 1.0)
    units = rows / divisors[:, None]
    return units, np.linalg.norm(units, axis=1), divisors


def clip_rows(rows: Array, clip_norm: float) -> Array:
    """The rows, those longer than `clip_norm` shortened to it; a row with a nan or an infinity becomes 0.

    Lengths are compared to a value below `clip_norm` by their own rounding error, so that no row comes out longer in exact arithmetic.
    """
    rows = finite_rows(rows)
    limit = clip_norm * (1.0 - (rows.shape[1] + 8) * 2.0**-53)
    units, norms, divisors = scaled_rows(rows)
    with np.errstate(over="ignore"):
        long = norms * divisors > limit
    factors = limit / np.where(long, norms, 1.0)
    return np.where(long[:, None], units * factors[:, None], rows)
