"""Ranges of columns as released quantiles, where no public bounds are known: targets of a regression, columns of a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.guarantees import GDP
from lethe.certificates.statement import Statement
from lethe.estimators.inputs.columns import listed
from lethe.estimators.inputs.range_warnings import warn_of_end, warn_of_few, warn_of_tiny, warn_of_undetected
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located import ColumnsInMemory, CountedColumns, located_quantiles
from lethe.mechanisms.quantiles.read_off import Flags
from lethe.run.run import Neighbours

_FEW = 25.0  # n mu of a column: with 20, a third of generated ranges was missed, with 30, one in a hundred


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranges:
    """Released quantiles of d columns.

    Args:
        low: shape (d,).
        high: shape (d,), above low.
        statement: what they cost.
    """

    low: Array
    high: Array
    statement: Statement


def private_ranges(
    table: np.ndarray[Any, Any] | CountedColumns,
    *,
    tail: float,
    share: GDP,
    name: str,
    give: str,
    of_target: bool = False,
    neighbours: Neighbours,
    generator: np.random.Generator | None,
) -> Ranges:
    """The `tail` and `1 - tail` quantiles of every column, with a warning of those of which nothing could be told.

    Args:
        table: shape (n, d), float64 or float32, every record present; n is public. Or the columns of a table in blocks.
        tail: in (0, 1/2).
        share: what all of them may cost together.
        name: of what is released.
        give: the parameter that needs no release, for the warning.
        of_target: whether these are the targets, whose range decides on all that is learned: no guess is taken for it, and it is warned of
            where only values next to 0 were seen.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    columns = ColumnsInMemory(table) if isinstance(table, np.ndarray) else table
    records, width = columns.shape
    located = located_quantiles(
        columns,
        tails=(tail, tail),
        guesses=not of_target,
        target=share,
        neighbours=neighbours,
        name=name,
        generator=generator,
    )

    def places(flags: Flags) -> str:
        return name if width == 1 else f"{name}, columns {listed(np.flatnonzero(flags).tolist())}, counted from 0"

    if located.beyond.any():
        warn_of_end(places(located.beyond), beyond="Larger values")
    if located.undetected.any():
        warn_of_undetected(places(located.undetected), records, so="all of them count as 0, or nearly so", give=give)
    elif records * share.mu < _FEW * math.sqrt(width):
        warn_of_few(name, records, give=give)
    if of_target and located.tiny.any():
        warn_of_tiny(places(located.tiny), so="these count as 0, or nearly so")
    return Ranges(low=located.low, high=located.high, statement=located.statement)
