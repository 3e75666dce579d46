"""Mean oracle 2: clip each coordinate, take the median of group means in each, add Gaussian noise once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_up
from lethe.errors import InputError
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.oracles.base import MeanOracle, finite_rows, require_rows
from lethe.heavy_tailed.oracles.clipped import noise_for, require_rho
from lethe.heavy_tailed.solution import Release, gaussian_release


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
    Raises:
        InputError: a number out of range.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 12 and Lemma 52.
    """

    threshold: float
    groups: int
    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", require_threshold(self.threshold))
        object.__setattr__(self, "groups", require_groups(self.groups))
        object.__setattr__(self, "rho", require_rho(self.rho))

    @property
    def clip_level(self) -> float:
        """The threshold, for each coordinate."""
        return self.threshold

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """See `MeanOracle`; records beyond m q are left out."""
        count, dimension = require_rows(rows).shape
        release = self.release(count, dimension)
        medians = np.median(group_means(rows, self.threshold, self.groups), axis=0)
        return medians + release.noise_std * noise_generator(generator).standard_normal(dimension)

    def release(self, size: int, dimension: int) -> Release:
        """See `MeanOracle`."""
        d = require_count("dimension", dimension)
        sensitivity = round_up(2.0 * self.threshold * math.sqrt(d) / group_size(size, self.groups), 1e-15)
        return gaussian_release(sensitivity, noise_for(sensitivity, self.rho))

    def shared(self, touches: int) -> CoordinateMedian:
        r"""With $\rho$ split evenly."""
        return replace(self, rho=self.rho / require_count("touches", touches))


def require_threshold(value: object) -> float:
    """Return a threshold in (0, 1e150] as a float, or raise InputError."""
    threshold = require_positive("threshold", value)
    if threshold > 1e150:
        raise outside("threshold", value, "a number at most 1e150")
    return threshold


def require_groups(value: object) -> int:
    """Return an odd whole number, or raise InputError."""
    groups = require_count("groups", value)
    if groups % 2 == 0:
        raise outside("groups", value, "an odd whole number, so that the median is one of the group means")
    return groups


def group_size(size: int, groups: int) -> int:
    r"""$q = \lfloor s/m\rfloor$.

    Raises:
        InputError: a batch has fewer records than there are groups.
    """
    if require_count("size", size) < groups:
        raise InputError(
            f"a batch of {size} records and {groups} groups; each group needs a record.",
            source="groups",
            remedy="take fewer groups, or fewer steps with larger batches",
        )
    return size // groups


def group_means(rows: Array, threshold: float, groups: int) -> Array:
    """The means of m consecutive groups of rows, coordinates clipped, shape (m, d).

    Args:
        rows: shape (s, d); those that do not fill a group are left out.
        threshold: coordinates are clipped to plus and minus it, > 0.
        groups: m.
    """
    size = group_size(len(rows), groups)
    clipped = np.clip(finite_rows(rows)[: groups * size], -threshold, threshold)
    return clipped.reshape(groups, size, -1).mean(axis=1)
