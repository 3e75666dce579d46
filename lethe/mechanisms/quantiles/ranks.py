r"""RankedValues: how far a point of a public range is from a quantile of the data, counted in records.

$$v(r) = \#\{i : z_i < r\} - p\,m,$$

with m the records that are present. Formal bound: for every r, one record moves $v(r)$ by at most 1 when it is replaced (m stays, one count
changes), and by p or $1 - p$ when it is zeroed out, that is absent from the list: every r above it loses $1 - p$, every r below it gains p.
Neither depends on n, so n may be public and the number m of those present need not be.

A record that is zeroed out has no value here. If its value became 0 instead, it would be replaced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import as_number, outside
from lethe.errors import InputError
from lethe.mechanisms.base import Array, require_swap

Spacing = Literal["linear", "logarithmic"]
_NEEDED = "a number above 0 and below 1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankedValues:
    """Sorted, clipped values in the coordinate of the range.

    Args:
        points: shape (m,), sorted.
        low: the lower end of the range, in the same coordinate.
        high: its upper end.
        rank: p m.
        sensitivity: how far one record moves v(r), at any r.
        spacing: the coordinate: the value itself, or its logarithm.
    """

    points: Array
    low: float
    high: float
    rank: float
    sensitivity: float
    spacing: Spacing

    def value(self, coordinate: float) -> float:
        """A coordinate as a value, within the range."""
        point = min(max(coordinate, self.low), self.high)
        return float(np.exp(point)) if self.spacing == "logarithmic" else point


def rank_sensitivity(quantile: float, neighbours: object) -> float:
    """1 where a neighbour replaces one record, max(p, 1 - p) where it zeroes one out.

    Raises:
        InputError: p is not in (0, 1), or another relation.
    """
    if not 0.0 < as_number("quantile", quantile, _NEEDED) < 1.0:
        raise outside("quantile", quantile, _NEEDED)
    return 1.0 if require_swap(neighbours) == 2.0 else max(quantile, 1.0 - quantile)


def ranked(values: ArrayLike, *, quantile: float, low: float, high: float, neighbours: object, spacing: Spacing) -> RankedValues:
    """Check, clip, change the coordinate and sort.

    Args:
        values: shape (m,), finite; m = 0 is allowed.
        quantile: p in (0, 1).
        low: the lower end of the public range; above 0 for logarithmic spacing.
        high: its upper end.
        neighbours: "replace_one" or "zero_out".
        spacing: "linear", or "logarithmic" for a range over several powers of ten.
    Raises:
        InputError: an argument is outside its range.
    """
    level, sensitivity = as_number("quantile", quantile, _NEEDED), rank_sensitivity(quantile, neighbours)
    if spacing not in get_args(Spacing):
        raise outside("spacing", spacing, "one of " + ", ".join(get_args(Spacing)))
    ends = np.array([as_number("low", low, "a finite number below high"), as_number("high", high, "a finite number above low")])
    with np.errstate(over="ignore", invalid="ignore"):
        width = float(ends[1] - ends[0])
    if not (np.isfinite(ends).all() and 0.0 < width < math.inf):
        raise InputError(
            f"low = {low!r}, high = {high!r}; the range needs two finite numbers, low below high.",
            source="the arguments low and high",
            remedy="give a range known without looking at the data",
        )
    if spacing == "logarithmic" and not ends[0] > 0.0:
        raise outside("low", low, "a finite number > 0, as spacing is logarithmic")
    points = coordinates(_list(values), float(ends[0]), float(ends[1]), spacing)
    points.sort()
    if spacing == "logarithmic":
        ends = np.log(ends)
    return RankedValues(
        points=points,
        low=float(ends[0]),
        high=float(ends[1]),
        rank=level * points.size,
        sensitivity=sensitivity,
        spacing=spacing,
    )


def coordinates(values: Array, low: float, high: float, spacing: Spacing) -> Array:
    """Values clipped to the range, in its coordinate, shape (m,).

    Args:
        values: shape (m,), finite.
        low, high: the range.
        spacing: as `ranked`.
    """
    points = np.clip(values, low, high)
    return np.log(points) if spacing == "logarithmic" else points


def _list(values: ArrayLike) -> Array:
    needed = "a one-dimensional list of finite numbers"
    try:
        array = np.array(values)
    except (TypeError, ValueError):
        raise outside("values", type(values).__name__, needed) from None
    if array.ndim == 1 and array.size == 0:
        return np.zeros(0)
    if array.dtype.kind not in "iuf" or array.ndim != 1 or not np.isfinite(array).all():
        raise outside("values", f"array of shape {array.shape} and type {array.dtype}, or an entry that is not finite", needed)
    return array.astype(np.float64)
