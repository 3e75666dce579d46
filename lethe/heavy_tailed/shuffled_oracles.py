r"""The mean oracles in the shuffle model, where no one but the users sees a gradient: users send bits, which are shuffled before they are
read. Users of the library pass one to a one-pass solver in place of `ClippedMean`, where no curator may be trusted with the data. s is the
batch size, C the clip norm, $\tau$ a threshold of each coordinate.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.guarantees import ApproxDP
from lethe.calculus.large_delta import delta_for, open_delta
from lethe.calculus.upward_formatting import shown_down
from lethe.errors import InputError
from lethe.heavy_tailed.oracles import MeanOracle, clip_rows, finite_rows, group_size, require_clip, require_groups
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.shuffled_sums import ScalarProtocol, analyse, chosen_protocol, simulated_ones
from lethe.heavy_tailed.solution import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledOracle(MeanOracle):
    """A mean from shuffled bits.

    Args:
        epsilon, delta: of all that one record takes part in, which is one batch: this oracle is for one pass.
        allow_large_delta: whether a delta >= 1/records of the solver is meant.
    """

    epsilon: float
    delta: float
    allow_large_delta: bool = False

    def for_records(self, records: int) -> Self:
        """This oracle with its price divided over one pass of so many records."""
        delta_for(records, self.delta, allow_large_delta=self.allow_large_delta)
        return self

    @abstractmethod
    def protocol(self, size: int, dimension: int) -> ScalarProtocol:
        """The protocol of every coordinate, and of every group."""

    def release(self, size: int, dimension: int) -> Release:
        """What one mean of `size` rows costs; the noise is that of one group's mean."""
        protocol = self.protocol(size, dimension)
        deviation = math.sqrt(protocol.noise_variance) / protocol.users
        return Release(guarantee=ApproxDP(self.epsilon, self.delta), sensitivity=None, noise_std=deviation)

    def shared(self, touches: int) -> Self:
        """Itself, if each record is used once; else an error."""
        if require_count("touches", touches) != 1:
            raise InputError(
                f"a shuffled oracle and {touches} uses of one record; it is accounted for one.",
                source="the solver",
                remedy="take a solver that passes over the data once",
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledClippedMean(ShuffledOracle):
    r"""Rows clipped to norm C, each coordinate's sum by the scalar protocol on $[0, 2C]$, shifted back and divided by s.

    Formal guarantee: the shuffled bits of all coordinates are $(\epsilon, \delta)$-DP for replacing one of the s records.
    Proof: coordinate j gets $\epsilon_0 = \epsilon/(4\sqrt{2\ln(2/\delta)})$, $\delta_0 = \delta/(2d)$ and $g \ge 2\sqrt d$. A replaced
    row changes coordinate j by $\Delta_j$ with $\sum_j\Delta_j^2 \le 4C^2$, which costs $\epsilon_j = \epsilon_0(2/g + |\Delta_j|/(2C))$,
    so $\sum_j\epsilon_j^2 \le 2\epsilon_0^2(4d/g^2 + 1) \le 4\epsilon_0^2$. Advanced composition with slack $\delta/2$ gives at most
    $\epsilon/2$ from its root, and $\sum_j\epsilon_j(e^{\epsilon_j}-1) \le 8\epsilon_0^2 \le \epsilon/2$ where
    $\epsilon \le \min\{2\ln(2/\delta),\ 2.5\sqrt{2\ln(2/\delta)}\}$ (all $\epsilon_j \le 1.25$).

    Unbiased for the mean of the clipped rows. The noise is large: its standard deviation in a coordinate is 1.2 C at s = 1000, d = 10,
    $\epsilon = 1$, $\delta = 10^{-6}$. (The paper's algorithms 10 and 11 leave out the division by s and shift by L instead of sC.)

    Args:
        clip_norm: C > 0.
        epsilon, delta, allow_large_delta: as `ShuffledOracle`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 10 and 11.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip_norm", require_clip("clip_norm", self.clip_norm))
        object.__setattr__(self, "delta", open_delta(self.delta))
        object.__setattr__(self, "epsilon", _small_enough(self.epsilon, math.log(2.0 / self.delta), 1))

    @property
    def clip_level(self) -> float:
        """The clip norm."""
        return self.clip_norm

    def protocol(self, size: int, dimension: int) -> ScalarProtocol:
        """The protocol of one coordinate's sum over a batch of `size` clipped rows."""
        each = self.epsilon / (4.0 * math.sqrt(2.0 * math.log(2.0 / self.delta)))
        fewest_levels = max(math.ceil(2.0 * math.sqrt(require_count("dimension", dimension))), 2)
        return chosen_protocol(size, 2.0 * self.clip_norm, each, self.delta / (2 * dimension), least_levels=fewest_levels)

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The mean of clipped rows, shape (s, d), from shuffled bits; shape (d,)."""
        protocol = self.protocol(*rows.shape)
        shifted = clip_rows(rows, self.clip_norm) + self.clip_norm
        sums = [analyse(simulated_ones(column, protocol, generator), protocol) for column in shifted.T]
        return np.array(sums) / len(rows) - self.clip_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledCoordinateMedian(ShuffledOracle):
    r"""`CoordinateMedian` with each group's coordinate mean from the scalar protocol on $[0, 2\tau]$.

    Formal guarantee: all shuffled bits together are $(\epsilon, \delta)$-DP for replacing one of the s records.
    Proof: one record sits in one group, whose d sums each cost at most $\epsilon_j(2/g + 1) \le 2\epsilon_j$ with $g \ge 2$,
    $\epsilon_j = \epsilon/(4\sqrt{2d\ln(2d/\delta)})$, $\delta_j = \delta/(2d)$. Advanced composition of d of them with slack $\delta/2$:
    the root term is at most $\epsilon/2$, the other $8d\epsilon_j^2 = \epsilon^2/(4\ln(2d/\delta)) \le \epsilon/2$ where
    $\epsilon \le \min\{2\ln(2d/\delta),\ 2.5\sqrt{2d\ln(2d/\delta)}\}$. Refuted as printed: the paper allows $\epsilon \le
    8\ln(2d/\delta)$, at which
    the composition has 9 times the target.

    The median of noisy means is not unbiased for the median of the means, so the noise also enters the bias; with one group it does not.

    Args:
        threshold: $\tau > 0$.
        groups: m, odd.
        epsilon, delta, allow_large_delta: as `ShuffledOracle`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 13 and Proposition 53.
    """

    threshold: float
    groups: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", require_clip("threshold", self.threshold))
        object.__setattr__(self, "groups", require_groups(self.groups))
        object.__setattr__(self, "delta", open_delta(self.delta))
        object.__setattr__(self, "epsilon", require_positive("epsilon", self.epsilon))

    @property
    def clip_level(self) -> float:
        """The threshold, for each coordinate."""
        return self.threshold

    def protocol(self, size: int, dimension: int) -> ScalarProtocol:
        """The protocol of one coordinate's sum over one group of a batch of `size` rows."""
        d = require_count("dimension", dimension)
        logarithm = math.log(2.0 * d / self.delta)
        each = _small_enough(self.epsilon, logarithm, d) / (4.0 * math.sqrt(2.0 * d * logarithm))
        return chosen_protocol(group_size(size, self.groups), 2.0 * self.threshold, each, self.delta / (2 * d), least_levels=2)

    def mean(self, rows: Array, generator: np.random.Generator) -> Array:
        """The median of group means by coordinate, from shuffled bits, shape (d,); records beyond m q are left out."""
        protocol = self.protocol(*rows.shape)
        size = protocol.users
        shifted = np.clip(finite_rows(rows)[: self.groups * size], -self.threshold, self.threshold) + self.threshold
        blocks = shifted.reshape(self.groups, size, -1)
        sums = [[analyse(simulated_ones(column, protocol, generator), protocol) for column in block.T] for block in blocks]
        return np.median(np.array(sums) / size - self.threshold, axis=0)


def _small_enough(epsilon: object, logarithm: float, coordinates: int) -> float:
    level, limit = require_positive("epsilon", epsilon), min(2.0 * logarithm, 2.5 * math.sqrt(2.0 * coordinates * logarithm))
    if level > limit:
        raise outside("epsilon", epsilon, f"a number above 0 and at most {shown_down(limit)}, where the composition's proof holds")
    return level
