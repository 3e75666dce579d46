"""Targets of a regression: public bounds, or released ones, around which they are centred and at which they are truncated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import as_number, outside
from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.inputs.ranges import private_ranges
from lethe.estimators.paying import planned_statement
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located import CountedColumns, located_cost
from lethe.run.run import Neighbours

# Of the total squared mu: as much as makes n mu 50, within these bounds. A larger part is worth its price where records are few: a range
# that is twice too wide doubles all noise.
_UNITS, _LEAST, _MOST = 50.0, 0.05, 0.3
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


def range_cost(records: int, budget: PrivacyBudget, *, neighbours: Neighbours) -> Statement:
    """What `released_range` of so many targets will cost, before it looks at one.

    Args:
        records: n.
        budget: the total.
        neighbours: replace_one or zero_out.
    """
    return planned_statement(_NAME, located_cost(1, _share(records, budget), neighbours), neighbours=neighbours)


def _share(records: int, budget: PrivacyBudget) -> GDP:
    return budget.planned_share(records, units=_UNITS, least=_LEAST, most=_MOST)


def released_range(
    targets: Array | CountedColumns, budget: PrivacyBudget, *, centred: bool, neighbours: Neighbours, generator: np.random.Generator | None
) -> TargetRange:
    """One and a half times the range between the 0.05 and 0.95 quantiles, released for 5 to 30 % of the budget (in squared mu).

    Args:
        targets: shape (n,), or the one column of a table in blocks that they are.
        budget: the total.
        centred: as `declared_range`.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    found = private_ranges(
        targets,
        tail=_TAIL,
        share=_share(targets.shape[0], budget),
        name=_NAME,
        give="target_bound=(low, high)",
        of_target=True,
        neighbours=neighbours,
        generator=generator,
    )
    middle, half = float(found.low[0] + found.high[0]) / 2.0, _WIDER * float(found.high[0] - found.low[0]) / 2.0
    return _around(middle - half, middle + half, centred=centred, statement=found.statement)


def _around(low: float, high: float, *, centred: bool, statement: Statement | None = None) -> TargetRange:
    if not centred:
        return TargetRange(centre=0.0, half=max(abs(low), abs(high)), statement=statement)
    return TargetRange(centre=low + (high - low) / 2.0, half=(high - low) / 2.0, statement=statement)
