"""Closed convex sets that parameters stay in, as projections."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lethe.calculus.domains import outside, require_positive
from lethe.calculus.rounding import pairwise_sum
from lethe.errors import InputError, LetheError
from lethe.heavy_tailed.inputs import Array


class ConvexSet(ABC):
    """A closed convex set in the Euclidean space of the parameters."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """The largest distance of two of its points; infinity where there is none."""

    @abstractmethod
    def project(self, point: Array) -> Array:
        """The nearest point of the set, shape (d,)."""

    def check(self, dimension: int) -> None:  # noqa: B027 - a set without a dimension of its own fits every one
        """Raise InputError if the set does not live in that many dimensions."""


@dataclass(frozen=True, slots=True)
class WholeSpace(ConvexSet):
    """No constraint."""

    @property
    def diameter(self) -> float:
        """Infinity."""
        return math.inf

    def project(self, point: Array) -> Array:
        """The point itself."""
        return point


@dataclass(frozen=True, slots=True, kw_only=True)
class BallDomain(ConvexSet):
    """The points at most `radius` from `centre`.

    Args:
        radius: > 0, in parameter units.
        centre: shape (d,); None: the origin, in any dimension.
    Raises:
        InputError: a number out of range.
    """

    radius: float
    centre: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", require_positive("radius", self.radius))
        if self.centre is not None:
            object.__setattr__(self, "centre", _numbers("centre", self.centre))

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2.0 * self.radius

    def project(self, point: Array) -> Array:
        """Along the line to the centre."""
        centre = 0.0 if self.centre is None else np.asarray(self.centre)
        return centre + onto_ball(point - centre, self.radius)

    def check(self, dimension: int) -> None:
        """See `ConvexSet`."""
        if self.centre is not None and len(self.centre) != dimension:
            raise outside("centre", self.centre, f"{dimension} numbers, as many as there are parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDomain(ConvexSet):
    """The points with `low` <= each coordinate <= `high`.

    Args:
        low, high: shape (d,), low < high.
    Raises:
        InputError: they differ in length or are not in order.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        low, high = _numbers("low", self.low), _numbers("high", self.high)
        if len(low) != len(high) or not all(a < b for a, b in zip(low, high, strict=True)):
            raise InputError(
                f"low = {low} and high = {high}; a box needs as many of one as of the other, each low below its high.",
                source="the arguments low and high",
                remedy="give one lower and one upper end for each parameter",
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def diameter(self) -> float:
        """The distance of two opposite corners."""
        return math.dist(self.low, self.high)

    def project(self, point: Array) -> Array:
        """Coordinate by coordinate."""
        return np.clip(point, self.low, self.high)

    def check(self, dimension: int) -> None:
        """See `ConvexSet`."""
        if len(self.low) != dimension:
            raise outside("low", self.low, f"{dimension} numbers, as many as there are parameters")


def onto_ball(point: Array, radius: float) -> Array:
    """The point if its norm is at most `radius`, else the point of that norm in its direction."""
    with np.errstate(over="ignore"):
        norm = math.sqrt(pairwise_sum(np.square(point)))
    if norm == math.inf:  # of squares, which overflow for entries beyond 1e154
        units = point / np.abs(point).max()
        return units * (radius / math.sqrt(pairwise_sum(np.square(units))))
    return point if norm <= radius else point * (radius / norm)


def onto_two_balls(point: Array, first: BallDomain, second: BallDomain) -> Array:
    r"""The nearest point of the intersection of two balls $B(a, R)$ and $B(c, r)$, in closed form.

    If the projection on one ball lies in the other, it is the answer. Otherwise the answer lies on both spheres, that is, on the sphere of
    radius $\sqrt{R^2 - h^2}$ about $a + hu$ in the plane across $u = (c - a)/\ell$, with $\ell = \|c - a\|$ and
    $h = (\ell^2 + R^2 - r^2)/(2\ell)$.

    Args:
        point: shape (d,).
        first, second: balls with centres that intersect.
    Raises:
        InputError: the balls do not intersect, beyond rounding.
    """
    a = np.zeros_like(point) if first.centre is None else np.asarray(first.centre)
    c = np.zeros_like(point) if second.centre is None else np.asarray(second.centre)
    big, small = first.radius, second.radius
    slack = 1e-13 * (big + small)
    on_first = a + onto_ball(point - a, big)
    if float(np.linalg.norm(on_first - c)) <= small + slack:
        return on_first
    on_second = c + onto_ball(point - c, small)
    if float(np.linalg.norm(on_second - a)) <= big + slack:
        return on_second
    distance = float(np.linalg.norm(c - a))
    if distance > big + small + slack:
        raise InputError(
            f"two balls of radius {big:g} and {small:g}, {distance:g} apart, do not meet; a projection needs them to.",
            source="first and second",
            remedy="start from a point of the domain",
        )
    along = (c - a) / distance
    height = (distance * distance + big * big - small * small) / (2.0 * distance)
    foot = a + height * along
    across = (point - foot) - float((point - foot) @ along) * along
    length = float(np.linalg.norm(across))
    rim = math.sqrt(max(big * big - height * height, 0.0))
    return foot + (across * (rim / length) if length > 0.0 else 0.0)


def dykstra(point: Array, sets: Sequence[ConvexSet], *, tolerance: float = 1e-12, most_rounds: int = 100_000) -> Array:
    """The nearest point of the intersection of any convex sets, by Dykstra's alternating projections.

    Args:
        point: shape (d,).
        sets: sets that have a point in common.
        tolerance: it stops when a round moves the point by less than this, relative to 1 + its norm.
        most_rounds: it gives up after so many.
    Raises:
        LetheError: it did not settle, as when the sets have no point in common.
    Reference: Boyle & Dykstra 1986, "A method for finding projections onto the intersection of convex sets in Hilbert spaces".
    """
    current, corrections = point.copy(), [np.zeros_like(point) for _ in sets]
    for _ in range(most_rounds):
        before, moved = current, 0.0
        for index, convex in enumerate(sets):
            shifted = current + corrections[index]
            current = convex.project(shifted)
            moved += float(np.linalg.norm(shifted - current - corrections[index]))
            corrections[index] = shifted - current
        if float(np.linalg.norm(current - before)) + moved <= tolerance * (1.0 + float(np.linalg.norm(current))):
            return current
    raise LetheError(
        f"alternating projections did not settle in {most_rounds} rounds.",
        source="the domain and the ball about the starting point",
        remedy="check that they have a point in common",
    )


def _numbers(name: str, values: Sequence[float]) -> tuple[float, ...]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise outside(name, values, "a non-empty row of finite numbers") from None
    if array.dtype.kind not in "iuf" or array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)):
        raise outside(name, values, "a non-empty row of finite numbers")
    return tuple(array.astype(np.float64).tolist())
