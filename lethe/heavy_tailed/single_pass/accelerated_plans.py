r"""Settings and risk bounds of accelerated clipped SGD.

All bounds are for gradients with conditional bias at most B and conditional variance at most $\Sigma^2$ (only the conditional mean of
the noise need be zero: it depends on the iterate). D bounds how far the start is from a minimiser and, where there is bias, how far any
point of the domain is: the diameter.
"""

from __future__ import annotations

import math

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.problem import Problem, require_distance, require_problem
from lethe.heavy_tailed.single_pass.settings import Basis, GradientErrors, Plan, clamped, clip_grid, gradient_errors, noise_scale, step_grid


def accelerated_bound(
    steps: int, step: float, smoothness: float, distance: float, bias: float, variance: float, *, diameter: float | None = None
) -> float:
    r"""$\frac{2\eta D^2}{T(T+1)} + \frac{(2T+1)(\Sigma^2 + B^2)}{6\eta} + BW$ for $\eta \ge 2\beta$.

    The same argument as the paper's Proposition 30 with 1 for 2 in its first term, 1/3 for 4/3 and 1/2 for 1 where it loses them.

    Args:
        steps: T.
        step: $\eta$.
        smoothness: $\beta \ge 0$.
        distance: D.
        bias: B.
        variance: $\Sigma^2$.
        diameter: W, how far any two points of the domain are apart; None: D.
    Returns:
        Loss units.
    Raises:
        InputError: an argument is outside its range, or $\eta < 2\beta$.
    """
    count, eta = require_count("steps", steps), require_positive("step", step)
    beta, reach = require_nonnegative("smoothness", smoothness), require_distance(distance)
    if eta < 2.0 * beta * (1.0 - 1e-12):
        raise InputError(
            f"step = {eta:g}; the bound needs at least 2 smoothness = {2.0 * beta:g}.", source="step", remedy="give a larger one"
        )
    off = require_nonnegative("bias", bias)
    squared = require_nonnegative("variance", variance) + off * off
    wide = reach if diameter is None else require_positive("diameter", diameter)
    return 2.0 * eta * reach**2 / (count * (count + 1)) + (2 * count + 1) * squared / (6.0 * eta) + off * wide


def best_step(steps: int, smoothness: float, distance: float, squared_errors: float) -> float:
    r"""The $\eta \ge 2\beta$ with the smallest `accelerated_bound`: $\max\{2\beta, \frac1D\sqrt{(\Sigma^2 + B^2)T(T+1)(2T+1)/12}\}$.

    Args:
        steps: $T \ge 1$.
        smoothness: $\beta \ge 0$.
        distance: $D > 0$, in parameter units.
        squared_errors: $\Sigma^2 + B^2 \ge 0$ of a gradient.
    """
    count, reach = require_count("steps", steps), require_distance(distance)
    free = math.sqrt(require_nonnegative("squared_errors", squared_errors) * count * (count + 1) * (2 * count + 1) / 12.0) / reach
    return max(2.0 * require_nonnegative("smoothness", smoothness), free)


def step_counts(problem: Problem, records: int, rho: float) -> tuple[float, float]:
    r"""$T_1 = \big(\frac{\beta D}{r_k}\big)^{\frac{2k}{5k-1}}\big(\frac{\epsilon n}{\sqrt d}\big)^{\frac{2k-2}{5k-1}}$ and
    $T_2 = \sqrt{\beta D/r_2}\,n^{1/4}$.

    The paper's $T_2$ has $r_k$, with which the theorem's first term would be $r_kD/\sqrt n$ and not $r_2D/\sqrt n$.

    Args, Raises: as `accelerated_theory`.
    """
    require_problem(problem)
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
    Raises:
        InputError: an argument is outside its range, or the problem lacks a constant.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 31.
    """
    require_problem(problem)
    n, d, moments = require_count("records", records), problem.dimension, problem.known_moments()
    count, notes = clamped("T", min(step_counts(problem, n, rho)), 1, n)
    clip = moments.raw(d) * (noise_scale(rho) * n / math.sqrt(d * count)) ** (1.0 / moments.order)
    errors = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho, printed=True)
    reach = problem.distance()
    eta = max(2.0 * problem.known("smoothness"), count**1.5 * math.sqrt(errors.squared) / reach)
    return _plan("theory", problem, count, clip, rho, eta, errors, reach, notes)


def accelerated_optimised(problem: Problem, records: int, rho: float) -> Plan:
    """The settings with the smallest `accelerated_bound` on a grid of T (1 to n) and clip norms (8 to a factor of 2), with its best step.

    Args, Raises: as `accelerated_theory`.
    """
    require_problem(problem)
    n, d = require_count("records", records), problem.dimension
    base, reach, beta = problem.known_moments().raw(d), problem.distance(), problem.known("smoothness")
    plans: list[Plan] = []
    for count in step_grid(1, n):
        for clip in clip_grid(base, n, d, rho):
            errors = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho)
            eta = best_step(count, beta, reach, errors.squared)
            plans.append(_plan("optimised", problem, count, clip, rho, eta, errors, reach, ()))
    return min(plans, key=lambda plan: plan.bound)


def accelerated_practical(problem: Problem, records: int, rho: float) -> Plan:
    r"""16 steps (fewer if there are fewer records) at clip norm $r_2$, $\eta = 2\beta$, or the best one for affine losses.

    Args, Raises: as `accelerated_theory`.
    """
    require_problem(problem)
    n, reach, beta = require_count("records", records), problem.distance(), problem.known("smoothness")
    count, clip = min(16, n), problem.known_moments().raw_second(problem.dimension)
    errors = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho)
    eta = 2.0 * beta if beta > 0.0 else best_step(count, beta, reach, errors.squared)
    return _plan("practical", problem, count, clip, rho, eta, errors, reach, ())


def _plan(
    basis: Basis,
    problem: Problem,
    count: int,
    clip: float,
    rho: float,
    eta: float,
    errors: GradientErrors,
    reach: float,
    notes: tuple[str, ...],
) -> Plan:
    bound = accelerated_bound(count, eta, problem.known("smoothness"), reach, errors.bias, errors.variance)
    return Plan(basis=basis, steps=count, clip_norm=clip, rho=rho, step=eta, errors=errors, bound=bound, notes=notes)
