"""Lower bounds of the excess risk of every private algorithm, with every constant, and what each of them assumes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lethe.calculus.domains import require_count
from lethe.certificates.findings import Finding, fails, first_failure, holds
from lethe.heavy_tailed.oracles import require_rho
from lethe.heavy_tailed.problem import Problem, require_problem
from lethe.heavy_tailed.sets import BallDomain
from lethe_experiments.lower_bounds.packings import coin_divergence, error_probability, packings, private_divergence

_GRID = np.geomspace(1e-12, 1.0, 361).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    r"""For every algorithm there is a distribution in the class on which its expected excess risk is at least this.

    Args:
        value: the larger of the next two, loss units; 0, which is always true, where a hypothesis fails.
        sampling: what n records cannot tell, with or without privacy.
        privacy: what a $\rho$-zCDP algorithm cannot tell.
        findings: each hypothesis.
    """

    value: float
    sampling: float
    privacy: float
    findings: tuple[Finding, ...]


def convex_lower_bound(problem: Problem, records: int, rho: float) -> LowerBound:
    r"""For convex losses on a ball of radius D whose gradients have the problem's moments, of any kind.

    $$\max_{h,m}\ \frac{h}{2d}\,D\,m\,P_{err}$$

    over packings and means m: with coins $m = \delta\min_jr_j$, $K = nd\,\delta\ln\frac{1+\delta}{1-\delta}$; with rare records $m = py$,
    $y = \min_jr_jp^{-1/j}$ over the orders j that are stated, $K = \rho(n^2p^2 + np(1-p))$.

    Proof: linear losses $-\langle w, x\rangle$ with $Ex = m\nu/\sqrt d$ for signs $\nu$ of a packing have
    $F(w) - F^* \ge \frac m{2D}\|w - D\nu/\sqrt d\|^2$, and their minimisers are at least $2D\sqrt{h/d}$ apart, so that a risk below
    $mDh/(2d)$ names $\nu$; `error_probability` says how often that must fail. The coordinates of x are independent coins
    $\pm\min_jr_j/\sqrt d$ of bias $\delta$; or x is $y\nu/\sqrt d$ with probability p and else 0.

    It is about some distribution in the class and not the one at hand. The printed proof of the first term applies Fano's inequality to the
    divergence of one record in place of n, and proves nothing with its own numbers.

    Args:
        problem: with moments, on a ball; linear losses are in the class whatever its smoothness.
        records: n.
        rho: $\rho$; infinity: without privacy.
    Raises:
        InputError: an argument is outside its range, or the problem has no moments.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorems 7 and 26.
    """
    require_problem(problem)
    norms = _moments(problem)
    constant = min(bound for _, bound in norms)
    linear = problem.strong_convexity is None and problem.pl_constant is None
    loss = (
        holds("loss", "linear losses are in the class")
        if linear
        else fails("loss", "linear losses are not strongly convex", source="the problem", remedy="take strongly_convex_lower_bound")
    )
    radius = problem.domain.radius if isinstance(problem.domain, BallDomain) else 0.0
    return _bound(
        problem,
        records,
        rho,
        (_ball(problem), loss),
        gain=lambda mean, share: 0.5 * share * radius * mean,
        coin=lambda bias: bias * constant,
        rare=lambda chance: chance * min(bound * chance ** (-1.0 / order) for order, bound in norms),
    )


def strongly_convex_lower_bound(problem: Problem, records: int, rho: float) -> LowerBound:
    r"""For $\mu$-smooth, $\mu$-strongly convex losses on a ball of radius D, by $\frac\mu2\|w - x\|^2$.

    $$\max_{h,m}\ \frac{\mu h}{2d}\,m^2\,P_{err}$$

    as `convex_lower_bound`, with $m = \min\{D, \delta y\}$, $y = r_2/\mu - D$ for coins and $m = \min\{D, py\}$ for rare records,
    $y = \min_j\big\{\big(\frac{(r_j/\mu)^j - (1-p)D^j}p\big)^{1/j} - D\big\}$, over the same j: as long as the uniform moments
    $E(D + \|x\|)^j$ allow. Proof: $F(w) - F^* = \frac\mu2\|w - Ex\|^2$, and two means are $2m\sqrt{h/d}$ apart.

    (The printed distribution has a domain as wide as the rare records are long, which breaks the moment bound: 103 where 4 is claimed.)

    Args:
        problem: with moments, raw or uniform, and strong_convexity, on a ball ($\mu$ is the larger of it
            and pl_constant). For "raw" it is the bound of the smaller class "uniform".
        records: n.
        rho: $\rho$; infinity: without privacy.
    Raises:
        InputError: an argument is outside its range, or a constant is missing.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorems 8 and 28.
    """
    require_problem(problem)
    norms = _moments(problem)
    constant = min(bound for _, bound in norms)
    mu = max(problem.known("strong_convexity"), problem.pl_constant or 0.0)
    radius = problem.domain.radius if isinstance(problem.domain, BallDomain) else 0.0
    findings = [_ball(problem)]
    if problem.known_moments().kind == "central":
        source, remedy = "the problem's moments", "state raw or uniform ones"
        findings.append(fails("moments", "central moments; the construction is for raw or uniform ones", source=source, remedy=remedy))
    room = constant / mu - radius
    if room > 0.0:
        findings.append(holds("radius", f"mu D = {mu * radius:.6g} is below r_2 = {constant:.6g}, so the class is not empty"))
    else:
        detail = f"mu D = {mu * radius:.6g} is at least r_2 = {constant:.6g}: no strongly convex loss on this ball has gradients so small"
        findings.append(fails("radius", detail, source="the problem", remedy="check radius, strong_convexity and moments"))

    def rare(chance: float) -> float:
        lengths = [_length(chance, order, bound / mu, radius) for order, bound in norms]
        return min(radius, chance * max(min(lengths), 0.0))

    return _bound(
        problem,
        records,
        rho,
        tuple(findings),
        gain=lambda mean, share: 0.5 * share * mu * mean * mean,
        coin=lambda bias: min(radius, bias * room),
        rare=rare,
    )


def _length(chance: float, order: float, bound: float, radius: float) -> float:
    r"""$((b^j - (1-p)D^j)/p)^{1/j} - D$, in units of b so that no power overflows."""
    share = (1.0 - (1.0 - chance) * (radius / bound) ** order) / chance
    return bound * share ** (1.0 / order) - radius if share > 0.0 else 0.0


def _bound(
    problem: Problem,
    records: int,
    rho: float,
    findings: tuple[Finding, ...],
    *,
    gain: Callable[[float, float], float],
    coin: Callable[[float], float],
    rare: Callable[[float], float],
) -> LowerBound:
    """The best of all packings and chances; each of them by itself is a bound."""
    count, cost = require_count("records", records), require_rho(rho)
    if first_failure(findings) is not None:
        return LowerBound(value=0.0, sampling=0.0, privacy=0.0, findings=findings)
    sets = packings(problem.dimension)
    biases = [bias for bias in _GRID if bias < 1.0]
    sampling = max(
        gain(coin(bias), share) * error_probability(coin_divergence(count, problem.dimension, bias), size)
        for bias in biases
        for share, size in sets
    )
    privacy = 0.0
    if cost < math.inf:
        privacy = max(
            gain(rare(chance), share) * error_probability(private_divergence(count, chance, cost), size)
            for chance in _GRID
            for share, size in sets
        )
    shaved = tuple(value * (1.0 - 1e-9) for value in (sampling, privacy))
    return LowerBound(value=max(shaved), sampling=shaved[0], privacy=shaved[1], findings=findings)


def _ball(problem: Problem) -> Finding:
    if isinstance(problem.domain, BallDomain):
        return holds("domain", f"a ball of radius {problem.domain.radius:.6g}")
    name = type(problem.domain).__name__
    return fails("domain", f"the proof is for a ball, and this is {name}", source="the problem's domain", remedy="take a ball inside it")


def _moments(problem: Problem) -> list[tuple[float, float]]:
    r"""Orders, and norms of records that are surely in the class: for central ones $\frac12\sqrt d\,\gamma^{1/k}$, by Minkowski."""
    moments = problem.known_moments()
    second = moments.bound if moments.second is None else moments.second
    scale = 0.5 * math.sqrt(problem.dimension) if moments.kind == "central" else 1.0
    stated = [(2.0, second), (moments.order, moments.bound)]
    if moments.half is not None:
        stated.append((0.5 * moments.order, moments.half))
    return [(order, scale * bound) for order, bound in stated]
