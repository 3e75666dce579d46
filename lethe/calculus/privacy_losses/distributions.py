"""Privacy losses on a grid, rounded upwards, and their composition by convolution.

Sampled steps and mixed compositions (`calculus.sampled`, `any_guarantee`) hand in one factor a mechanism and get the tightest profile there
is of all together. This chooses the grid and allows for the floating point of Fourier transforms: of tilted losses (`convolution`) that
allowance is as small as delta is.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from lethe.calculus.conversions import profile_epsilon
from lethe.calculus.domains import FloatArray, require_delta, require_nonnegative
from lethe.calculus.guarantees import Profile
from lethe.calculus.privacy_losses.convolution import Law, Tilted, steepness, sum_ends, summed, tilted

# A distribution has no more intervals than this; what lies beyond its last one counts as infinite.
MOST_INTERVALS = 2**28
# Beyond this privacy loss no epsilon of interest is left and exponentials overflow.
LARGEST_LOSS = 500.0
# Below this one, squares and products of losses underflow.
SMALLEST_LOSS = 1e-60
# The mass beyond what counts as the width of one mechanism's losses, where the grid is chosen.
USUAL_TAIL = 1e-23
# As many as a run may have. The allowance for so many is 4e-8 of Chernoff's bound; with more of them Rényi curves answer.
MOST_STEPS = 20_000_000
_FINEST_INTERVAL = 1e-4
# Of one factor, and of all together.
_MOST_POINTS_TO_BUILD, _MOST_POINTS_OF_ALL = 300_000, 3_000_000
_MOST_POINTS = 2_000_000
# A composition that needs more points than this is tilted less, and then put on a coarser grid.
_MOST_POINTS_COMPOSED, _LESS, _MOST_TRIES = 3_000_000, 0.8, 8
# One hundred thousandth of an epsilon is what discretisation may cost where the number of points allows it, or a thousandth of a deviation.
_DISCRETISATION, _DISCRETISATION_SHARE = 1e-5, 1e-3
# What a T-fold convolution by Fourier transform loses of a profile: at most 3.5e-16 T over twenty cases of up to 2e7 steps against extended
# precision, and a convolution of two less than 1e-14.
_FOURIER_ERROR_A_STEP = 2e-15
# Tilted mass that a composition may leave beside its grid.
_TAIL = 1e-13
# Larger than any finite loss, and finite, as differences with it must be.
_BEYOND = 1e300
# Terms whose factor is below e^-45 weigh less than the allowance.
_FAINT = 45.0


class Losses(NamedTuple):
    """A privacy loss in one direction: masses at (lowest + i) h for the interval h of the grid, and the mass at infinity.

    Formal guarantee of what makes them: a discrete pair that dominates the mechanism has no more mass at or above any loss.
    """

    lowest: int
    masses: FloatArray
    infinite: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """Equal mechanisms in a composition.

    `width` maps a tail to how wide the losses of one are but for about this mass, > 0, and `deviation` is about the standard deviation of
    one's loss: both only choose the grid, and every grid is sound. `losses` maps an interval and a tail to losses of a discrete pair that
    dominates one mechanism: both directions, or one if they are the same. About the tail may be at infinity.
    """

    width: Callable[[float], float]
    deviation: float
    count: int
    losses: Callable[[float, float], tuple[Losses, ...]]


class _Level(NamedTuple):
    r"""Down to which delta a tilt is used, and how rare the losses are that it brings to the middle: $t$ of `steepness`."""

    floor: float
    exponent: float


# Of normal losses, delta falls from floor to floor within five deviations, above the middle of the tilted ones: with a tilt further up,
# rare large losses would need more points. Below the last floor the last tilt is still sound.
_LEVELS = (_Level(1e-3, 0.0), _Level(1e-13, 5.0), _Level(1e-33, 30.0), _Level(1e-63, 72.0))
# Infinite losses of all steps together, as a share of the smallest delta of a level.
_INFINITE_SHARE = 1e-6


class _TiltedLosses(NamedTuple):
    r"""Composed losses in one direction: masses $\tilde p_l = p_l e^{sl - K}$ from the place `lowest` on; s is `slope`, K `log_scale`."""

    interval: float
    lowest: int
    masses: FloatArray
    slope: float
    log_scale: float
    infinite: float
    allowance: float

    def delta(self, level: float) -> float:
        """The delta at an epsilon, rounded up."""
        size, cell = self.masses.size, min(level / self.interval, _BEYOND)
        near = int(min(max(cell - self.lowest - 1.0, 0.0), float(size)))
        stop = size if self.slope == 0.0 else int(min(max(near + 2.0 + _FAINT / self.slope, 0.0), float(size)))
        above = (np.arange(near, stop) + self.lowest) * self.interval
        first = int(np.searchsorted(above, level, side="right"))
        beyond = level - above[first:]
        factors = -np.expm1(beyond) * np.exp(self.slope / self.interval * beyond)
        weighed = max(float(factors @ self.masses[near + first : stop]), 0.0)
        return self.infinite + self.chernoff(level) * (weighed + self.allowance)

    def chernoff(self, level: float) -> float:
        r"""$e^{K-s\epsilon}$, rounded up."""
        cell = min(level / self.interval, _BEYOND)
        exponent = self.log_scale - self.slope * cell * (1.0 - 1e-15)
        rounding = 1e-15 * (abs(self.log_scale) + self.slope * self.masses.size)
        return math.exp(min(exponent + rounding, 700.0))

    def end(self, delta: float) -> float:
        """An epsilon whose delta is at most this one but for the infinite losses, by Chernoff's bound; about right as a first guess."""
        return self.interval * max(self.log_scale - math.log(delta), 0.0) / self.slope


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossProfile(Profile):
    r"""The privacy profile of composed privacy losses: the larger one of both directions.

    For $\delta$ from 1e-3 to 1e-13 one tilt serves, for smaller and larger ones others are composed when they are first asked for. Each is
    a bound at every $\epsilon$, and they are put together so that $\delta(\epsilon)$ never rises.
    """

    factors: tuple[Factor, ...]
    _composed: dict[int, tuple[_TiltedLosses, ...]] = field(init=False, repr=False, default_factory=dict[int, tuple[_TiltedLosses, ...]])
    kind: ClassVar[str] = "privacy_losses"

    def delta(self, epsilon: float) -> float:
        """The smallest delta at `epsilon`, rounded up."""
        level = require_nonnegative("epsilon", epsilon)
        value, floor = self._bound(1, level), _LEVELS[0].floor
        return self._lowered(value, level, 0.0) if value <= floor else min(value, max(self._bound(0, level), floor))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at `delta`, rounded up."""
        target = require_delta(delta)
        if target == 0.0:
            return profile_epsilon(self.delta, target)
        if target >= _LEVELS[0].floor:
            return profile_epsilon(lambda epsilon: self._bound(0, epsilon), target)
        first = max((losses.end(target) for losses in self._at(1)), default=1.0)
        return profile_epsilon(lambda epsilon: self._lowered(self._bound(1, epsilon), epsilon, target), target, high=max(first, 1e-300))

    def describe(self) -> str:
        """Always `composed privacy losses`."""
        return "composed privacy losses"

    def _lowered(self, value: float, level: float, enough: float) -> float:
        """The smaller of `value`, which the first tilt gives, and what those for smaller deltas give, as far as they are needed."""
        for index in range(2, len(_LEVELS)):
            if value >= _LEVELS[index - 1].floor or value <= enough:
                break
            value = min(value, self._bound(index, level))
        return value

    def _bound(self, index: int, level: float) -> float:
        with np.errstate(all="ignore"):
            deltas = [losses.delta(min(level, _BEYOND)) for losses in self._at(index)]
        return min(max(deltas), 1.0) if deltas and not any(math.isnan(delta) for delta in deltas) else 1.0

    def _at(self, index: int) -> tuple[_TiltedLosses, ...]:
        """The losses at one of `_LEVELS`; none where they do not fit in floating point."""
        if index not in self._composed:
            with np.errstate(all="ignore"):
                self._composed[index] = _composed(self.factors, _LEVELS[index])
        return self._composed[index]


def compose_losses(factors: Sequence[Factor]) -> LossProfile | None:
    """The profile of the adaptive composition, or None where there are too many mechanisms.

    Reference: Doroshenko et al. 2022, arXiv:2207.04380; Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10.
    """
    if sum(factor.count for factor in factors) > MOST_STEPS:
        return None
    return LossProfile(factors=tuple(factors))


def _interval(factors: Sequence[Factor], tail: float) -> float:
    """Length of a discretisation interval: as fine as is useful, as coarse as memory needs. Coarser is only more pessimistic."""
    spread = math.sqrt(math.fsum(factor.count * factor.deviation**2 for factor in factors))
    usual, width = (max(factor.width(mass) for factor in factors) for mass in (USUAL_TAIL, tail))
    steps = sum(factor.count for factor in factors)
    lost = min(_DISCRETISATION, _DISCRETISATION_SHARE * spread)
    useful = min(_FINEST_INTERVAL, math.sqrt(8.0 * lost * spread / steps), usual / 200.0)
    built = width / min(_MOST_POINTS_TO_BUILD, _MOST_POINTS_OF_ALL / len(factors))
    smallest_intervals = (built, (16.0 * spread + 2.0 * width) / _MOST_POINTS)
    return max(useful, 1e-300, *smallest_intervals)


def _composed(factors: Sequence[Factor], level: _Level) -> tuple[_TiltedLosses, ...]:
    """The composition in each direction at a tilt; nothing where it does not fit in floating point."""
    counts = [factor.count for factor in factors]
    tail = _INFINITE_SHARE * level.floor / sum(counts)
    interval = _interval(factors, tail)
    for _ in range(_MOST_TRIES):
        parts = [factor.losses(interval, tail) for factor in factors]
        if not all(
            np.isfinite(losses.masses).all() and losses.masses.max() > 0.0 and losses.infinite < 1.0 for part in parts for losses in part
        ):
            return ()
        ways = [[part[way % len(part)] for part in parts] for way in range(max(len(part) for part in parts))]
        windows = [
            _window([Law(losses.lowest, losses.masses, count) for losses, count in zip(way, counts, strict=True)], level) for way in ways
        ]
        largest = max(window.size for window in windows)
        if largest <= _MOST_POINTS_COMPOSED:
            return tuple(_tilted_losses(way, counts, interval, window) for way, window in zip(ways, windows, strict=True))
        interval *= 1.1 * largest / _MOST_POINTS_COMPOSED
    return ()


class _Window(NamedTuple):
    """Tilted laws, by s a place, and where their sum lies."""

    laws: Tilted
    slope: float
    first: int
    size: int


def _window(laws: Sequence[Law], level: _Level) -> _Window:
    """At the tilt of the level; at a smaller one where the sum would have too many places."""
    slope, tries = steepness(laws, level.exponent) if level.exponent > 0.0 else 0.0, 1
    while True:
        parts = tilted(laws, slope)
        first, last = sum_ends(parts, _TAIL)
        if last - first < _MOST_POINTS_COMPOSED or slope == 0.0 or tries == _MOST_TRIES:
            return _Window(parts, slope, first, last - first + 1)
        slope, tries = slope * _LESS, tries + 1


def _tilted_losses(parts: Sequence[Losses], counts: Sequence[int], interval: float, window: _Window) -> _TiltedLosses:
    """One direction of the composition: the tilted masses of the sum, and the mass at infinity."""
    infinite = -math.expm1(math.fsum(count * math.log1p(-part.infinite) for part, count in zip(parts, counts, strict=True)))
    return _TiltedLosses(
        interval=interval,
        lowest=sum(part.lowest * count for part, count in zip(parts, counts, strict=True)) + window.first,
        masses=summed(window.laws.laws, window.first, window.size),
        slope=window.slope,
        log_scale=window.laws.log_scale,
        infinite=infinite * (1.0 + 1e-15 * len(parts)),
        allowance=_FOURIER_ERROR_A_STEP * (sum(counts) + 100 * len(parts)) + _TAIL,
    )
