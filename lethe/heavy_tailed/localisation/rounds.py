"""From convex to strongly convex: the localised solver again and again, each time on twice the records and a smaller distance."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_positive
from lethe.heavy_tailed.batches import start_of
from lethe.heavy_tailed.localisation.descent import MOST_GRADIENTS, localised
from lethe.heavy_tailed.localisation.plans import localised_theory
from lethe.heavy_tailed.oracles import noise_scale
from lethe.heavy_tailed.problem import Problem, Records, some_records
from lethe.heavy_tailed.solution import Phase, Solution


def round_sizes(records: int) -> tuple[int, ...]:
    r"""$N_j$, the power of two below $2^{j-2}n/\log_2n$, for $j = 1..\lceil\log_2\log_2n\rceil$; their sum is below n.

    In print the sizes are related the wrong way round; rounds whose size would be below 2 are left out.
    """
    n = require_count("records", records, low=5)
    rounds = math.ceil(math.log2(math.log2(n)))
    sizes = [int(2.0 ** (j - 2) * n / math.log2(n)) for j in range(1, rounds + 1)]
    return tuple(2 ** (size.bit_length() - 1) for size in sizes if size >= 2)


def round_distances(problem: Problem, sizes: tuple[int, ...], rho: float, *, factor: float = 2.0) -> tuple[float, ...]:
    r"""$D_{j-1}$ that the step of round j is planned with.

    $D_0 = \min(\mathrm{diam}\,W, 2\tilde r_k/\mu)$, then $D_j = \min\{D_{j-1}, \sqrt{2\Delta_j/\mu}\}$,
    $\Delta_j = a\tilde r_{2k}D_{j-1}\big(N_j^{-1/2} + (\sqrt{d\ln N_j}/(\epsilon N_j))^{(k-1)/k}\big)$.

    The paper does not say that the distance must shrink from round to round; a is the constant that its rate hides. A wrong one costs
    accuracy only.
    """
    moments, mu, a = problem.known_moments(), problem.known("strong_convexity"), require_positive("factor", factor)
    k, d = moments.order / 2.0, problem.dimension
    half = moments.bound if moments.half is None else moments.half
    distances = [min(problem.domain.diameter, 2.0 * half / mu)]
    for size in sizes[:-1]:
        privacy = (math.sqrt(d * math.log(size)) / (noise_scale(rho) * size)) ** ((k - 1.0) / k)
        gap = a * moments.bound * distances[-1] * (size**-0.5 + privacy)
        distances.append(min(distances[-1], math.sqrt(2.0 * gap / mu)))
    return tuple(distances)


def strongly_convex(
    problem: Problem,
    records: Records,
    *,
    rho: float,
    factor: float = 2.0,
    most_steps: int | None = None,
    start: ArrayLike | None = None,
    most_gradients: int = MOST_GRADIENTS,
    generator: np.random.Generator | None = None,
) -> Solution:
    r"""Rounds of `localised` on fresh records, each from where the last one ended.

    The phases are planned with q = 1, so that one fails with probability 1/N. With the paper's q = 1/2 it is $1/\sqrt N$, which costs up to
    $2L^2/(\mu\sqrt N)$: 63 times the rate that is claimed at n = 1000, and more for larger n.

    Formal guarantee: all rounds use disjoint records and each is $\sqrt{2\rho}$-GDP, so the whole is, all iterates included.

    Args:
        problem: with strong_convexity, and uniform moments of order 2k; its gradient may be any subgradient.
        records: n >= 5 of them.
        rho: $\rho$ of the whole run.
        factor: see `round_distances`.
        most_steps: of one phase; None: as many as the theory asks for, about $n^{2+2/k}$ gradients in all.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        most_gradients: of one round; it refuses to compute more.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 43 and Appendix G.3.
    """
    point, count = start_of(problem, start, records)
    sizes = round_sizes(count)
    first, phases = 0, list[Phase]()
    for size, distance in zip(sizes, round_distances(problem, sizes, rho, factor=factor), strict=True):
        schedule = localised_theory(problem, size, rho, distance=distance, extra=1.0)
        if most_steps is not None:
            limit = require_count("most_steps", most_steps)
            schedule = tuple(replace(phase, steps=min(phase.steps, limit)) for phase in schedule)
        part = some_records(records, slice(first, first + size))
        end = localised(problem, part, schedule=schedule, rho=rho, start=point, most_gradients=most_gradients, generator=generator)
        point = end.parameters
        phases += [phase.moved(first) for phase in end.phases]
        first += size
    method = "localised clipped subgradient descent in rounds"
    facts = {"rounds": len(sizes), "phases": len(phases), "records_used": first}
    return Solution(parameters=point, phases=tuple(phases), method=method, diagnostics=facts, seeded=generator is not None)
