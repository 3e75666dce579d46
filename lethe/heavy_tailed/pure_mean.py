"""The mean oracle of pure differential privacy: clipped rows, and noise whose density falls exponentially with its length."""

import math
from dataclasses import dataclass, replace

import numpy as np

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.calculus.guarantees import ApproxDP
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down, round_up
from lethe.heavy_tailed.oracles import MeanOracle, clip_rows, require_clip
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class PureClippedMean(MeanOracle):
    r"""$\tilde\nu = \frac1s\sum_i\Pi_C(z_i) + b\,\Gamma U$, $\Gamma$ of the gamma law of shape d, U uniform on the unit sphere,
    $b = \frac{2C}{s\epsilon}$.

    Formal guarantee: $(\epsilon, 0)$-DP for replacing one of the s records (s public).
    Proof: the noise has the density $c\,e^{-\|z\|/b}$ ($r^{d-1}e^{-r/b}$ of the length, over a surface that grows as $r^{d-1}$). A replaced
    record moves the mean by at most $\Delta = 2C/s$, as of `ClippedMean`, so by the triangle inequality the log ratio of two densities is
    everywhere at most $\Delta/b = \epsilon$, and it is attained. Batches of a record's own add up: $\epsilon/m$ for m touches.

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
        """See `MeanOracle`."""
        source, d = noise_generator(generator), rows.shape[1]
        length, direction = source.gamma(d), source.standard_normal(d)
        return clip_rows(rows, self.clip_norm).mean(axis=0) + self.scale(len(rows)) * length * direction / np.linalg.norm(direction)

    def release(self, size: int, dimension: int) -> Release:
        """See `MeanOracle`."""
        deviation = math.sqrt(require_count("dimension", dimension) + 1.0) * self.scale(size)
        return Release(guarantee=ApproxDP(self.epsilon, 0.0), sensitivity=None, noise_std=deviation)

    def shared(self, touches: int) -> "PureClippedMean":
        r"""With $\epsilon$ split evenly, rounded down."""
        uses = require_count("touches", touches)
        return self if uses == 1 else replace(self, epsilon=round_down(self.epsilon / uses, 4e-15))
