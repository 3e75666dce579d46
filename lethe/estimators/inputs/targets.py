"""Targets of a regression: public bounds, or released ones, around which they are centred and at which they are truncated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import as_number, outside
from lethe.estimators.budget import Budget
from lethe.estimators.inputs.ranges import private_ranges, ranges_cost
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array, Statement
from lethe.mechanisms.quantiles.counted import UnseenColumns
from lethe.run.run import Neighbours

TARGET_SHARE = 0.05  # of the total squared mu
_TAIL = 0.05
_WIDER = 1.5  # than the range of the middle nine tenths: of normal targets a hundredth is truncated, of even ones none
_NAME = "range of the targets (their 0.05 and 0.95 quantiles)"
_WIDEST, _NARROWEST = 1e100, 1e-300  # so that squares of targets do not overflow, and no part of a width vanishes
_NEEDED = (
    '"auto", a number B > 0 for targets within -B and B, or a pair (low, high) of numbers from -1e100 to 1e100, low the smaller one by '
    "at least 1e-300"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRange:
    """Where targets lie, as everybody may know.

    Args:
        centre: what is taken off them.
        half: B > 0; what is left lies within plus and minus B, or is truncated.
        statement: what it cost to know; None: nothing.
    """

    centre: float
    half: float
    statement: Statement | None = None


def declared_range(target_bound: Any, *, centred: bool) -> TargetRange | None:
    """The range given as public, or None where it is to be released.

    Args:
        target_bound: "auto", B, or (low, high).
        centred: whether the model has an intercept that can stand for a centre; without one the range is made symmetric about 0.
    Raises:
        InputError: it is none of these.
    """
    if isinstance(target_bound, str):
        if target_bound != "auto":
            raise outside("target_bound", target_bound, _NEEDED)
        return None
    pair = tuple(target_bound) if isinstance(target_bound, tuple | list | np.ndarray) else (target_bound,)
    if not 1 <= len(pair) <= 2:
        raise outside("target_bound", target_bound, _NEEDED)
    numbers = [as_number("target_bound", number, _NEEDED) for number in pair]
    low, high = (-numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[-1])
    if not (-_WIDEST <= low <= high <= _WIDEST and high - low >= _NARROWEST):
        raise outside("target_bound", target_bound, _NEEDED)
    return _around(low, high, centred=centred)


def range_cost(records: int, budget: Budget, *, neighbours: Neighbours, counted: bool = False) -> Statement:
    """What `released_range` of so many targets will cost, before it looks at one.

    Args:
        records: n.
        budget: the total.
        neighbours: replace_one or zero_out.
        counted: whether they are too many to gather.
    """
    guarantee = ranges_cost(records, 1, tail=_TAIL, share=budget.share(TARGET_SHARE), counted=counted)
    return planned_statement(_NAME, guarantee, neighbours=neighbours)


def released_range(
    targets: Array | UnseenColumns, budget: Budget, *, centred: bool, neighbours: Neighbours, generator: np.random.Generator | None
) -> TargetRange:
    """One and a half times the range between the 0.05 and 0.95 quantiles, released for a twentieth of the budget (in squared mu).

    Args:
        targets: shape (n,), or the one column of a table in blocks that they are.
        budget: the total.
        centred: as `declared_range`.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    found = private_ranges(
        targets[:, None] if isinstance(targets, np.ndarray) else targets,
        tail=_TAIL,
        share=budget.share(TARGET_SHARE),
        name=_NAME,
        neighbours=neighbours,
        generator=generator,
    )
    middle, half = float(found.low[0] + found.high[0]) / 2.0, _WIDER * float(found.high[0] - found.low[0]) / 2.0
    return _around(middle - half, middle + half, centred=centred, statement=found.statement)


def _around(low: float, high: float, *, centred: bool, statement: Statement | None = None) -> TargetRange:
    if not centred:
        return TargetRange(centre=0.0, half=max(abs(low), abs(high)), statement=statement)
    return TargetRange(centre=low + (high - low) / 2.0, half=(high - low) / 2.0, statement=statement)
