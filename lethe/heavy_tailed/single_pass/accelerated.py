"""One pass of noisy clipped accelerated SGD, for smooth convex losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import InputError
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.problem import Problem, Records
from lethe.heavy_tailed.single_pass.blocks import disjoint_blocks, noisy_gradient, phase_over, require_oracle, started
from lethe.heavy_tailed.solution import Solution, composed


def accelerated(
    problem: Problem,
    records: Records,
    *,
    oracle: MeanOracle,
    steps: int,
    step: float,
    start: ArrayLike | None = None,
    generator: np.random.Generator | None = None,
) -> Solution:
    r"""Accelerated stochastic approximation on T disjoint batches, $a_t = \frac2{t+1}$:

    $$w^{md} = (1 - a_t)w^{ag}_{t-1} + a_tw_{t-1},\qquad w_t = \Pi_W\Big(w_{t-1} - \frac t{2\eta}\tilde g(w^{md})\Big),\qquad
      w^{ag}_t = a_tw_t + (1 - a_t)w^{ag}_{t-1}$$

    Formal guarantee: each record is in one mean, so the run costs what the oracle states ($\sqrt{2\rho}$-GDP with `ClippedMean`), all
    iterates included.

    Args:
        problem: `smoothness` is compared with `step` if it is known.
        records: n of them; the last n mod T are not used.
        oracle: states the cost of the whole run.
        steps: T.
        step: $\eta \ge 2\beta$, an inverse step size.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Returns:
        The solution with $w^{ag}_T$.
    Raises:
        InputError: an argument is outside its range, or there are more steps than records.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 2 and 5.
    """
    point, count = started(problem, start, records)
    rounds, source, single = require_count("steps", steps), noise_generator(generator), require_oracle(oracle, count).shared(1)
    inverse = require_positive("step", step)
    if problem.smoothness is not None and inverse < 2.0 * problem.smoothness * (1.0 - 1e-12):
        raise InputError(
            f"step = {inverse:g}; it is an inverse step size and needs at least 2 smoothness = {2.0 * problem.smoothness:g}.",
            source="the arguments step and problem",
            remedy="give a larger step",
        )
    blocks, averaged = disjoint_blocks(count, rounds), point
    for t, block in enumerate(blocks, start=1):
        share = 2.0 / (t + 1)
        middle = (1.0 - share) * averaged + share * point
        point = problem.domain.project(point - t / (2.0 * inverse) * noisy_gradient(problem, middle, records, block, single, source))
        averaged = share * point + (1.0 - share) * averaged
    phase = phase_over(blocks, single, problem.dimension, touches=1)
    return Solution(
        parameters=problem.domain.project(averaged),  # a mean of points of W is in W but for rounding
        seeded=generator is not None,
        phases=(phase,),
        guarantee=composed([phase]),
        method="one-pass accelerated clipped SGD",
        diagnostics={"steps": rounds, "batch_size": phase.batch_size, "records_used": phase.stop, "noise_std": phase.release.noise_std},
    )
