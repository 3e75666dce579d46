"""Settings and risk bounds of one-pass clipped SGD."""

from __future__ import annotations

import math

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.problem import Problem, require_distance, require_problem
from lethe.heavy_tailed.single_pass.settings import Basis, Plan, clamped, clip_grid, gradient_errors, step_grid


def one_pass_bound(steps: int, smoothness: float, strong_convexity: float, distance: float, bias: float, variance: float) -> float:
    r"""A bound of the expected excess risk of `one_pass`, for gradients with conditional bias at most B and variance at most $\Sigma^2$.

    $$\frac{\beta R^2}{T+1}e^{-T/(4\kappa)} + \frac{20\,\Sigma^2}{\mu T} + \frac{6B^2}\mu\quad(T > 2\kappa),\qquad
      \frac{\beta R^2}2e^{-(T+1)/(2\kappa)} + \frac{\Sigma^2}\beta + \frac{2B^2}\mu\quad(T \le 2\kappa)$$

    Proof: with $\hat w = \Pi_W(w_t - \eta\nabla F)$, which is no further from $w^*$ than $w_t$, and $\eta \le 1/\beta$, smoothness and the
    three-point inequality give $2\eta(F(w_{t+1}) - F^*) \le (1 - \eta\mu)r_t - r_{t+1} + 2\eta\langle b + N, w^* - w_{t+1}\rangle$.
    Splitting $w_{t+1}$ as $\hat w$ and a rest of norm at most $\eta\|b + N\|$, the last term is in the mean at most
    $2\eta^2(\Sigma^2 + B^2) + \eta\frac\mu2r_t + \frac{2\eta B^2}\mu$, so that `step_weights` apply with $a = \mu/2$, $b = 2$,
    $c = 2\Sigma^2$ and $4B^2/\mu$ more per unit step. The paper's 32, 72 and 2 need an early return that depends on what is unknown.

    Args:
        steps: T + 1, the number of rounds.
        smoothness: $\beta$.
        strong_convexity: $\mu \le \beta$.
        distance: $R \ge \|w_0 - w^*\|$.
        bias: B.
        variance: $\Sigma^2$.
    Returns:
        Loss units; may be infinity.
    Raises:
        InputError: an argument is outside its range.
    """
    last = require_count("steps", steps) - 1
    beta, mu = require_positive("smoothness", smoothness), require_positive("strong_convexity", strong_convexity)
    if mu > beta:
        raise InputError(f"strong_convexity = {mu:g} above smoothness = {beta:g}.", source="both arguments", remedy="check which is which")
    squared = require_distance(distance) ** 2
    off, spread = require_nonnegative("bias", bias), require_nonnegative("variance", variance)
    kappa = beta / mu
    if last > 2.0 * kappa:
        return beta * squared * math.exp(-last / (4.0 * kappa)) / (last + 1) + 20.0 * spread / (mu * last) + 6.0 * off * off / mu
    return 0.5 * beta * squared * math.exp(-(last + 1) / (2.0 * kappa)) + spread / beta + 2.0 * off * off / mu


def one_pass_theory(problem: Problem, records: int, rho: float, *, distance: float | None = None) -> Plan:
    r"""The theorem's settings, with $\epsilon = \sqrt{2\rho}$:

    $$T = \Big\lceil4\kappa\ln\Big(4\kappa\Big(n + \Big(\frac{\epsilon^2n^2}d\Big)^{(k-1)/k}\Big)\Big)\Big\rceil,\qquad
      C = r_k\Big(\frac{\epsilon^2n^2}{dT}\Big)^{1/(2k)}$$

    The paper has $\mu\beta D^2/r_k^2$, at most $4\kappa$, in place of the first $4\kappa$ in the logarithm. Its condition
    $\kappa \le n/\ln n$ does not make $T + 1 \le n$; where it fails T is n - 1 and a note says that the theorem does not apply.

    Args:
        problem: with smoothness, strong_convexity and moments.
        records: n >= 2.
        rho: $\rho$, finite.
        distance: of start and minimiser; None: the domain's diameter.
    Raises:
        InputError: an argument is outside its range, or the problem lacks a constant.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 34.
    """
    require_problem(problem)
    n, d, moments = require_count("records", records, low=2), problem.dimension, problem.known_moments()
    kappa = problem.known("smoothness") / problem.known("strong_convexity")
    ratio = (require_positive("rho", rho) * 2.0) * n * n / d
    wanted = 4.0 * kappa * math.log(4.0 * kappa * (n + ratio ** (1.0 - 1.0 / moments.order)))
    last, notes = clamped("T", wanted, 1, n - 1)
    clip = moments.raw(d) * (ratio / last) ** (0.5 / moments.order)
    return _plan(problem, n, rho, last + 1, clip, "theory", distance, notes)


def one_pass_optimised(problem: Problem, records: int, rho: float, *, distance: float | None = None) -> Plan:
    """The settings with the smallest `one_pass_bound` on a grid of rounds (2 to n) and clip norms (8 to a factor of 2).

    Args, Raises: as `one_pass_theory`.
    """
    require_problem(problem)
    n = require_count("records", records, low=2)
    base = problem.known_moments().raw(problem.dimension)
    plans = [
        _plan(problem, n, rho, count, clip, "optimised", distance, ())
        for count in step_grid(2, n)
        for clip in clip_grid(base, n, problem.dimension, rho)
    ]
    return min(plans, key=lambda plan: plan.bound)


def one_pass_practical(problem: Problem, records: int, rho: float, *, distance: float | None = None) -> Plan:
    """30 rounds (fewer if there are fewer records) at clip norm $r_2$.

    Args, Raises: as `one_pass_theory`.
    """
    require_problem(problem)
    n = require_count("records", records, low=2)
    clip = problem.known_moments().raw_second(problem.dimension)
    return _plan(problem, n, rho, min(30, n), clip, "practical", distance, ())


def _plan(
    problem: Problem, n: int, rho: float, rounds: int, clip: float, basis: Basis, distance: float | None, notes: tuple[str, ...]
) -> Plan:
    errors = gradient_errors(problem, batch_size=n // rounds, clip_norm=clip, rho=rho)
    beta, mu = problem.known("smoothness"), problem.known("strong_convexity")
    reach = problem.distance(distance)
    bound = one_pass_bound(rounds, beta, mu, reach, errors.bias, errors.variance)
    return Plan(basis=basis, steps=rounds, clip_norm=clip, rho=rho, step=None, errors=errors, bound=bound, notes=notes)
