r"""Ranges of columns as released quantiles, where no public bounds are known: targets of a regression, columns of a table.

Values are ranked in the coordinate $t(v) = \mathrm{sign}(v)\log(1 + |v|/s)$, $s = 10^{-4}$, in which one public range fits columns of
any unit and either sign. Values beyond its ends are put at them. Values that tie, there or elsewhere, would leave the exponential mechanism
no interval between them, and often the wide one beside them all; so before they are ranked every record is moved by a fixed amount of its
own, which depends on its place alone, and the range is wider by as much. Each record is treated by itself: neighbours stay neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lethe.calculus.any_guarantee.composition import joined
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_down
from lethe.certificates.findings import enforced
from lethe.estimators.inputs.columns import listed
from lethe.estimators.inputs.range_ends import end_is_informative, public_sizes, warn_of_end
from lethe.mechanisms.base import Array, Statement, joint
from lethe.mechanisms.quantiles.counted import UnseenColumns
from lethe.mechanisms.quantiles.quantile import Quantile, private_quantile, quantile_cost, searched_quantiles
from lethe.mechanisms.quantiles.searched import COMPARISONS
from lethe.run.run import Neighbours

_FINE = 1e-4  # where t bends
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_WIDTH = 1e-3  # of what ties are spread over, in t: a thousandth of a value


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


def spread(points: Array, *, width: float = _WIDTH) -> Array:
    r"""Each point moved by $w(\{i\varphi\} - \frac12)$, i its place, $\varphi$ the golden ratio: ties are drawn out evenly."""
    return points + width * ((np.arange(points.size) * _GOLDEN) % 1.0 - 0.5)


def ranges_cost(records: int, columns: int, *, tail: float, share: GDP, counted: bool = False) -> Guarantee:
    """The guarantee of `private_ranges` of so many records and columns, known before one is looked at.

    Args:
        records: n.
        columns: d.
        tail, share: as `private_ranges`.
        counted: whether they are too many to gather.
    """
    one, method = _one_quantile(share, columns), "search" if counted else "auto"
    return joined([(quantile_cost(quantile, records, one, method), 1) for _ in range(columns) for quantile in (tail, 1.0 - tail)])


def _one_quantile(share: GDP, columns: int) -> GDP:
    return GDP(round_down(share.mu / math.sqrt(2.0 * columns), 1e-14))


def private_ranges(
    table: Array | UnseenColumns, *, tail: float, share: GDP, name: str, neighbours: Neighbours, generator: np.random.Generator | None
) -> Ranges:
    r"""The `tail` and `1 - tail` quantiles of every column, each $(\mu/\sqrt{2d})$-GDP.

    Two that come out in the wrong order are exchanged, two nearer than ties are spread are moved apart, and one at the end of the public
    range is warned of; all that is post-processing.

    Args:
        table: shape (n, d), float64 or float32, every record present; n is public. Or the columns of a table in blocks; of very many
            records quantiles are searched for, since only counts of them can be had.
        tail: in (0, 1/2).
        share: what all of them may cost together.
        name: of what is released.
        neighbours: replace_one or zero_out.
        generator: None where privacy matters.
    """
    count, columns = table.shape
    one = _one_quantile(share, columns)
    counted = not isinstance(table, np.ndarray) and table.many
    _, far = public_sizes(tail, count, one, searched=counted)
    end = float(coordinate(np.array(far)))
    limit = end + _WIDTH / 2.0
    found, at_end = np.empty((columns, 2)), np.zeros((columns, 2))
    settings: dict[str, Any] = {"low": -limit, "high": limit, "target": one, "neighbours": neighbours, "records": count}
    settings["generator"] = generator
    if not isinstance(table, np.ndarray) and table.many:
        # Ties need not be spread out: a search compares counts.
        released = searched_quantiles(
            lambda points: table.at_most(points.reshape(columns, 2), far).ravel(), quantiles=[tail, 1.0 - tail] * columns, **settings
        )
    else:
        released = list[Quantile]()
        for column in range(columns):
            values = table[:, column] if isinstance(table, np.ndarray) else table.column(column)
            points = spread(coordinate(np.clip(values.astype(np.float64), -far, far)))
            released += [private_quantile(points, quantile=quantile, **settings) for quantile in (tail, 1.0 - tail)]
    for place, one_side in enumerate(released):
        column, side = divmod(place, 2)
        cell = 2.0 * limit / 2**COMPARISONS if one_side.method == "search" else _WIDTH
        # A search ends in the middle of a cell: the range reaches to the cell's end.
        found[column, side] = one_side.value + ((side - 0.5) * cell if one_side.method == "search" else 0.0)
        at_end[column, side] = np.sign(one_side.value) * (abs(one_side.value) >= limit - cell)
    for sign, beyond in ((-1.0, "Values below"), (1.0, "Values above")) if end_is_informative(tail, count, one) else ():
        places = np.flatnonzero((at_end == sign).any(axis=1))
        if places.size:
            where = "" if columns == 1 else f", columns {listed(places.tolist())}, counted from 0"
            warn_of_end(f"{name}{where}", sign * far, beyond=beyond)
    found = np.clip(found, -end, end)
    middle, half = found.mean(axis=1), np.maximum(np.abs(found[:, 1] - found[:, 0]) / 2.0, _WIDTH)
    total = joint([one_side.statement for one_side in released], name=name)
    ends = f"[{-far:g}, {far:g}] for every data set of {count} records, fixed in the code"
    return Ranges(
        low=_value(middle - half),
        high=_value(middle + half),
        statement=replace(total, findings=enforced(total.findings, {"public range": ends})),
    )


def coordinate(values: Array) -> Array:
    """t(v), shape as the values."""
    return np.sign(values) * np.log1p(np.abs(values) / _FINE)


def _value(coordinates: Array) -> Array:
    return np.sign(coordinates) * _FINE * np.expm1(np.abs(coordinates))
