"""Column bounds found privately: two quantiles of every column, each paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import as_number, outside
from lethe.calculus.guarantees import GDP, Guarantee
from lethe.calculus.rounding import round_down
from lethe.mechanisms.base import Array, Statement, joint, target_mu
from lethe.mechanisms.quantiles.quantile import private_quantile
from lethe.mechanisms.tables import one_a_column, public_records, require_table
from lethe.run.run import Neighbours


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ColumnBounds:
    """Released bounds.

    Args:
        low: shape (d,).
        high: shape (d,), above low.
        statement: what they cost.
    """

    low: Array
    high: Array
    statement: Statement


def private_bounds(
    rows: ArrayLike,
    *,
    low: ArrayLike,
    high: ArrayLike,
    target: Guarantee,
    tail: float = 0.05,
    neighbours: Neighbours = "replace_one",
    records: int | None = None,
    generator: np.random.Generator | None = None,
) -> ColumnBounds:
    r"""The `tail` and `1 - tail` quantiles of every column, each $(\mu/\sqrt{2d})$-GDP, together $\mu$-GDP.

    Where the two come out less than a thousandth of the public range apart, or in the wrong order, they are moved apart around their
    middle.

    Args:
        rows: shape (m, d).
        low: lower ends of public ranges, a number or one a column.
        high: their upper ends.
        target: the guarantee wanted, of all quantiles together; Gaussian noise must be able to meet it.
        tail: in (0, 1/2).
        neighbours: "replace_one", or "zero_out": the record is absent from the table, n stays public.
        records: n; None: as many as there are rows, where one is replaced.
        generator: for tests, and the statement is then `seeded`; None: fresh entropy.
    Raises:
        InputError: an argument is outside its range.
    """
    table = require_table("rows", rows)
    columns = table.shape[1]
    lows, highs = one_a_column("low", low, columns), one_a_column("high", high, columns)
    count = public_records(records, table.shape[0], neighbours)
    if not 0.0 < as_number("tail", tail, "a number above 0 and below 1/2") < 0.5:
        raise outside("tail", tail, "a number above 0 and below 1/2")
    share = GDP(round_down(target_mu(target) / math.sqrt(2.0 * columns), 1e-14))
    found = [
        [
            private_quantile(
                table[:, column],
                quantile=level,
                low=float(lows[column]),
                high=float(highs[column]),
                target=share,
                neighbours=neighbours,
                records=count,
                generator=generator,
            )
            for level in (tail, 1.0 - tail)
        ]
        for column in range(columns)
    ]
    values = np.array([[pair[0].value, pair[1].value] for pair in found])
    middle, half = values.mean(axis=1), np.maximum((values[:, 1] - values[:, 0]) / 2.0, (highs - lows) / 2000.0)
    statement = joint([quantile.statement for pair in found for quantile in pair], name=f"bounds of {columns} columns")
    return ColumnBounds(low=middle - half, high=middle + half, statement=statement)
