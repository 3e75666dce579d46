r"""Localised noisy clipped subgradient descent, for convex losses that need not be smooth; in rounds for strongly convex ones. The
estimators for heavy tails call `localised` and `strongly_convex`. A phase is a regularised problem on fresh records about the last phase's
end, so that steps and noise shrink with the distance that is left. $\Pi$ projects on the domain, $\tilde g$ is a noisy gradient.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import outside, require_count, require_positive
from lethe.errors import InputError
from lethe.heavy_tailed.localisation.plans import LocalPhase, localised_practical, localised_theory
from lethe.heavy_tailed.multi_pass import NoisyBatches, start_of
from lethe.heavy_tailed.oracles import ClippedMean, noise_scale
from lethe.heavy_tailed.problem import Problem, Records, some_records
from lethe.heavy_tailed.progress import Progress, reporting
from lethe.heavy_tailed.sets import Array, near_projection
from lethe.heavy_tailed.solution import Phase, Solution

MOST_GRADIENTS = 10**9


def regularised_descent(
    problem: Problem,
    records: Records,
    phase: LocalPhase,
    rho: float,
    *,
    centre: ArrayLike | None = None,
    generator: np.random.Generator | None = None,
    step_done: Callable[[], None] = lambda: None,
) -> Solution:
    r"""$w \leftarrow \Pi(w - \eta(\tilde g + \lambda(w - w_0)))$, T times on all records, from $w_0$; the last iterate.

    Only the loss's subgradients are clipped, never the regulariser. $\Pi$ projects on the domain, intersected with a ball about $w_0$.

    Formal guarantee: $\sqrt{2\rho}$-GDP, the cost of T Gaussian mechanisms on all records, all iterates included.

    All records are used in every step; `centre` is $w_0$, shape (d,), None: 0; `phase` has $\eta \in (0, 2/\lambda]$; $\rho = \infty$:
    no noise, not private. `step_done` is called after each step.

    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 3.
    """
    oracle = ClippedMean(clip_norm=phase.clip_norm, rho=rho)
    noisy = NoisyBatches(problem, records, oracle, centre, generator, batches=1, passes=phase.steps)
    start = point = noisy.start
    project = near_projection(problem.domain, start, phase.radius)
    for step in range(phase.steps):
        # Relative to w_0: late phases move by less than the rounding of a pull times w.
        point = project(point - phase.step_size * (noisy.gradient(point, step) + phase.strength * (point - start)))
        step_done()
    return noisy.solution(point, "regularised clipped subgradient descent", steps=phase.steps)


def localised(
    problem: Problem,
    records: Records,
    *,
    schedule: tuple[LocalPhase, ...],
    rho: float,
    start: ArrayLike | None = None,
    most_gradients: int = MOST_GRADIENTS,
    generator: np.random.Generator | None = None,
    progress: bool | Progress = True,
) -> Solution:
    r"""Phase i solves a regularised problem about the last point on $n_i = n/2^i$ fresh records, ever more local; the last point.

    Formal guarantee: the phases' records are disjoint and each phase is $\sqrt{2\rho}$-GDP, so the whole is, all iterates included.

    Args:
        problem: its gradient may be any subgradient; convex in the parameters for every record, for the theory.
        records: at least as many as the schedule uses; the rest is left out.
        schedule: from `localised_theory` or `localised_practical`.
        rho: $\rho$ of the whole run; infinity: no noise, not private.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        most_gradients: it refuses to compute more per-record gradients: the theory's schedule needs about $n^{2+1/k}\ln n$, and the sum of
            the phases' `gradients` says how many before any is computed.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
        progress: True: a bar on standard error, if that is a terminal, of that many gradients; False: none; or a function of (gradients
            done, in all). An interrupt, or an error in it, ends the run: nothing is released, no noise is reused.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 4.
    """

    def solve(part: Records, local: LocalPhase, point: Array, step_done: Callable[[], None]) -> tuple[Array, Phase]:
        end = regularised_descent(problem, part, local, rho, centre=point, generator=generator, step_done=step_done)
        return end.parameters, end.phases[0]

    point, phases, facts = phase_by_phase(problem, records, schedule, start, most_gradients, lambda local: local.records, solve, progress)
    method = "localised clipped subgradient descent"
    return Solution(parameters=point, phases=tuple(phases), method=method, diagnostics=facts, seeded=generator is not None)


def phase_by_phase(
    problem: Problem,
    records: Records,
    schedule: tuple[LocalPhase, ...],
    start: object,
    most_gradients: int,
    batch_size: Callable[[LocalPhase], int],
    solve: Callable[[Records, LocalPhase, Array, Callable[[], None]], tuple[Array, Phase]],
    progress: bool | Progress,
) -> tuple[Array, list[Phase], dict[str, float]]:
    """Go through a schedule, each phase on fresh records from where the one before ended: the last point, the phases, and public facts.

    `batch_size` says how many records a batch of a phase has, `solve` carries one phase out from a point and calls back after each step.

    Raises:
        InputError: it is no schedule, or needs more records or gradients than there may be.
    """
    point, count = start_of(problem, start, records)
    if not schedule or not all(isinstance(phase, LocalPhase) for phase in schedule):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError("schedule: it needs at least one LocalPhase.", source="the argument schedule", remedy="take localised_theory's")
    needed, work = sum(phase.records for phase in schedule), sum(batch_size(phase) * phase.steps for phase in schedule)
    if needed > count:
        raise outside("schedule", f"{needed} records", f"at most {count}: plan it for fewer records")
    if work > require_count("most_gradients", most_gradients):
        raise InputError(
            f"schedule: it computes {work:.3g} gradients; at most {most_gradients:.3g} are allowed.",
            source="the argument schedule",
            remedy="take localised_practical, which limits the steps of a phase, or raise most_gradients",
        )
    first, phases, done = 0, list[Phase](), 0
    with reporting(progress, work, f"{work:.2g} gradients") as finished:
        for local in schedule:
            size = batch_size(local)

            def step_done(size: int = size) -> None:
                nonlocal done
                done += size
                finished(done, work)

            point, phase = solve(some_records(records, slice(first, first + local.records)), local, point, step_done)
            phases.append(phase.moved(first))
            first += local.records
    return point, phases, {"phases": len(phases), "records_used": first, "gradients": work}


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
    progress: bool | Progress = True,
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
        most_steps: None: the theorem's rounds and phases, about $n^{2+2/k}$ gradients in all. A number: two rounds on half of the records
            each, by `localised_practical` with that many steps a phase; `localised` on all of them was never seen to do worse.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        most_gradients: of one round; it refuses to compute more.
        generator, progress: as `localised`, round by round.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Theorem 43 and Appendix G.3.
    """
    point, count = start_of(problem, start, records)
    sizes = round_sizes(count)
    if most_steps is not None:
        sizes = (count // 2, count - count // 2)
    first, phases = 0, list[Phase]()
    for size, distance in zip(sizes, round_distances(problem, sizes, rho, factor=factor), strict=True):
        if most_steps is None:
            schedule = localised_theory(problem, size, rho, distance=distance, extra=1.0)
        else:
            schedule = localised_practical(problem, size, rho, distance=distance, most_steps=most_steps)
        part = some_records(records, slice(first, first + size))
        end = localised(
            problem,
            part,
            schedule=schedule,
            rho=rho,
            start=point,
            most_gradients=most_gradients,
            generator=generator,
            progress=progress,
        )
        point = end.parameters
        phases += [phase.moved(first) for phase in end.phases]
        first += size
    method = "localised clipped subgradient descent in rounds"
    facts = {"rounds": len(sizes), "phases": len(phases), "records_used": first}
    return Solution(parameters=point, phases=tuple(phases), method=method, diagnostics=facts, seeded=generator is not None)
