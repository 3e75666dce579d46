"""A table in blocks whose features are transformed as they are read: what a fitted step of a pipeline hands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from lethe.errors import InputError
from lethe.estimators.inputs.readable import readable
from lethe.estimators.inputs.records import row_norms
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values
from lethe.partitions.readers import OuterReader
from lethe.partitions.table import PartitionedTable

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Standardised:
    """Columns clipped, minus a mean, over a scale.

    Args:
        low, high, mean, scale: each of shape (d,).
    """

    low: Array
    high: Array
    mean: Array
    scale: Array

    def __call__(self, rows: Values) -> Array:
        """Shape (m, d), float64."""
        found = np.clip(rows, self.low, self.high).astype(np.float64, copy=False)
        found -= self.mean  # in place: a table may be most of the memory there is
        found /= self.scale
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Projected:
    """Columns clipped, then rows projected on a ball and divided by its radius: norms are at most 1.

    Args:
        low, high: shape (d,); None: columns are not clipped.
        norm: the radius; None: rows are not projected.
    """

    low: Array | None
    high: Array | None
    norm: float | None

    def __call__(self, rows: Any) -> Any:
        """Shape (m, d), a CSR table if they came as one."""
        found = rows if self.low is None else np.clip(rows, self.low, self.high)
        if self.norm is None:
            return found
        limit = 1.0 - (found.shape[1] + 16) * _EPS  # rounded inward: no row's true norm is above 1
        with np.errstate(over="ignore", divide="ignore"):
            factors = np.minimum(limit / self.norm, limit / row_norms(found))
        wide = found.astype(np.float64, copy=False)
        return (sparse.diags_array(factors) @ wide).tocsr() if sparse.issparse(found) else wide * factors[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class Coordinates:
    """Coordinates of rows minus a mean, along some directions.

    Args:
        mean: shape (d,).
        components: shape (k, d).
    """

    mean: Array
    components: Array

    def __call__(self, rows: Values) -> Array:
        """Shape (m, k), float64."""
        return (rows - self.mean) @ self.components.T


@dataclass(frozen=True, slots=True, eq=False)
class TransformedReader(OuterReader):
    """Blocks of another reader, transformed row by row.

    Args:
        read: the other.
        function: of features, shape (m, d), to rows of `width`; it must pickle.
        fitted: names of the columns that it was fitted on.
        width: how many columns it makes.
    """

    function: Callable[[Values], Values]
    fitted: tuple[Any, ...]
    width: int

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
        function: of features, shape (m, d), to rows of `width`; it must pickle.
        fitted: names of the columns, or their numbers.
        width: None: d.
    """
    return replace(table, read=TransformedReader(table.read, function, fitted, len(fitted) if width is None else width))
