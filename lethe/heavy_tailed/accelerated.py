r"""One pass of noisy clipped accelerated SGD, for smooth convex losses: solver, risk bound and settings.

The estimators for heavy tails (lethe/estimators/heavy_tailed/linear.py) call it where gradients have moments but no bound and the loss is
smooth. $\beta$ is the smoothness, $1/\eta$ the step size, T the steps, W the diameter of the domain, C the clip norm, $r_k$ the bound of
the k-th moment of a gradient.

The bounds are for gradients with conditional bias at most B and conditional variance at most $\Sigma^2$ (only the conditional mean of
the noise need be zero: it depends on the iterate). D bounds how far the start is from a minimiser and, where there is bias, how far any
point of the domain is: the diameter.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.heavy_tailed.multi_pass import NoisyBatches
from lethe.heavy_tailed.oracles import MeanOracle, noise_scale
from lethe.heavy_tailed.problem import Problem, Records, require_distance
from lethe.heavy_tailed.settings import Basis, Plan, best_plan, clamp, gradient_errors
from lethe.heavy_tailed.solution import Solution


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
        start, generator: as `multi_pass`.
    Returns:
        The solution with $w^{ag}_T$.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 2 and 5.
    """
    noisy = NoisyBatches(problem, records, oracle, start, generator, batches=steps)
    inverse = _inverse_step(step, 0.0 if problem.smoothness is None else problem.smoothness)
    point = averaged = noisy.start
    for t in range(1, noisy.batches + 1):
        share = 2.0 / (t + 1)
        middle = (1.0 - share) * averaged + share * point
        point = problem.domain.project(point - t / (2.0 * inverse) * noisy.gradient(middle, t - 1))
        averaged = share * point + (1.0 - share) * averaged
    averaged = problem.domain.project(averaged)  # a mean of points of W is in W but for rounding
    return noisy.solution(averaged, "one-pass accelerated clipped SGD", steps=noisy.batches)


def _inverse_step(step: float, smoothness: float) -> float:
    """The inverse step size, checked to be at least twice the smoothness, as the bound needs."""
    inverse = require_positive("step", step)
    if inverse < 2.0 * smoothness * (1.0 - 1e-12):
        raise outside("step", inverse, f"an inverse step size of at least 2 smoothness = {2.0 * smoothness:g}")
    return inverse


def accelerated_bound(
    steps: int, step: float, smoothness: float, distance: float, bias: float, variance: float, *, diameter: float | None = None
) -> float:
    r"""$\frac{2\eta D^2}{T(T+1)} + \frac{(2T+1)(\Sigma^2 + B^2)}{6\eta} + BW$ for $\eta \ge 2\beta$.

    The same argument as the paper's Proposition 30 with 1 for 2 in its first term, 1/3 for 4/3 and 1/2 for 1 where it loses them.

    T steps of inverse size $\eta$; distance D, bias B, variance $\Sigma^2$; diameter W, how far two points of the domain are apart
    (None: D).
    """
    count, reach = require_count("steps", steps), require_distance(distance)
    eta = _inverse_step(step, require_nonnegative("smoothness", smoothness))
    off = require_nonnegative("bias", bias)
    squared = require_nonnegative("variance", variance) + off * off
    wide = reach if diameter is None else require_positive("diameter", diameter)
    return 2.0 * eta * reach**2 / (count * (count + 1)) + (2 * count + 1) * squared / (6.0 * eta) + off * wide


def best_step(steps: int, smoothness: float, distance: float, squared_errors: float) -> float:
    r"""The $\eta \ge 2\beta$ with the smallest `accelerated_bound`: $\max\{2\beta, \frac1D\sqrt{(\Sigma^2 + B^2)T(T+1)(2T+1)/12}\}$."""
    count, reach = require_count("steps", steps), require_distance(distance)
    free = math.sqrt(require_nonnegative("squared_errors", squared_errors) * count * (count + 1) * (2 * count + 1) / 12.0) / reach
    return max(2.0 * require_nonnegative("smoothness", smoothness), free)


