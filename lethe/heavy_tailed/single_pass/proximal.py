r"""One pass of proximal clipped SGD, for losses that meet the proximal Polyak-Lojasiewicz inequality and need not be convex.

$$\mu(F(w) - F^*) \le -\beta\min_y\Big[\langle\nabla F^0(w), y - w\rangle + \frac\beta2\|y - w\|^2 + h(y) - h(w)\Big]$$

for all w of the domain, with $F = F^0 + h$, $F^0$ smooth with constant $\beta$, h convex, the domain's indicator in it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.documents.synonyms import in_other_words
from lethe.errors import InputError
from lethe.heavy_tailed.composite import proximal_map, require_pair
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.problem import Problem, Records, require_problem
from lethe.heavy_tailed.single_pass.blocks import disjoint_blocks, noisy_gradient, phase_over, require_oracle, started
from lethe.heavy_tailed.single_pass.settings import Basis, Plan, clamped, clip_grid, gradient_errors, noise_scale, step_grid
from lethe.heavy_tailed.solution import Solution, composed
from lethe.run.regularisers import Regulariser


@in_other_words
def proximal(
    problem: Problem,
    records: Records,
    *,
    oracle: MeanOracle,
    steps: int,
    regulariser: Regulariser | None = None,
    start: ArrayLike | None = None,
    generator: np.random.Generator | None = None,
) -> Solution:
    r"""$w \leftarrow \mathrm{prox}_{\eta h}(w - \eta\tilde g)$ on T disjoint batches, $\eta = \frac1{2\beta}$; the last iterate.

    Formal guarantee: each record is in one mean, so the run costs what the oracle states ($\sqrt{2\rho}$-GDP with `ClippedMean`), all
    iterates included.

    Args:
        problem: with smoothness > 0 of $F^0$; its gradient is that of $f^0$ alone.
        records: n of them; the last n mod T are not used.
        oracle: states the cost of the whole run.
        steps: T.
        regulariser: h; see `proximal_map` for the pairs of h and domain that are known.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Raises:
        InputError: an argument is outside its range, or there are more steps than records.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 8 and 9.
    """
    point, count = started(problem, start, records)
    rounds, source, single = require_count("steps", steps), noise_generator(generator), require_oracle(oracle, count).shared(1)
    require_pair(regulariser, problem.domain)
    length = 0.5 / require_positive("smoothness", problem.known("smoothness"))
    blocks = disjoint_blocks(count, rounds)
    for block in blocks:
        gradient = noisy_gradient(problem, point, records, block, single, source)
        point = proximal_map(point - length * gradient, length, regulariser, problem.domain)
    phase = phase_over(blocks, single, problem.dimension, touches=1)
    return Solution(
        parameters=point,
        seeded=generator is not None,
        phases=(phase,),
        guarantee=composed([phase]),
        method="one-pass proximal clipped SGD",
        diagnostics={"steps": rounds, "batch_size": phase.batch_size, "records_used": phase.stop, "noise_std": phase.release.noise_std},
    )


def proximal_bound(steps: int, smoothness: float, pl_constant: float, gap: float, bias: float, variance: float) -> float:
    r"""$(1 - \frac\mu{2\beta})^T\Delta + \frac{B^2 + \Sigma^2}\mu$, of the expected excess risk of `proximal`.

    The paper has 4 times the second term. Its proof drops $\langle b + N, y^* - w\rangle$; bounding F at the next iterate by its model
    there ($\beta/2 \le \beta$) with $E\|b + N\|^2 \le B^2 + \Sigma^2$ gives $(B^2 + \Sigma^2)/(2\beta)$ a step, and
    the constant 1.

    Args:
        steps: T.
        smoothness: $\beta$.
        pl_constant: $\mu \le \beta$.
        gap: $\Delta \ge F(w_0) - F^*$.
        bias: B.
        variance: $\Sigma^2$.
    Returns:
        Loss units.
    Raises:
        InputError: an argument is outside its range.
    """
    beta, mu = require_positive("smoothness", smoothness), require_positive("pl_constant", pl_constant)
    if mu > beta:
        raise InputError(f"pl_constant = {mu:g} above smoothness = {beta:g}.", source="both arguments", remedy="check which is which")
    off, spread = require_nonnegative("bias", bias), require_nonnegative("variance", variance)
    left = math.exp(require_count("steps", steps) * math.log1p(-mu / (2.0 * beta)))
    return left * require_nonnegative("gap", gap, allow_infinity=False) + (off * off + spread) / mu


def proximal_theory(problem: Problem, records: int, rho: float, *, gap: float) -> Plan:
    r"""$T = 2\lceil\kappa\ln\max\{e, \Delta\mu n/r_2^2\}\rceil$, $C = r_k\big(\frac{\epsilon^2n^2}{dT^2}\big)^{1/(2k)}$, with
    $\kappa = \beta/\mu$.

    The printed T is defined through the errors that it defines. It is kept within n; a note says where that changed it.

    Args:
        problem: with smoothness, pl_constant and moments.
        records: n.
        rho: $\rho$, finite.
        gap: $\Delta \ge F(w_0) - F^*$.
    Raises:
        InputError: an argument is outside its range, or the problem lacks a constant.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 48.
    """
    require_problem(problem)
    n, d, moments = require_count("records", records), problem.dimension, problem.known_moments()
    mu, delta = problem.known("pl_constant"), require_positive("gap", gap)
    kappa = problem.known("smoothness") / mu
    size = max(1.0, math.log(delta) + math.log(mu) + math.log(n) - 2.0 * math.log(moments.raw_second(d)))
    count, notes = clamped("T", 2.0 * math.ceil(kappa * size), 1, n)
    clip = moments.raw(d) * (noise_scale(require_positive("rho", rho)) * n / (math.sqrt(d) * count)) ** (1.0 / moments.order)
    return _plan("theory", problem, n, count, clip, rho, delta, notes)


def proximal_optimised(problem: Problem, records: int, rho: float, *, gap: float) -> Plan:
    """The settings with the smallest `proximal_bound` on a grid of T (1 to n) and clip norms (8 to a factor of 2).

    Args, Raises: as `proximal_theory`.
    """
    require_problem(problem)
    n, delta = require_count("records", records), require_positive("gap", gap)
    base = problem.known_moments().raw(problem.dimension)
    plans = [
        _plan("optimised", problem, n, count, clip, rho, delta, ())
        for count in step_grid(1, n)
        for clip in clip_grid(base, n, problem.dimension, rho)
    ]
    return min(plans, key=lambda plan: plan.bound)


def proximal_practical(problem: Problem, records: int, rho: float, *, gap: float) -> Plan:
    """30 steps (fewer if there are fewer records) at clip norm $r_2$.

    Args, Raises: as `proximal_theory`.
    """
    require_problem(problem)
    n, clip = require_count("records", records), problem.known_moments().raw_second(problem.dimension)
    return _plan("practical", problem, n, min(30, n), clip, rho, require_positive("gap", gap), ())


def _plan(basis: Basis, problem: Problem, n: int, count: int, clip: float, rho: float, gap: float, notes: tuple[str, ...]) -> Plan:
    errors = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho)
    bound = proximal_bound(count, problem.known("smoothness"), problem.known("pl_constant"), gap, errors.bias, errors.variance)
    return Plan(basis=basis, steps=count, clip_norm=clip, rho=rho, step=None, errors=errors, bound=bound, notes=notes)
