"""A table in blocks whose features are transformed as they are read: what a fitted step of a pipeline hands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from lethe.errors import InputError
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values
from lethe.partitions.table import PartitionedTable, TableReader


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
        found -= self.mean
        found /= self.scale
        return found


@dataclass(frozen=True, slots=True, eq=False)
class TransformedReader:
    """Blocks of another reader, transformed row by row.

    Args:
        read: the other.
        function: of features, shape (m, d), to the same; it must pickle.
        fitted: names of the columns that it was fitted on.
    """

    read: TableReader
    function: Callable[[Values], Array]
    fitted: tuple[Any, ...]

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers, as of an array: what a step of a pipeline hands on has no names."""
        return tuple(range(len(self.read.columns)))

    @property
    def has_targets(self) -> bool:
        """Whether the other has targets."""
        return self.read.has_targets

    def with_target(self, target: Any) -> Self:
        """As the other does it."""
        return replace(self, read=self.read.with_target(target))

    def __call__(self, stored: Any, name: str) -> Block:
        """A block, transformed.

        Raises:
            InputError: it has other features than were fitted.
        """
        block = self.read(stored, name)
        if block.columns != self.fitted:
            raise InputError(
                f"{name}: has {len(block.columns)} features, the first {block.columns[0]!r}; the transformation was fitted on "
                f"{len(self.fitted)}, the first {self.fitted[0]!r}, or others between.",
                source=f"{name}; nothing was released",
                remedy="name the same target in fit of every step, such as by Pipeline([...]).fit(table, 'label')",
            )
        return replace(block, columns=self.columns, features=self.function(block.features))


def transformed(table: PartitionedTable, function: Callable[[Values], Array], fitted: tuple[Any, ...]) -> PartitionedTable:
    """A table whose blocks are transformed as they are read; nothing is computed before.

    Args:
        table: in blocks.
        function: of features, shape (m, d), to the same; it must pickle.
        fitted: names of the columns, or their numbers.
    """
    return replace(table, read=TransformedReader(table.read, function, fitted))
