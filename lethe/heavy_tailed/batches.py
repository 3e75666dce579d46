"""Fixed disjoint batches of a solver's records, and the noisy mean gradients of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from lethe.calculus.domains import require_count
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import InputError
from lethe.heavy_tailed.oracles import ClippedMean, MeanOracle, clip_rows
from lethe.heavy_tailed.problem import Problem, Records, count_records, require_problem, some_records
from lethe.heavy_tailed.sets import Array, require_point
from lethe.heavy_tailed.solution import Phase, Solution

_NUMBERS_AT_ONCE = 2**18


class NoisyBatches:
    r"""T consecutive batches of $s = \lfloor n/T\rfloor$ records, each used once a pass; the last records, fewer than T, are never used.

    Args:
        problem, records, start, oracle, generator: as `multi_pass`.
        batches: T.
        batch_size: s, where it is not that.
        passes: how many times each batch is used.
    """

    def __init__(
        self,
        problem: Problem,
        records: Records,
        oracle: MeanOracle,
        start: object,
        generator: np.random.Generator | None,
        *,
        batches: int,
        batch_size: int | None = None,
        passes: int = 1,
    ) -> None:
        self.start, self.records = start_of(problem, start, records)
        self.batches, self.passes = require_count("steps", batches), require_count("passes", passes)
        self.batch_size = self.records // self.batches if batch_size is None else batch_size
        if self.batch_size == 0:
            raise InputError(
                f"{batches} batches of {self.records} records; each batch needs a record of its own.",
                source="the number of steps",
                remedy="take fewer steps, or a solver that passes over the data more than once",
            )
        if not isinstance(oracle, MeanOracle):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"oracle = {oracle!r}; it needs a mean oracle.",
                source="the argument oracle",
                remedy="give ClippedMean(clip_norm=..., rho=...)",
            )
        self.oracle = oracle.for_records(self.records).shared(self.passes)
        self._problem, self._all, self._generator, self._noise = problem, records, generator, noise_generator(generator)

    def gradient(self, point: Array, step: int) -> Array:
        """The noisy mean gradient of batch `step` (modulo T) at a point; of a large batch the gradients are never all in memory at once."""
        problem, oracle, first = self._problem, self.oracle, step % self.batches * self.batch_size
        block = slice(first, first + self.batch_size)
        if self.batch_size <= rows_at_once(problem.dimension) or type(oracle) is not ClippedMean:
            return oracle.mean(problem.gradients(point, some_records(self._all, block)), self._noise)
        total = np.zeros(problem.dimension)
        for part in pieces(block, problem.dimension):
            total += clip_rows(problem.gradients(point, some_records(self._all, part)), oracle.clip_norm).sum(axis=0)
        return oracle.noisy(total / self.batch_size, self.batch_size, self._noise)

    def solution(self, point: Array, method: str, *, run: Any = None, **facts: float) -> Solution:
        """Of a solver that used every batch in every pass and ended at `point`, shape (d,); `facts`: diagnostics beyond the usual ones."""
        release = self.oracle.release(self.batch_size, len(point))
        phase = Phase(
            first=0,
            stop=self.batches * self.batch_size,
            batch_size=self.batch_size,
            steps=self.batches * self.passes,
            touches=self.passes,
            release=release,
            clip_norm=self.oracle.clip_level,
        )
        facts |= {"batch_size": phase.batch_size, "records_used": phase.stop, "noise_std": release.noise_std}
        return Solution(parameters=point, phases=(phase,), method=method, diagnostics=facts, run=run, seeded=self._generator is not None)


def start_of(problem: Problem, start: object, records: Records) -> tuple[Array, int]:
    """The starting point, shape (d,), None: 0, projected on the problem's domain; and the number of records."""
    require_problem(problem)
    point = np.zeros(problem.dimension) if start is None else require_point("start", start, problem.dimension)
    return problem.domain.project(point), count_records(records)


def rows_at_once(dimension: int) -> int:
    """How many rows of gradients are computed together."""
    return max(_NUMBERS_AT_ONCE // dimension, 64)


def pieces(block: slice, dimension: int) -> list[slice]:
    """A block in pieces of `rows_at_once`."""
    size = rows_at_once(dimension)
    return [slice(first, min(first + size, block.stop)) for first in range(block.start, block.stop, size)]
