r"""Clipped gradient descent with several passes over disjoint batches, and the noisy mean gradients that all solvers here use. The solver
to try first, for losses of any kind: the estimators for heavy tails and users call `multi_pass`; the other solvers read batches through
`NoisyBatches`. $w_t$ is the iterate, $\eta_t$ the step size, $\Pi_W$ the projection on the domain, $\tilde g_t$ a noisy mean.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count, require_vector
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import InputError
from lethe.heavy_tailed.oracles import ClippedMean, MeanOracle, clip_rows
from lethe.heavy_tailed.problem import Problem, Records, count_records, require_problem, some_records
from lethe.heavy_tailed.sets import Array, BallDomain, BoxDomain, WholeSpace, require_point
from lethe.heavy_tailed.solution import Phase, Solution
from lethe.run.batches import Cyclic, Full
from lethe.run.precision import UNIT_ROUNDOFF, Precision
from lethe.run.regularisers import Ball, Box
from lethe.run.run import Run

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
            raise outside("oracle", oracle, "a mean oracle, such as ClippedMean(clip_norm=..., rho=...)")
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


PRACTICAL_PASSES = 30


def practical_oracle(problem: Problem, rho: float) -> ClippedMean:
    """`ClippedMean` at clip norm $r_2$, the root mean square of the gradients: at moderate n far better than the theory's.

    Raises:
        InputError: the problem states no moments, or rho is out of range.
    """
    require_problem(problem)
    return ClippedMean(clip_norm=problem.known_moments().raw_second(problem.dimension), rho=rho)


def multi_pass(
    problem: Problem,
    records: Records,
    *,
    oracle: MeanOracle,
    passes: int = PRACTICAL_PASSES,
    batch_size: int | None = None,
    step_size: ArrayLike | None = None,
    start: ArrayLike | None = None,
    generator: np.random.Generator | None = None,
) -> Solution:
    r"""$w_t = \Pi_W(w_{t-1} - \eta_t\tilde g_t)$ over E passes of fixed disjoint batches; the last iterate.

    Formal guarantee: each record is in one batch and so in E of the steps, each of which is a Gaussian mechanism of cost $\rho/E$; together
    $\sqrt{2\rho}$-GDP for replacing one record, all iterates included. Steps on other batches depend on the record only through what
    was released.

    Args:
        problem: its smoothness is needed if `step_size` is None.
        records: n of them.
        oracle: states the cost of the whole run; see `practical_oracle`.
        passes: E.
        batch_size: b; the last n mod b records are never used. None: all records at each step, which has the least noise.
        step_size: $\eta_t$, a number or one for each step; None: $1/\beta$.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Returns:
        The solution, with one phase.
    """
    count = count_records(records)
    size = count if batch_size is None else require_count("batch_size", batch_size, high=count)
    noisy = NoisyBatches(problem, records, oracle, start, generator, batches=count // size, batch_size=size, passes=passes)
    point, lengths = noisy.start, _step_sizes(problem, step_size, noisy.passes * noisy.batches)
    for step, length in enumerate(lengths):
        point = problem.domain.project(point - length * noisy.gradient(point, step))
    return noisy.solution(point, "multi-pass clipped gradient descent", run=_recursion(problem, noisy, lengths), passes=noisy.passes)


def _step_sizes(problem: Problem, values: ArrayLike | None, steps: int) -> Array:
    """The step size of each step; without `values` one that follows from the smoothness."""
    if values is None:
        smoothness = problem.known("smoothness")
        if smoothness == 0.0:
            raise InputError(
                "smoothness = 0.0; it gives no step size.", source="the problem", remedy="give step_size, or take the accelerated solver"
            )
        return np.full(steps, 1.0 / smoothness)
    single = np.isscalar(values) or (isinstance(values, np.ndarray) and values.ndim == 0)
    lengths = require_vector("step_size", [values] if single else values, low=0.0, strict=True)
    if len(lengths) not in (1, steps):
        raise outside("step_size", f"{len(lengths)} numbers", f"one number, or {steps}: one for each step")
    return np.broadcast_to(lengths, (steps,))


def _recursion(problem: Problem, noisy: NoisyBatches, lengths: Array) -> Run | None:
    r"""Projected clipped descent with cyclic batches as a run, so that last-iterate theorems apply to it; None where a run cannot say it.

    All is computed in float64, the noise added to the mean. On the whole space nothing bounds the iterates: the run declares them exact.
    Else the norm of the set's points, seven roundings at it, and what rounding does to a mean of clipped rows: $u(b + d + 32)C$. The move
    rounds twice, the new point once, and those of a centre, which is taken off and put back, twice more. A long move is cut off by the
    set, and its rounding with it (docs/theory.md, section 14).

    The oracle's noise of standard deviation $\sigma$ on a mean of b is a multiplier $z = b\sigma/C$ on the sum, rounded down. A centre of
    the domain is nothing but an origin.
    """
    domain, d, oracle, b = problem.domain, problem.dimension, noisy.oracle, noisy.batch_size
    if not isinstance(oracle, ClippedMean) or oracle.rho == math.inf:
        return None
    constraint, norm = None, math.inf
    if isinstance(domain, BallDomain):
        constraint, norm = Ball(radius=domain.radius), domain.radius + float(np.linalg.norm(domain.centre or 0.0))
    elif isinstance(domain, BoxDomain):
        widths = np.subtract(domain.high, domain.low)
        half = 0.5 * float(widths.max()) * (1.0 + 2**-50)
        if np.ptp(widths) > 1e-12 * half:
            return None
        constraint, norm = Box(half_width=half, dimension=d), float(np.linalg.norm(np.maximum(np.abs(domain.low), np.abs(domain.high))))
    elif not isinstance(domain, WholeSpace):
        return None
    error = UNIT_ROUNDOFF["float64"] * (b + d + 32) * oracle.clip_norm
    rounding = Precision(dtype="float64", parameter_norm=norm * (1.0 + 2**-40), gradient_error=error, roundings=7.0) if constraint else None
    try:
        return Run(
            records=noisy.records,
            batches=Full() if b == noisy.records else Cyclic(size=b),
            passes=noisy.passes,
            step_size=float(lengths[0]) if bool(np.all(lengths == lengths[0])) else lengths.tolist(),
            clip_norm=oracle.clip_norm,
            noise_multiplier=b * oracle.release(b, d).noise_std / oracle.clip_norm * (1.0 - 4e-16),
            regulariser=constraint,
            neighbours="replace_one",
            release="last",
            precision=rounding,
        )
    except InputError:  # numbers beyond what a run may hold: the phases say what it costs
        return None
