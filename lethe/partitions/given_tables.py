"""Tables in blocks as they are given to `fit`: with their targets, or with the name of the column that holds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.errors import InputError
from lethe.partitions.block import Block, Values, refused
from lethe.partitions.on_dask.dask_tables import dask_table, is_dask
from lethe.partitions.table import PartitionedTable


def table_in_blocks(X: Any, y: Any = None, *, targets: bool = True, beside: tuple[Any, Any] | None = None) -> PartitionedTable | None:
    """The table, where X is one in blocks; None: it is in memory.

    Args:
        X: a PartitionedTable, or a DataFrame or an Array of Dask.
        y: where X has columns with names, that of the target, or of Dask's collections one in the same partitions.
        targets: whether there must be some.
        beside: columns with what records weigh, and whose they are, each None where none is named; None: whoever asks takes neither.
    Raises:
        InputError: X and y do not fit together, or the table has weights or users that nobody would look at.
    """
    if is_dask(X):
        table = dask_table(X) if y is None or isinstance(y, str) else dask_table(X, y)
    elif isinstance(X, PartitionedTable):
        table = X
        if y is not None and not isinstance(y, str):
            raise InputError(
                f"y: got {type(y).__name__}; for a table in blocks it is the name of a column.",
                source="the argument y",
                remedy="give its name, or the targets where the table is made, such as array_table(X, y)",
            )
    else:
        return None
    if isinstance(y, str):
        table = table.with_target(y)
    if targets and not table.read.has_targets:
        raise InputError("y: it needs the targets, and the table in blocks has none.", source="the argument y", remedy="name a column")
    if beside is None:
        _refuse_beside(table)
        return table
    weights, users = beside
    return table.with_beside(weights=weights, users=users)


def looked_at_numbers(block: Block) -> None:
    """Refuse targets that are no finite numbers.

    Raises:
        InputError: see above; it names the partition.
    """
    values = targets_of(block)
    if values.dtype.kind not in "biuf":
        raise refused(block.name, "y", f"it holds {values.dtype}; it needs numbers", "write the targets as numbers before")
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite))
        raise refused(block.name, "y", f"row {row} holds {values[row]}; it needs a finite number", "leave such records out before")


def _refuse_beside(table: PartitionedTable) -> None:
    """Weights and users that were named where the table was made: left out in silence, a certificate would be of something else."""
    for named, what in ((table.read.has_weights, "weights"), (table.read.has_users, "users")):
        if named:
            raise InputError(
                f"X: the table in blocks has {what}; only fit of the linear models takes them, and of these no search and no step before.",
                source="the argument X, with_beside",
                remedy="give the table without with_beside, of the columns that are to be read",
            )


def targets_of(block: Block) -> Values:
    """The targets of a block of a table that has some."""
    assert block.targets is not None  # `table_in_blocks` has asked for them
    return block.targets
