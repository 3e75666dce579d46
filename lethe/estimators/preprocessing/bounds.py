"""Bounds of columns: given as public, or released as private quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import outside
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.inputs.ranges import private_ranges
from lethe.mechanisms.base import Array
from lethe.mechanisms.tables import one_a_column
from lethe.run.run import Neighbours

_NEEDED = '"auto", or a pair (low, high) of numbers or of lists with one a column'
_LARGEST = 1e100


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """Between which values are clipped.

    Args:
        low: shape (d,).
        high: shape (d,), above low.
        statement: what they cost; None: nothing.
    """

    low: Array
    high: Array
    statement: Statement | None = None


def declared_bounds(bounds: Any, columns: int) -> Bounds | None:
    """The bounds given as public, or None where they are to be released.

    Raises:
        InputError: they are no such pair, or low is not below high.
    """
    if isinstance(bounds, str) and bounds == "auto":
        return None
    if isinstance(bounds, str) or not hasattr(bounds, "__len__") or len(bounds) != 2:
        raise outside("bounds", bounds, _NEEDED)
    return ordered_bounds(
        "bounds[0]",
        bounds[0],
        "bounds[1]",
        bounds[1],
        columns,
        remedy='give bounds known without looking at the data, or bounds="auto": private quantiles, paid for',
    )


def ordered_bounds(name: str, low: Any, other: str, high: Any, columns: int, *, remedy: str) -> Bounds:
    """Public bounds, a number or one a column each.

    Args:
        name: of low, as a parameter.
        low: the lower ones.
        other: the name of high.
        high: the upper ones.
        columns: d.
        remedy: what to give instead.
    Raises:
        InputError: they are no such numbers, or low is not below high.
    """
    lower, upper = one_a_column(name, low, columns), one_a_column(other, high, columns)
    wrong = ~((lower >= -_LARGEST) & (lower < upper) & (upper <= _LARGEST))
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{name} and {other} of column {first}: got {lower[first]:g} and {upper[first]:g}; low must be below high, both within 1e100.",
            source=f"the parameters {name} and {other}",
            remedy=remedy,
        )
    return Bounds(low=lower, high=upper)


def released_bounds(
    table: Any, *, tail: float, wider: float, share: GDP, give: str, neighbours: Neighbours, generator: np.random.Generator | None
) -> Bounds:
    """The range between two quantiles of every column, made `wider` times as wide around its middle.

    Args:
        table: shape (n, d).
        tail: in (0, 1/2).
        wider: at least 1.
        share: what it may cost.
        give: the parameter that needs no release, for a warning.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    found = private_ranges(
        table,
        tail=tail,
        share=share,
        name=f"ranges of {table.shape[1]} columns (their {tail:g} and {1.0 - tail:g} quantiles)",
        give=give,
        neighbours=neighbours,
        generator=generator,
    )
    middle, half = (found.low + found.high) / 2.0, wider * (found.high - found.low) / 2.0
    return Bounds(low=middle - half, high=middle + half, statement=found.statement)
