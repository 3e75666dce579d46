r"""One pass of proximal clipped SGD, for losses that satisfy the proximal Polyak-Lojasiewicz inequality and need not be convex.

The estimators for heavy tails call it, with solver, risk bound and settings. With $\mu > 0$ the inequality's constant, F* the minimum:

$$\mu(F(w) - F^*) \le -\beta\min_y\Big[\langle\nabla F^0(w), y - w\rangle + \frac\beta2\|y - w\|^2 + h(y) - h(w)\Big]$$

for all w of the domain, with $F = F^0 + h$, $F^0$ smooth with constant $\beta$, h convex, the domain's indicator in it.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.heavy_tailed.multi_pass import NoisyBatches
from lethe.heavy_tailed.oracles import MeanOracle, noise_scale
from lethe.heavy_tailed.problem import Problem, Records
from lethe.heavy_tailed.sets import Array, BallDomain, BoxDomain, ConvexSet, WholeSpace
from lethe.heavy_tailed.settings import Basis, Plan, best_plan, clamp, gradient_errors
from lethe.heavy_tailed.solution import Solution
from lethe.run.regularisers import L1, L1L2, L2, Regulariser


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
        start, generator: as `multi_pass`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithms 8 and 9.
    """
    noisy = NoisyBatches(problem, records, oracle, start, generator, batches=steps)
    require_pair(regulariser, problem.domain)
    length = 0.5 / require_positive("smoothness", problem.known("smoothness"))
    point = noisy.start
    for step in range(noisy.batches):
        point = proximal_map(point - length * noisy.gradient(point, step), length, regulariser, problem.domain)
    return noisy.solution(point, "one-pass proximal clipped SGD", steps=noisy.batches)


def proximal_map(point: Array, step: float, regulariser: Regulariser | None, domain: ConvexSet) -> Array:
    r"""$\arg\min_y\ \eta h(y) + \frac12\|y - z\|^2$ over the domain.

    None: the projection. Ridge: the projection of $z/(1 + \eta\kappa)$, on any domain. L1 and elastic net: soft threshold
    $\mathrm{sign}(z)\max(|z| - \eta\kappa_1, 0)/(1 + \eta\kappa_2)$, then the projection: exact on the whole space, on boxes (coordinate by
    coordinate) and on balls about 0 (whose constraint adds a ridge).

    z has shape (d,), and $\eta > 0$.
    """
    require_pair(regulariser, domain)
    if regulariser is None:
        return domain.project(point)
    l1 = regulariser.l1_strength if isinstance(regulariser, L1L2) else regulariser.strength if isinstance(regulariser, L1) else 0.0
    shrunk = np.sign(point) * np.maximum(np.abs(point) - step * l1, 0.0)
    return domain.project(shrunk / (1.0 + step * regulariser.strong_convexity))


def require_pair(regulariser: object, domain: ConvexSet) -> None:
    """Refuse, with an InputError, a regulariser whose proximal map on this domain is not known in closed form."""
    sparse = isinstance(regulariser, L1 | L1L2)
    centred = isinstance(domain, BallDomain) and (domain.centre is None or not any(domain.centre))
    if regulariser is None or isinstance(regulariser, L2) or (sparse and (centred or isinstance(domain, WholeSpace | BoxDomain))):
        return
    raise InputError(
        f"regulariser: got {regulariser!r} on {type(domain).__name__}, whose proximal map is not known.",
        source="the arguments regulariser and problem",
        remedy="take None or Ridge; or L1 or ElasticNet on the whole space, a box or a ball about 0.",
    )


def proximal_bound(steps: int, smoothness: float, pl_constant: float, gap: float, bias: float, variance: float) -> float:
    r"""$(1 - \frac\mu{2\beta})^T\Delta + \frac{B^2 + \Sigma^2}\mu$, of the expected excess risk of `proximal`.

    The paper has 4 times the second term. Its proof drops $\langle b + N, y^* - w\rangle$; bounding F at the next iterate by its model
    there ($\beta/2 \le \beta$) with $E\|b + N\|^2 \le B^2 + \Sigma^2$ gives $(B^2 + \Sigma^2)/(2\beta)$ a step, and
    the constant 1.

    T steps; $\Delta \ge F(w_0) - F^*$; bias B; variance $\Sigma^2$.
    """
    beta, mu = require_positive("smoothness", smoothness), require_positive("pl_constant", pl_constant)
    if mu > beta:
        raise InputError(f"pl_constant = {mu:g} above smoothness = {beta:g}.", source="both arguments", remedy="check which is which")
    off, spread = require_nonnegative("bias", bias), require_nonnegative("variance", variance)
    contraction = math.exp(require_count("steps", steps) * math.log1p(-mu / (2.0 * beta)))
    return contraction * require_nonnegative("gap", gap, allow_infinity=False) + (off * off + spread) / mu


def proximal_theory(problem: Problem, records: int, rho: float, *, gap: float) -> Plan:
    r"""$T = 2\lceil\kappa\ln\max\{e, \Delta\mu n/r_2^2\}\rceil$, $C = r_k\big(\frac{\epsilon^2n^2}{dT^2}\big)^{1/(2k)}$, with
    $\kappa = \beta/\mu$.

    The printed T is defined through the errors that it defines. It is kept within n; a note says where that changed it.

    Args:
        problem: with smoothness, pl_constant and moments.
        records: n.
        rho: $\rho$, finite.
        gap: $\Delta \ge F(w_0) - F^*$.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 48.
    """
    n, d, moments = require_count("records", records), problem.dimension, problem.known_moments()
    mu, delta = problem.known("pl_constant"), require_positive("gap", gap)
    kappa = problem.known("smoothness") / mu
    size = max(1.0, math.log(delta) + math.log(mu) + math.log(n) - 2.0 * math.log(moments.raw_second(d)))
    count, notes = clamp(2.0 * math.ceil(kappa * size), n)
    clip = moments.raw(d) * (noise_scale(require_positive("rho", rho)) * n / (math.sqrt(d) * count)) ** (1.0 / moments.order)
    return _plan("theory", problem, n, rho, delta, count, clip, notes)


def proximal_optimised(problem: Problem, records: int, rho: float, *, gap: float) -> Plan:
    """The settings with the smallest `proximal_bound` on a grid of T (1 to n) and clip norms (8 to a factor of 2)."""
    n, delta = require_count("records", records), require_positive("gap", gap)
    return best_plan(problem, n, rho, 1, lambda count, clip: _plan("optimised", problem, n, rho, delta, count, clip))


def proximal_practical(problem: Problem, records: int, rho: float, *, gap: float) -> Plan:
    """30 steps (fewer if there are fewer records) at clip norm $r_2$."""
    n, clip = require_count("records", records), problem.known_moments().raw_second(problem.dimension)
    return _plan("practical", problem, n, rho, require_positive("gap", gap), min(30, n), clip)


def _plan(basis: Basis, problem: Problem, n: int, rho: float, gap: float, count: int, clip: float, notes: tuple[str, ...] = ()) -> Plan:
    errors = gradient_errors(problem, batch_size=n // count, clip_norm=clip, rho=rho)
    bound = proximal_bound(count, problem.known("smoothness"), problem.known("pl_constant"), gap, errors.bias, errors.variance)
    return Plan(basis=basis, steps=count, clip_norm=clip, rho=rho, step=None, errors=errors, bound=bound, notes=notes)
