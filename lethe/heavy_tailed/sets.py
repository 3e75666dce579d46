"""Closed convex sets that parameters stay in, as projections: whole space, ball, box. Users give one to a `Problem`; the solvers project
each iterate on it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from lethe.calculus.domains import outside, require_positive
from lethe.calculus.rounding import pairwise_sum
from lethe.errors import InputError

Array = NDArray[np.float64]


def require_point(name: str, value: object, dimension: int | None) -> Array:
    """Return a copy of a finite float vector, shape (dimension,) (None: of any length from 1 on), or raise InputError."""
    needed = f"{'some' if dimension is None else dimension} finite numbers in one row"
    try:
        point = np.array(value)
    except (TypeError, ValueError):
        raise outside(name, value, needed) from None
    fits = point.ndim == 1 and point.size == (dimension or max(point.size, 1))
    if point.dtype.kind not in "iuf" or not fits or not np.all(np.isfinite(point)):
        raise outside(name, value, needed)
    return point.astype(np.float64)


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

    Examples:
        >>> import numpy as np
        >>> from lethe.heavy_tailed import BallDomain
        >>> BallDomain(radius=1.0).project(np.array([3.0, 4.0])).round(3).tolist()
        [0.6, 0.8]
    """

    radius: float
    centre: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", require_positive("radius", self.radius))
        if self.centre is not None:
            object.__setattr__(self, "centre", tuple(require_point("centre", self.centre, None).tolist()))

    @property
    def diameter(self) -> float:
        """Twice the radius."""
        return 2.0 * self.radius

    def project(self, point: Array) -> Array:
        """Along the line to the centre."""
        centre = 0.0 if self.centre is None else np.asarray(self.centre)
        return centre + onto_ball(point - centre, self.radius)

    def check(self, dimension: int) -> None:
        """Raise an InputError if the centre has another dimension."""
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
        for name in ("low", "high"):
            object.__setattr__(self, name, tuple(require_point(name, getattr(self, name), None).tolist()))
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise InputError(
                f"low = {self.low} and high = {self.high}; a box needs as many of one as of the other, each low below its high.",
                source="the arguments low and high",
                remedy="give one lower and one upper end for each parameter",
            )

    @property
    def diameter(self) -> float:
        """The distance of two opposite corners."""
        return math.dist(self.low, self.high)

    def project(self, point: Array) -> Array:
        """Coordinate by coordinate."""
        return np.clip(point, self.low, self.high)

    def check(self, dimension: int) -> None:
        """Raise an InputError if the bounds have another dimension."""
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


def near_projection(domain: ConvexSet, centre: Array, radius: float) -> Callable[[Array], Array]:
    r"""The projection on the points of a domain that lie in a ball about one of its points.

    Where both bind it is $\Pi_W(c + s(z - c))$ for the s in (0, 1) at which that is r from the centre c: the Lagrangian
    $\|x - z\|^2 + \lambda(\|x - c\|^2 - r^2)$ is a square about $c + (z - c)/(1 + \lambda)$.

    The centre, a point of W, has shape (d,), and r > 0.
    """
    ball = BallDomain(radius=radius, centre=tuple(centre.tolist()))
    if isinstance(domain, WholeSpace):
        return ball.project

    def project(point: Array) -> Array:
        inside = domain.project(point)
        if float(np.linalg.norm(inside - centre)) <= radius:
            return inside
        near = ball.project(point) - centre

        def excess(logarithm: float) -> float:
            return float(np.linalg.norm(domain.project(centre + math.exp(logarithm) * near) - centre)) - radius

        if excess(0.0) > -1e-13 * radius:
            return domain.project(centre + near)
        farthest = math.log(2.0 * math.sqrt(point.size) * float(np.abs(point - centre).max()) / radius)
        return domain.project(centre + math.exp(float(brentq(excess, 0.0, farthest, xtol=1e-15, maxiter=1000))) * near)  # pyright: ignore[reportArgumentType]

    return project
