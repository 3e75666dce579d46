r"""One pass of clipped SGD for smooth, strongly convex losses, with a weighted average of the iterates: solver, bound and settings. The
estimators for heavy tails call it for such losses. $w_t$ is the iterate, $\eta_t$ the step, $\zeta_t$ the weight of an iterate, $\Pi_W$ the
projection on the domain, $\tilde g_t$ a noisy mean gradient, $r_2$ the root mean square of a gradient's norm.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.multi_pass import NoisyBatches
from lethe.heavy_tailed.oracles import MeanOracle
from lethe.heavy_tailed.problem import Problem, Records, require_distance
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.settings import Basis, Plan, best_plan, clamp, gradient_errors
from lethe.heavy_tailed.solution import Solution


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
        start, generator: as `multi_pass`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 6 and 7.
    """
    noisy = NoisyBatches(problem, records, oracle, start, generator, batches=steps)
    lengths, weights = step_weights(noisy.batches - 1, problem.known("strong_convexity") / 2.0, problem.known("smoothness"))
    point, total = noisy.start, np.zeros(problem.dimension)
    for step, (length, weight) in enumerate(zip(lengths, weights, strict=True)):
        point = problem.domain.project(point - length * noisy.gradient(point, step))
        total += weight * point
    average = problem.domain.project(total / weights.sum())  # a mean of points of W is in W but for rounding
    return noisy.solution(average, "one-pass clipped SGD", rounds=noisy.batches)


def step_weights(last: int, a: float, g: float) -> tuple[Array, Array]:
    r"""The T + 1 steps $\eta_0, \dots, \eta_T$ and weights $\zeta_t$, scaled so that the largest weight is 1.

    They are for $r_{t+1} \le (1 - a\eta_t)r_t - b\eta_ts_t + c\eta_t^2$ with $\eta_t \le 1/g$. The paper says that such steps exist (its
    Lemma 33, after Stich 2019) and does not give them; these are reconstructed, with their own proof.

    $T \le g/a$: $\eta_t = 1/g$, $\zeta_t = (1 - a/g)^{-(t+1)}$. Otherwise with $t_0 = \lceil T/2\rceil$, $K = 2g/a$: $\eta_t = 1/g$ and
    $\zeta_t = 0$ before $t_0$, then $\eta_t = 2/(a(K + t - t_0))$ and $\zeta_t = K + t - t_0$.

    Proof that these weights telescope: with $x = K + t - t_0$, $\zeta_t(1 - a\eta_t)/\eta_t = \frac a2x(x - 2) \le \frac a2(x-1)^2 =
    \zeta_{t-1}/\eta_{t-1}$. The squared weights usually quoted with these steps do not: $x^2(x - 2) \le (x - 1)^3$ fails from $x = 3$ on.

    For $T \ge 0$ and $g \ge a > 0$; both of shape (T + 1,).
    """
    final, decay, cap = require_count("last", last, low=0), require_positive("a", a), require_positive("g", g)
    if cap < decay:
        raise outside("g", g, f"a number at least a = {decay:g}")
    rounds = np.arange(final + 1, dtype=np.float64)
    if final <= cap / decay:
        logarithm = math.log1p(-decay / cap) if cap > decay else -math.inf
        with np.errstate(invalid="ignore"):
            weights = np.exp(np.where(rounds == final, 0.0, (final - rounds) * logarithm))
        return np.full(final + 1, 1.0 / cap), weights
    middle = -(-final // 2)
    shifted = 2.0 * cap / decay + rounds - middle
    late = rounds >= middle
    steps = np.where(late, 2.0 / (decay * np.where(late, shifted, 1.0)), 1.0 / cap)
    weights = np.where(late, shifted, 0.0)
    return steps, weights / weights[-1]


def one_pass_bound(steps: int, smoothness: float, strong_convexity: float, distance: float, bias: float, variance: float) -> float:
    r"""A bound of the expected excess risk of `one_pass`, for gradients with conditional bias at most B and variance at most $\Sigma^2$.

    $$\frac{\beta R^2}{T+1}e^{-T/(4\kappa)} + \frac{20\,\Sigma^2}{\mu T} + \frac{6B^2}\mu\quad(T > 2\kappa),\qquad
      \frac{\beta R^2}2e^{-(T+1)/(2\kappa)} + \frac{\Sigma^2}\beta + \frac{2B^2}\mu\quad(T \le 2\kappa)$$

    Proof: with $\hat w = \Pi_W(w_t - \eta\nabla F)$, which is no further from $w^*$ than $w_t$, and $\eta \le 1/\beta$, smoothness and the
    three-point inequality give $2\eta(F(w_{t+1}) - F^*) \le (1 - \eta\mu)r_t - r_{t+1} + 2\eta\langle b + N, w^* - w_{t+1}\rangle$.
    Splitting $w_{t+1}$ as $\hat w$ and a rest of norm at most $\eta\|b + N\|$, the last term is in the mean at most
    $2\eta^2(\Sigma^2 + B^2) + \eta\frac\mu2r_t + \frac{2\eta B^2}\mu$, so that `step_weights` apply with $a = \mu/2$, $b = 2$,
    $c = 2\Sigma^2$ and $4B^2/\mu$ more per unit step. The paper's 32, 72 and 2 need an early return that depends on what is unknown.

    T + 1 rounds, distance $R \ge \|w_0 - w^*\|$, bias B, variance $\Sigma^2$. In loss units; may be infinity.
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
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 34.
    """
    n, d, moments = require_count("records", records, low=2), problem.dimension, problem.known_moments()
    kappa = problem.known("smoothness") / problem.known("strong_convexity")
    ratio = (require_positive("rho", rho) * 2.0) * n * n / d
    last, notes = clamp(4.0 * kappa * math.log(4.0 * kappa * (n + ratio ** (1.0 - 1.0 / moments.order))), n - 1)
    clip = moments.raw(d) * (ratio / last) ** (0.5 / moments.order)
    return _plan("theory", problem, n, rho, distance, last + 1, clip, notes)


def one_pass_optimised(problem: Problem, records: int, rho: float, *, distance: float | None = None) -> Plan:
    """The settings with the smallest `one_pass_bound` on a grid of rounds (2 to n) and clip norms (8 to a factor of 2)."""
    n = require_count("records", records, low=2)
    return best_plan(problem, n, rho, 2, lambda count, clip: _plan("optimised", problem, n, rho, distance, count, clip))


def one_pass_practical(problem: Problem, records: int, rho: float, *, distance: float | None = None) -> Plan:
    """30 rounds (fewer if there are fewer records) at clip norm $r_2$."""
    n = require_count("records", records, low=2)
    return _plan("practical", problem, n, rho, distance, min(30, n), problem.known_moments().raw_second(problem.dimension))


def _plan(
    basis: Basis, problem: Problem, n: int, rho: float, distance: float | None, rounds: int, clip: float, notes: tuple[str, ...] = ()
) -> Plan:
    """The plan of these settings with its risk bound."""
    errors = gradient_errors(problem, batch_size=n // rounds, clip_norm=clip, rho=rho)
    beta, mu = problem.known("smoothness"), problem.known("strong_convexity")
    bound = one_pass_bound(rounds, beta, mu, problem.distance(distance), errors.bias, errors.variance)
    return Plan(basis=basis, steps=rounds, clip_norm=clip, rho=rho, step=None, errors=errors, bound=bound, notes=notes)
