"""Numbers of single records, gathered by the driver for a private quantile; only where they are few enough to sort."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lethe.errors import InputError
from lethe.estimators.inputs.readable import readable
from lethe.estimators.inputs.records import row_norms
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block
from lethe.partitions.table import ExaminedTable

MOST_GATHERED = 2**23  # 64 MiB, and ten times that while they are ranked


def refuse_many(table: ExaminedTable, what: str, instead: str) -> None:
    """Refuse to gather a number of every record where there are too many.

    Args:
        table: that was looked through.
        what: parameter asks for it.
        instead: what to give.
    Raises:
        InputError: there are more than `MOST_GATHERED`.
    """
    if table.shape[0] > MOST_GATHERED:
        raise InputError(
            f"{what}: its quantile needs a number of each of {table.shape[0]} records in one place; at most {MOST_GATHERED} are gathered.",
            source="the size of the table in blocks",
            remedy=f"give {instead}, known without looking at the data",
        )


def gathered_norms(table: ExaminedTable) -> Array:
    """The norm of every row, shape (n,), in the order of the blocks: one pass."""
    return _gathered(table, _norms)


def gathered_targets(table: ExaminedTable) -> Array:
    """Every target, shape (n,), in the order of the blocks: one pass."""
    return _gathered(table, _goals)


def _gathered(table: ExaminedTable, function: Callable[[Block], Array]) -> Array:
    values = np.empty(table.shape[0])
    start = 0
    for answer in table.answers(function, ()):
        found: Any = answer.values
        values[start : start + len(found)] = found
        start += len(found)
    assert start == len(values)  # each block was seen to hold as many records as before
    return values


def _norms(block: Block) -> Array:
    return row_norms(readable(block.features)) if len(block) else np.empty(0)


def _goals(block: Block) -> Array:
    assert block.targets is not None
    return block.targets.astype(np.float64)
