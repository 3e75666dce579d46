"""A table in blocks whose features are transformed as they are read: what a fitted step of a pipeline hands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from lethe.errors import InputError
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import readable
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values
from lethe.partitions.readers import OuterReader
from lethe.partitions.table import PartitionedTable

_EPS = float(np.finfo(np.float64).eps)


def standardised(rows: Values, low: Array, high: Array, mean: Array, scale: Array) -> Array:
    """Columns clipped, minus a mean, over a scale, shape (m, d), float64.

    Args:
        rows: shape (m, d).
        low, high, mean, scale: each of shape (d,).
    """
    found = np.clip(rows, low, high).astype(np.float64, copy=False)
    found -= mean  # in place: a table may be most of the memory there is
    found /= scale
    return found


def projected(rows: Any, low: Array | None, high: Array | None, norm: float | None) -> Any:
    """Columns clipped, then rows projected on a ball and divided by its radius: norms are at most 1; a CSR table if they came as one.

    Args:
        rows: shape (m, d).
        low, high: shape (d,); None: columns are not clipped.
        norm: the radius; None: rows are not projected.
    """
    found = rows if low is None else np.clip(rows, low, high)
    if norm is None:
        return found
    limit = 1.0 - (found.shape[1] + 16) * _EPS  # rounded inward: no row's true norm is above 1
    with np.errstate(over="ignore", divide="ignore"):
        factors = np.minimum(limit / norm, limit / row_norms(found))
    wide = found.astype(np.float64, copy=False)
    return (sparse.diags_array(factors) @ wide).tocsr() if sparse.issparse(found) else wide * factors[:, None]


def coordinates(rows: Values, mean: Array, components: Array) -> Array:
    """Coordinates of rows minus a mean, along some directions, shape (m, k), float64.

    Args:
        rows: shape (m, d).
        mean: shape (d,).
        components: shape (k, d).
    """
    return (rows - mean) @ components.T


@dataclass(frozen=True, slots=True, eq=False)
class TransformedReader(OuterReader):
    """Blocks of another reader, transformed row by row."""

    function: Callable[[Values], Values]  # of features, shape (m, d), to rows of `width`; it must pickle
    fitted: tuple[Any, ...]  # names of the columns that it was fitted on
    width: int  # how many columns it makes

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers, as of an array: what a step of a pipeline hands on has no names."""
        return tuple(range(self.width))

    def __call__(self, stored: Any, name: str) -> Block:
        """A block, transformed.

        Raises:
            InputError: it has other features than were fitted, or NaN or infinity, which clipping would hide.
        """
        block = self.read(stored, name)
        if block.columns != self.fitted:
            raise InputError(
                f"{name}: has {len(block.columns)} features from {block.columns[0]!r} on; fitted were {len(self.fitted)} from "
                f"{self.fitted[0]!r} on.",
                source=f"{name}; nothing was released",
                remedy="name the same target in every step, such as by Pipeline([...]).fit(table, 'label')",
            )
        block.refuse_not_finite()
        return replace(block, columns=self.columns, features=self.function(readable(block.features) if len(block) else block.features))


def transformed(
    table: PartitionedTable, function: Callable[[Values], Values], fitted: tuple[Any, ...], *, width: int | None = None
) -> PartitionedTable:
    """A table whose blocks are transformed as they are read; nothing is computed before.

    Args:
        table: in blocks.
        function, fitted, width: as of `TransformedReader`; None: d.
    """
    return replace(table, read=TransformedReader(table.read, function, fitted, len(fitted) if width is None else width))