def step_counts(problem: Problem, records: int, rho: float) -> tuple[float, float]:
    r"""$T_1 = \big(\frac{\beta D}{r_k}\big)^{\frac{2k}{5k-1}}\big(\frac{\epsilon n}{\sqrt d}\big)^{\frac{2k-2}{5k-1}}$ and
    $T_2 = \sqrt{\beta D/r_2}\,n^{1/4}$.

    The paper's $T_2$ has $r_k$, with which the theorem's first term would be $r_kD/\sqrt n$ and not $r_2D/\sqrt n$.
    """
    moments, d, reach = problem.known_moments(), problem.dimension, problem.distance()
    n, k, beta = require_count("records", records), moments.order, problem.known("smoothness")
    private = noise_scale(require_positive("rho", rho)) * n / math.sqrt(d)
    first = (beta * reach / moments.raw(d)) ** (2.0 * k / (5.0 * k - 1.0)) * private ** ((2.0 * k - 2.0) / (5.0 * k - 1.0))
    return first, math.sqrt(beta * reach / moments.raw_second(d)) * n**0.25


def accelerated_theory(problem: Problem, records: int, rho: float) -> Plan:
    r"""The theorem's settings: $T = \lceil\min(T_1, T_2)\rceil$ of `step_counts`, $C = r_k(\epsilon n/\sqrt{dT})^{1/k}$,
    $\eta = \max\{2\beta, T^{3/2}\sqrt{\Sigma^2 + B^2}/D\}$.

    The noise is that of the real batch size $\lfloor n/T\rfloor$; the printed $4C^2T^2/(\epsilon n)^2$ is too little, and not private as
    stated, where T does not divide n. T is kept within 1 and n; affine losses have T = 1.

    Args:
        problem: with smoothness (0 for affine losses), moments and a bounded domain, whose diameter is D.
        records: n.
        rho: $\rho$, finite.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 31.
    """
    n, d, moments = require_count("records", records), problem.dimension, problem.known_moments()
    count, notes = clamp(min(step_counts(problem, n, rho)), n)
    clip = moments.raw(d) * (noise_scale(rho) * n / math.sqrt(d * count)) ** (1.0 / moments.order)
    squared = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho, printed=True).squared
    eta = max(2.0 * problem.known("smoothness"), count**1.5 * math.sqrt(squared) / problem.distance())
    return _plan("theory", problem, n, rho, count, clip, eta, notes)


def accelerated_optimised(problem: Problem, records: int, rho: float) -> Plan:
    """The settings with the smallest `accelerated_bound` on a grid of T (1 to n) and clip norms (8 to a factor of 2), at its best step."""
    n = require_count("records", records)
    return best_plan(problem, n, rho, 1, lambda count, clip: _plan("optimised", problem, n, rho, count, clip, None))


def accelerated_practical(problem: Problem, records: int, rho: float) -> Plan:
    r"""16 steps (fewer if there are fewer records) at clip norm $r_2$, $\eta = 2\beta$, or the best one for affine losses."""
    n, beta = require_count("records", records), problem.known("smoothness")
    clip = problem.known_moments().raw_second(problem.dimension)
    return _plan("practical", problem, n, rho, min(16, n), clip, 2.0 * beta or None)


def _plan(
    basis: Basis, problem: Problem, n: int, rho: float, count: int, clip: float, eta: float | None, notes: tuple[str, ...] = ()
) -> Plan:
    """The plan of these settings with its risk bound; the step size is the best one where `eta` is None."""
    errors = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho, printed=basis == "theory")
    beta, reach = problem.known("smoothness"), problem.distance()
    step = best_step(count, beta, reach, errors.squared) if eta is None else eta
    bound = accelerated_bound(count, step, beta, reach, errors.bias, errors.variance)
    return Plan(basis=basis, steps=count, clip_norm=clip, rho=rho, step=step, errors=errors, bound=bound, notes=notes)
