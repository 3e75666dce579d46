"""RecordSums: a partitioned table as mechanisms read it, rows of bounded norm with their targets, of which they get sums only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.calculus.domains import FloatArray
from lethe.errors import InputError, LetheError
from lethe.partitions.block import Block
from lethe.partitions.table import ExaminedTable

# Rows, float64, shape (m, D), and their targets, shape (m,): records of a block, a chunk at a time.
Chunks = Iterable[tuple[FloatArray, FloatArray]]
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordSums:
    """Sums over the records of a table.

    Args:
        table: that was looked through.
        prepare: makes chunks of a block, each record by itself; it must pickle.
        columns: D, of the rows that it makes.
        norm: the bound on their Euclidean norms; a chunk that breaks it ends the pass.
    """

    table: ExaminedTable
    prepare: Callable[[Block], Iterator[tuple[FloatArray, FloatArray]]]
    columns: int
    norm: float

    def __len__(self) -> int:
        return self.table.shape[0]

    def require_norm(self, norm: float) -> None:
        """Refuse rows that may be longer than a mechanism supposes."""
        if not self.norm <= norm * _ROUNDING:
            raise InputError(f"features: rows have norms up to {self.norm:g}; the mechanism supposes at most {norm:g}.")

    def sum(self, function: Callable[..., tuple[Any, ...]], *parameters: Any) -> tuple[FloatArray, ...]:
        """Sums of what a function of (Chunks, *parameters) gives of each block: one pass.

        It gives a tuple of arrays of fixed shapes, and must pickle; a block without records has no chunks.
        """
        return self.table.sum(_of_block, self.prepare, self.norm * _ROUNDING, function, *parameters)


def _of_block(block: Block, prepare: Callable[[Block], Chunks], norm: float, function: Callable[..., Any], *rest: Any) -> Any:
    return function(_checked(prepare(block), norm), *rest)


def _checked(chunks: Chunks, norm: float) -> Iterator[tuple[FloatArray, FloatArray]]:
    for rows, targets in chunks:
        if len(rows) and not float(np.einsum("nd,nd->n", rows, rows).max()) <= norm * norm:
            raise LetheError("a row is longer than its bound; nothing was released.", source="what prepares rows for a mechanism")
        yield rows, targets
