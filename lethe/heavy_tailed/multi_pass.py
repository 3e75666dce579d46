"""Clipped gradient descent with several passes over the data: the solver to try first in practice."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_vector
from lethe.errors import InputError
from lethe.heavy_tailed.batches import NoisyBatches
from lethe.heavy_tailed.oracles import ClippedMean, MeanOracle
from lethe.heavy_tailed.problem import Problem, Records, count_records, require_problem
from lethe.heavy_tailed.sets import Array, BallDomain, BoxDomain, WholeSpace
from lethe.heavy_tailed.solution import Solution
from lethe.run.batches import Cyclic, Full
from lethe.run.precision import UNIT_ROUNDOFF, Precision
from lethe.run.regularisers import Ball, Box
from lethe.run.run import Run

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
    size = count if batch_size is None else require_count("batch_size", batch_size)
    if size > count:
        raise InputError(
            f"batch_size = {size}; there are {count} records.", source="the argument batch_size", remedy="take a smaller batch, or None"
        )
    noisy = NoisyBatches(problem, records, oracle, start, generator, batches=count // size, batch_size=size, passes=passes)
    point, lengths = noisy.start, _step_sizes(problem, step_size, noisy.passes * noisy.batches)
    for step, length in enumerate(lengths):
        point = problem.domain.project(point - length * noisy.gradient(point, step))
    return noisy.solution(point, "multi-pass clipped gradient descent", run=_recursion(problem, noisy, lengths), passes=noisy.passes)


def _step_sizes(problem: Problem, values: ArrayLike | None, steps: int) -> Array:
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
        raise InputError(
            f"step_size: {len(lengths)} numbers; it needs one, or {steps}.",
            source="the argument step_size",
            remedy="give one for each step",
        )
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
