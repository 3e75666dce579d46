r"""Privacy losses on a grid, rounded upwards, and their composition by convolution.

The one place that chooses the grid, composes, and allows for the floating point of Fourier transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import fft

from lethe.calculus.base import Profile
from lethe.calculus.domains import FloatArray, require_nonnegative
from lethe.calculus.privacy_losses.convolution import joined, power_ends

# A distribution has no more intervals than this; what lies beyond its last one counts as infinite.
MOST_INTERVALS = 2**28
# Beyond this privacy loss no epsilon of interest is left and exponentials overflow.
LARGEST_LOSS = 500.0
# Below this one, rounding of a one-step profile outweighs the profile.
SMALLEST_LOSS = 1e-8
# As many as a run may have. The allowance for so many is 4e-8; with more of them Rényi curves answer.
MOST_STEPS = 20_000_000
_FINEST_INTERVAL = 1e-4
_MOST_POINTS_TO_BUILD = 300_000
_MOST_POINTS = 2_000_000
# A composition that needs more points than this says little, and takes gigabytes.
_MOST_POINTS_COMPOSED = 8_000_000
# One hundred thousandth of an epsilon is what discretisation may cost where the number of points allows it.
_DISCRETISATION = 1e-5
# What a T-fold convolution by Fourier transform loses of a profile: at most 3.5e-16 T over twenty cases of up to 2e7 steps against extended
# precision, and a convolution of two less than 1e-14.
_FOURIER_ERROR_A_STEP = 2e-15
# Clamping rounding noise at 0 adds mass, a little a step. Once it has doubled, the answer is useless and the above was not measured.
_MOST_MASS = 2.0
# Mass that a self-composition may leave beside its grid; it is counted as an infinite loss.
_TAIL = 1e-15
# A composition whose finite losses weigh less says nothing: delta is 1 but for this.
_LEAST_FINITE_MASS = 1e-9
# Larger than any finite loss, and finite, as differences with it must be.
_BEYOND = 1e300


class Losses(NamedTuple):
    """A privacy loss in one direction: masses at (lowest + i) h for the interval h of the grid, and the mass at infinity."""

    lowest: int
    masses: FloatArray
    infinite: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Equal mechanisms in a composition.

    Args:
        width: how wide the losses of one are that count, > 0. With `deviation` it only chooses the grid, and every grid is sound.
        deviation: about the standard deviation of one's loss.
        count: how many there are.
        losses: interval -> losses of a discrete pair that dominates one mechanism: both directions, or one if they are the same.
    """

    width: float
    deviation: float
    count: int
    losses: Callable[[float], tuple[Losses, ...]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossProfile(Profile):
    """The privacy profile of privacy losses in both directions, or in one if they are the same.

    Args:
        interval: h > 0, the distance of two losses.
        directions: the losses.
        allowance: for the floating point that made them.
    """

    interval: float
    directions: tuple[Losses, ...]
    allowance: float
    kind: ClassVar[str] = "privacy_losses"

    def delta(self, epsilon: float) -> float:
        """The smallest delta at `epsilon`, rounded up."""
        level = min(require_nonnegative("epsilon", epsilon), _BEYOND)
        with np.errstate(all="ignore"):
            delta = float(np.max([self._exceeding(losses, level) for losses in self.directions]))
        return 1.0 if math.isnan(delta) else min(max(delta, 0.0) + self.allowance, 1.0)

    def _exceeding(self, losses: Losses, level: float) -> float:
        r"""$\delta_\infty + \sum_{l > \epsilon} p_l\,(1 - e^{\epsilon - l})$."""
        size = losses.masses.size
        near = int(min(max(level / self.interval - losses.lowest - 1.0, 0.0), float(size)))
        above = (np.arange(near, size) + losses.lowest) * self.interval
        first = int(np.searchsorted(above, level, side="right"))
        return losses.infinite + float(-np.expm1(level - above[first:]) @ losses.masses[near + first :])

    def describe(self) -> str:
        """Always `composed privacy losses`."""
        return "composed privacy losses"


def _mirrored_losses(losses: Losses, interval: float) -> Losses:
    """The losses with the two distributions exchanged: mass p at l becomes mass $pe^{-l}$ at -l, and the rest is at infinity.

    Of a pair that dominates at every order, those below 1 too, the exchanged one dominates the exchanged mechanism.
    """
    places = losses.lowest + np.arange(losses.masses.size)
    masses = (losses.masses * np.exp(-interval * places))[::-1]
    return Losses(-int(places[-1]), masses, max(1.0 - float(masses.sum()), 0.0))


def symmetric_losses(above: FloatArray, infinite: float, interval: float) -> Losses:
    """The privacy losses of a pair that is its own mirror image, from its positive losses; the rest of the mass is at 0.

    Args:
        above: the masses at h, 2 h, ..., shape (n,).
        infinite: the mass at infinity, in [0, 1].
        interval: h > 0, the distance of two losses.
    """
    below = _mirrored_losses(Losses(1, above, infinite), interval).masses
    centre = max(1.0 - float(above.sum()) - float(below.sum()) - infinite, 0.0)
    return Losses(-above.size, np.concatenate((below, [centre], above)), infinite)


def compose_losses(factors: Sequence[Factor]) -> LossProfile | None:
    """The profile of the adaptive composition, or None where it would not fit in floating point, or say nothing.

    Args:
        factors: at least one.
    Reference: Doroshenko et al. 2022, arXiv:2207.04380; Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10.
    """
    steps = sum(factor.count for factor in factors)
    if steps > MOST_STEPS:
        return None
    interval = _interval(factors)
    composed: tuple[Losses, ...] | None = None
    finite = 1.0
    with np.errstate(all="ignore"):
        for factor in factors:
            powers = list[Losses]()
            for one in factor.losses(interval):
                power = self_composed(one, factor.count)
                if power is None:
                    return None
                powers.append(power)
            finite *= min(float(power.masses.sum()) for power in powers)
            if not finite > _LEAST_FINITE_MASS:
                return None
            composed = tuple(powers) if composed is None else _joined_directions(composed, tuple(powers))
    assert composed is not None  # at least one factor
    return LossProfile(interval=interval, directions=composed, allowance=_FOURIER_ERROR_A_STEP * (steps + 100 * len(factors)))


def _joined_directions(one: tuple[Losses, ...], other: tuple[Losses, ...]) -> tuple[Losses, ...]:
    """The losses of two mechanisms, one after the other, in each direction."""
    count = max(len(one), len(other))
    pairs = zip(*(parts if len(parts) == count else parts * count for parts in (one, other)), strict=True)
    found = list[Losses]()
    for first, second in pairs:
        offset, masses, beyond = joined(first.masses, second.masses, _TAIL)
        infinite = first.infinite + second.infinite - first.infinite * second.infinite + beyond
        found.append(Losses(first.lowest + second.lowest + offset, masses, infinite))
    return tuple(found)


def _interval(factors: Sequence[Factor]) -> float:
    """Length of a discretisation interval: as fine as is useful, as coarse as memory needs. Coarser is only more pessimistic."""
    spread = math.sqrt(math.fsum(factor.count * factor.deviation**2 for factor in factors))
    width, steps = max(factor.width for factor in factors), sum(factor.count for factor in factors)
    useful = min(_FINEST_INTERVAL, math.sqrt(8.0 * _DISCRETISATION * spread / steps), width / 200.0)
    most = (1e-6 * width, width * len(factors) / _MOST_POINTS_TO_BUILD, (16.0 * spread + 2.0 * width) / _MOST_POINTS)
    return max(useful, 1e-300, *most)


def self_composed(one: Losses, count: int) -> Losses | None:
    """A T-fold convolution, or None where it would say nothing."""
    total = float(one.masses.sum())
    if not math.isfinite(total):
        return None
    # What rounding has lost of the total mass counts as an infinite loss.
    infinite = max(one.infinite, 1.0 - total, 0.0)
    if not infinite < 1.0 or count * math.log(max(total, 1.0)) > math.log(_MOST_MASS):
        return None
    if count == 1:
        return Losses(one.lowest, one.masses, infinite)
    first, last = power_ends(one.masses, count, _TAIL)
    size = last - first + 1
    if size > _MOST_POINTS_COMPOSED:
        return None
    # What lies beside the grid wraps around: it is added somewhere on the grid, and counted as infinite once more.
    length = fft.next_fast_len(max(size, one.masses.size), real=True)
    powered = fft.irfft(fft.rfft(one.masses, length) ** count, length)
    masses: FloatArray = np.roll(powered, -first)[:size]
    return Losses(one.lowest * count + first, masses, _TAIL - math.expm1(count * math.log1p(-infinite)))
