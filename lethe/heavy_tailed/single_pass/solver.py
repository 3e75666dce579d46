"""One pass of clipped SGD for smooth, strongly convex losses, with a weighted average of the iterates."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count
from lethe.calculus.noise_generators import noise_generator
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.problem import Problem, Records
from lethe.heavy_tailed.single_pass.blocks import disjoint_blocks, noisy_gradient, phase_over, require_oracle, started
from lethe.heavy_tailed.single_pass.step_weights import step_weights
from lethe.heavy_tailed.solution import Solution, composed


def one_pass(
    problem: Problem,
    records: Records,
    *,
    oracle: MeanOracle,
    steps: int,
    start: ArrayLike | None = None,
    generator: np.random.Generator | None = None,
) -> Solution:
    r"""$w_{t+1} = \Pi_W(w_t - \eta_t\tilde g_t)$ on disjoint batches, $t = 0..T$; returns $\sum_t\zeta_tw_{t+1}/\sum_t\zeta_t$.

    Steps and weights are those of `step_weights` for $a = \mu/2$, $g = \beta$. There are T + 1 rounds, so batches have $\lfloor
    n/(T+1)\rfloor$
    records; the paper's n/T would be one batch too many.

    Formal guarantee: each record is in one mean, so the run costs what the oracle states ($\sqrt{2\rho}$-GDP with `ClippedMean`), all
    iterates included: given what was released before, only one mean depends on the record.

    Args:
        problem: with smoothness and strong_convexity.
        records: n of them; the last n mod (T + 1) are not used.
        oracle: states the cost of the whole run.
        steps: T + 1, the number of rounds.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Raises:
        InputError: an argument is outside its range, or there are more rounds than records.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 6 and 7.
    """
    point, count = started(problem, start, records)
    rounds, source, single = require_count("steps", steps), noise_generator(generator), require_oracle(oracle, count).shared(1)
    lengths, weights = step_weights(rounds - 1, problem.known("strong_convexity") / 2.0, problem.known("smoothness"))
    blocks = disjoint_blocks(count, rounds)
    total = np.zeros_like(point)
    for block, length, weight in zip(blocks, lengths, weights, strict=True):
        point = problem.domain.project(point - length * noisy_gradient(problem, point, records, block, single, source))
        total += weight * point
    phase = phase_over(blocks, single, problem.dimension, touches=1)
    return Solution(
        parameters=problem.domain.project(total / weights.sum()),  # a mean of points of W is in W but for rounding
        seeded=generator is not None,
        phases=(phase,),
        guarantee=composed([phase]),
        method="one-pass clipped SGD",
        diagnostics={"rounds": rounds, "batch_size": phase.batch_size, "records_used": phase.stop, "noise_std": phase.release.noise_std},
    )
