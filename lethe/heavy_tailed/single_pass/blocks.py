"""Fixed disjoint batches, and the noisy gradient of one."""

from __future__ import annotations

import numpy as np

from lethe.errors import InputError
from lethe.heavy_tailed.inputs import Array, require_point
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.clipped import ClippedMean, clip_rows
from lethe.heavy_tailed.problem import Problem, Records, count_records, require_problem, some_records
from lethe.heavy_tailed.solution import Phase

_NUMBERS_AT_ONCE = 2**18


def disjoint_blocks(records: int, blocks: int) -> list[slice]:
    r"""That many consecutive batches of $s = \lfloor n/T\rfloor$ records; the last records, fewer than T, are never used.

    Raises:
        InputError: there are more batches than records.
    """
    size = records // blocks
    if size == 0:
        raise InputError(
            f"{blocks} batches of {records} records; each batch needs a record of its own.",
            source="the number of steps",
            remedy="take fewer steps, or a solver that passes over the data more than once",
        )
    return [slice(first, first + size) for first in range(0, blocks * size, size)]


def phase_over(blocks: list[slice], oracle: MeanOracle, dimension: int, *, touches: int) -> Phase:
    """The phase of a solver that goes through blocks of records, one step a block.

    Args:
        blocks: consecutive, all of one size.
        oracle: estimates the mean gradient of a block.
        dimension: d.
        touches: how many times every block is visited.
    """
    size = blocks[0].stop - blocks[0].start
    return Phase(
        first=blocks[0].start,
        stop=blocks[-1].stop,
        batch_size=size,
        steps=len(blocks) * touches,
        touches=touches,
        release=oracle.release(size, dimension),
        clip_norm=oracle.clip_level,
    )


def noisy_gradient(
    problem: Problem, parameters: Array, records: Records, block: slice, oracle: MeanOracle, generator: np.random.Generator
) -> Array:
    """The oracle's mean of the gradients of a block's records; of a large block the gradients are never all in memory at once.

    Args:
        problem: gives the gradients.
        parameters: shape (d,).
        records: all records.
        block: which of them.
        oracle: estimates the mean.
        generator: of the noise.
    """
    count = block.stop - block.start
    if count <= rows_at_once(problem.dimension) or type(oracle) is not ClippedMean:
        return oracle.mean(problem.gradients(parameters, some_records(records, block)), generator)
    total = np.zeros(problem.dimension)
    for part in pieces(block, problem.dimension):
        total += clip_rows(problem.gradients(parameters, some_records(records, part)), oracle.clip_norm).sum(axis=0)
    return oracle.noisy(total / count, count, generator)


def rows_at_once(dimension: int) -> int:
    """How many rows of gradients are computed together."""
    return max(_NUMBERS_AT_ONCE // dimension, 64)


def pieces(block: slice, dimension: int) -> list[slice]:
    """A block in pieces of `rows_at_once`."""
    size = rows_at_once(dimension)
    return [slice(first, min(first + size, block.stop)) for first in range(block.start, block.stop, size)]


def started(problem: Problem, start: object, records: Records) -> tuple[Array, int]:
    """The starting point, projected on the domain, shape (d,), and the number of records.

    Args:
        problem: its domain is meant.
        start: shape (d,), or None for 0.
        records: all records.
    Raises:
        InputError: either cannot be used.
    """
    require_problem(problem)
    point = np.zeros(problem.dimension) if start is None else require_point("start", start, problem.dimension)
    return problem.domain.project(point), count_records(records)


def require_oracle(oracle: object, records: int) -> MeanOracle:
    """Return a mean oracle for n records, or raise InputError."""
    if not isinstance(oracle, MeanOracle):
        raise InputError(
            f"oracle = {oracle!r}; it needs a mean oracle.", source="the argument oracle", remedy="give ClippedMean(clip_norm=..., rho=...)"
        )
    return oracle.for_records(records)
