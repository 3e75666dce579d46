"""Records in blocks as the solvers for heavy tails ask for them: clipped sums of gradients, each of which is one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.estimators.heavy_tailed.linear import LinearScoreProblem, ScoreGradients, Slope, clipped_to, linear_records
from lethe.estimators.inputs.readable import readable
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.partitioned.gathered import BlockSizes
from lethe.heavy_tailed.oracles import clip_rows
from lethe.heavy_tailed.problem import Problem, RecordsInBlocks
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values
from lethe.partitions.table import ConsecutiveRecords

_CHUNK = 2**17  # entries that are held at 8 bytes at once: a MiB

Largest = Callable[[Array, Array, float | None], Array]


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """What is made of a block: features with the constant 1, targets and norms; it is sent to workers.

    Args:
        targets: makes what the loss takes of a block's targets.
        intercept: whether to append the constant.
    """

    targets: Callable[[Values], Array]
    intercept: bool

    def __call__(self, block: Block) -> Iterator[tuple[Array, Array, Array]]:
        """As `linear_records`, a chunk at a time."""
        assert block.targets is not None
        for rows, part in _chunks(block):
            wide = np.hstack([rows, np.ones((len(rows), 1))]) if self.intercept else rows
            yield linear_records(wide, self.targets(block.targets[part]))


@dataclass(frozen=True, slots=True, eq=False)
class LinearBlocks(RecordsInBlocks):
    """Records for `LinearScoreProblem`.

    Args:
        records: which ones.
        rows: how they are made.
    """

    records: ConsecutiveRecords
    rows: ScoredRows

    def __len__(self) -> int:
        return self.records.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """n and d, the constant included."""
        return len(self), self.records.shape[1] + (1 if self.rows.intercept else 0)

    def part(self, block: slice) -> LinearBlocks:
        """See `RecordsInBlocks`."""
        return LinearBlocks(self.records.part(block.start, block.stop), self.rows)

    def gradients(self, problem: Problem, parameters: Array) -> BlockGradients:
        """See `RecordsInBlocks`."""
        assert isinstance(problem, LinearScoreProblem)
        return BlockGradients(self.shape, self.records, _clipped_scores, (self.rows, problem.slope, parameters))

    def sizes(self, largest: Largest | None = None, radius: float | None = None) -> Array | BlockSizes:
        """Norms of the rows, or what `_largest` makes of them: one pass, or where they are too many, counts when they are asked for.

        Args:
            largest: of (norms, targets, radius); None: the norms.
            radius: of the domain.
        """
        return BlockSizes(self.records, _Sizes(self.rows, largest, radius)).found()

    def clipped_moments(self, longest: float) -> Array:
        """The sum of the products of the rows, clipped to that norm, shape (d, d)."""
        return self.records.sum(_clipped_products, self.rows, longest)[0]


@dataclass(frozen=True, slots=True, eq=False)
class RowBlocks(RecordsInBlocks):
    """Records of which the mean is wanted.

    Args:
        records: which ones.
    """

    records: ConsecutiveRecords

    def __len__(self) -> int:
        return self.records.shape[0]

    def part(self, block: slice) -> RowBlocks:
        """See `RecordsInBlocks`."""
        return RowBlocks(self.records.part(block.start, block.stop))

    def gradients(self, problem: Problem, parameters: Array) -> BlockGradients:
        """See `RecordsInBlocks`."""
        return BlockGradients(self.records.shape, self.records, _clipped_rows, (problem.gradient, parameters))

    def sizes(self, problem_gradient: Callable[[Array, Any], Array], parameters: Array) -> Array | BlockSizes:
        """Norms of the gradients there, as `LinearBlocks.sizes`."""
        return BlockSizes(self.records, _Lengths(problem_gradient, parameters)).found()


@dataclass(frozen=True, slots=True, eq=False)
class BlockGradients:
    """Gradients of records in blocks, of which nothing is computed but clipped sums.

    Args:
        shape: (s, d).
        records: which ones.
        function: of (Block, *parameters, clip norm), to their clipped sum.
        parameters: of it.
    """

    shape: tuple[int, int]
    records: ConsecutiveRecords
    function: Callable[..., tuple[Array]]
    parameters: tuple[Any, ...]

    def clipped_sum(self, clip_norm: float) -> Array:
        """One pass, shape (d,)."""
        return self.records.sum(self.function, *self.parameters, clip_norm)[0]


@dataclass(frozen=True, slots=True)
class _Sizes:
    rows: ScoredRows
    largest: Largest | None
    radius: float | None

    def __call__(self, block: Block) -> Array:
        parts = [norms if self.largest is None else self.largest(norms, targets, self.radius) for _, targets, norms in self.rows(block)]
        return np.concatenate(parts) if parts else np.empty(0)


@dataclass(frozen=True, slots=True)
class _Lengths:
    gradient: Callable[[Array, Any], Array]
    parameters: Array

    def __call__(self, block: Block) -> Array:
        parts = [row_norms(self.gradient(self.parameters, rows)) for rows, _ in _chunks(block)]
        return np.concatenate(parts) if parts else np.empty(0)


def _chunks(block: Block) -> Iterator[tuple[Array, slice]]:
    size = max(1, _CHUNK // block.features.shape[1])
    for start in range(0, len(block), size):
        part = slice(start, start + size)
        yield np.asarray(readable(block.features[part]), dtype=np.float64), part


def _clipped_scores(block: Block, made: ScoredRows, slope: Slope, parameters: Array, clip_norm: float) -> tuple[Array]:
    total = np.zeros(len(parameters))
    for features, targets, norms in made(block):
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = slope(features @ parameters, targets)
        total += ScoreGradients(features=features, norms=norms, slopes=slopes).clipped_sum(clip_norm)
    return (total,)


def _clipped_rows(block: Block, gradient: Callable[[Array, Any], Array], parameters: Array, clip_norm: float) -> tuple[Array]:
    total = np.zeros(len(parameters))
    for rows, _ in _chunks(block):
        total += clip_rows(gradient(parameters, rows), clip_norm).sum(axis=0)
    return (total,)


def _clipped_products(block: Block, made: ScoredRows, longest: float) -> tuple[Array]:
    width = block.features.shape[1] + (1 if made.intercept else 0)
    total = np.zeros((width, width))
    for features, _, norms in made(block):
        clipped = clipped_to(features, norms, longest)
        total += clipped.T @ clipped
    return (total,)
