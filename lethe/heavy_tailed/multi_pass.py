"""Clipped gradient descent with several passes over the data: the solver to try first in practice."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_vector
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import InputError
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.clipped import ClippedMean
from lethe.heavy_tailed.problem import Problem, Records, require_problem
from lethe.heavy_tailed.recursion import recursion
from lethe.heavy_tailed.single_pass.blocks import noisy_gradient, phase_over, require_oracle, started
from lethe.heavy_tailed.solution import Solution, composed

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
    Raises:
        InputError: an argument is outside its range.
    """
    point, count = started(problem, start, records)
    rounds, source = require_count("passes", passes), noise_generator(generator)
    size = count if batch_size is None else require_count("batch_size", batch_size)
    if size > count:
        raise InputError(
            f"batch_size = {size}; there are {count} records.", source="the argument batch_size", remedy="take a smaller batch, or None"
        )
    blocks = [slice(first, first + size) for first in range(0, count - size + 1, size)]
    single = require_oracle(oracle, count).shared(rounds)
    sizes = _step_sizes(problem, step_size, rounds * len(blocks))
    for step, length in enumerate(sizes):
        gradient = noisy_gradient(problem, point, records, blocks[step % len(blocks)], single, source)
        point = problem.domain.project(point - length * gradient)
    phase = phase_over(blocks, single, problem.dimension, touches=rounds)
    return Solution(
        parameters=point,
        seeded=generator is not None,
        phases=(phase,),
        guarantee=composed([phase]),
        method="multi-pass clipped gradient descent",
        diagnostics={"passes": rounds, "batch_size": size, "records_used": phase.stop, "noise_std": phase.release.noise_std},
        run=recursion(problem, single, records=count, batch_size=size, passes=rounds, step_sizes=sizes),
    )


def _step_sizes(problem: Problem, given: ArrayLike | None, steps: int) -> Array:
    if given is None:
        smoothness = problem.known("smoothness")
        if smoothness == 0.0:
            raise InputError(
                "smoothness = 0.0; it gives no step size.", source="the problem", remedy="give step_size, or take the accelerated solver"
            )
        return np.full(steps, 1.0 / smoothness)
    single = np.isscalar(given) or (isinstance(given, np.ndarray) and given.ndim == 0)
    values = require_vector("step_size", [given] if single else given, low=0.0, strict=True)
    if len(values) not in (1, steps):
        raise InputError(
            f"step_size: {len(values)} numbers; it needs one, or {steps}.", source="the argument step_size", remedy="give one for each step"
        )
    return np.broadcast_to(values, (steps,))
