"""Localised noisy clipped subgradient descent, for convex losses that need not be smooth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.heavy_tailed.batches import NoisyBatches, start_of
from lethe.heavy_tailed.localisation.plans import LocalPhase
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.heavy_tailed.problem import Problem, Records, some_records
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
) -> Solution:
    r"""$w \leftarrow \Pi(w - \eta(\tilde g + \lambda(w - w_0)))$, T times on all records, from $w_0$; the last iterate.

    Only the loss's subgradients are clipped, never the regulariser. $\Pi$ projects on the domain, intersected with a ball about $w_0$.

    Formal guarantee: $\sqrt{2\rho}$-GDP, the cost of T Gaussian mechanisms on all records, all iterates included.

    All records are used in every step; `centre` is $w_0$, shape (d,), None: 0; `phase` has $\eta \in (0, 2/\lambda]$; $\rho = \infty$:
    no noise, not private.

    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 3.
    """
    oracle = ClippedMean(clip_norm=phase.clip_norm, rho=rho)
    noisy = NoisyBatches(problem, records, oracle, centre, generator, batches=1, passes=phase.steps)
    start = point = noisy.start
    project = near_projection(problem.domain, start, phase.radius)
    for step in range(phase.steps):
        # Relative to w_0: late phases move by less than the rounding of a pull times w.
        point = project(point - phase.step_size * (noisy.gradient(point, step) + phase.strength * (point - start)))
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
) -> Solution:
    r"""Phase i solves a regularised problem about the last point on $n_i = n/2^i$ fresh records, ever more local; the last point.

    Formal guarantee: the phases' records are disjoint and each phase is $\sqrt{2\rho}$-GDP, so the whole is, all iterates included.

    Args:
        problem: its gradient may be any subgradient; convex in the parameters for every record, for the theory.
        records: at least as many as the schedule uses; the rest is left out.
        schedule: from `localised_theory` or `localised_practical`.
        rho: $\rho$ of the whole run; infinity: no noise, not private.
        start: $w_0$, shape (d,), projected on the domain; None: 0.
        most_gradients: it refuses to compute more per-record gradients: the theory's schedule needs about $n^{2+1/k}\ln n$.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 4.
    """

    def solve(part: Records, local: LocalPhase, point: Array) -> tuple[Array, Phase]:
        end = regularised_descent(problem, part, local, rho, centre=point, generator=generator)
        return end.parameters, end.phases[0]

    point, phases, facts = phase_by_phase(problem, records, schedule, start, most_gradients, lambda local: local.records, solve)
    method = "localised clipped subgradient descent"
    return Solution(parameters=point, phases=tuple(phases), method=method, diagnostics=facts, seeded=generator is not None)


def phase_by_phase(
    problem: Problem,
    records: Records,
    schedule: tuple[LocalPhase, ...],
    start: object,
    most_gradients: int,
    batch_size: Callable[[LocalPhase], int],
    solve: Callable[[Records, LocalPhase, Array], tuple[Array, Phase]],
) -> tuple[Array, list[Phase], dict[str, float]]:
    """Go through a schedule, each phase on fresh records from where the one before ended.

    `batch_size` says how many records a batch of a phase has, `solve` carries one phase out from a point.

    Returns:
        The last point, the phases, and public facts.
    Raises:
        InputError: it is no schedule, or needs more records or gradients than there may be.
    """
    point, count = start_of(problem, start, records)
    if not schedule or not all(isinstance(phase, LocalPhase) for phase in schedule):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError("schedule: it needs at least one LocalPhase.", source="the argument schedule", remedy="take localised_theory's")
    needed, work = sum(phase.records for phase in schedule), sum(batch_size(phase) * phase.steps for phase in schedule)
    if needed > count:
        raise InputError(
            f"schedule: it uses {needed} records of {count}.", source="the argument schedule", remedy="plan it for fewer records"
        )
    if work > require_count("most_gradients", most_gradients):
        raise InputError(
            f"schedule: it computes {work:.3g} gradients; at most {most_gradients:.3g} are allowed.",
            source="the argument schedule",
            remedy="take localised_practical, which limits the steps of a phase, or raise most_gradients",
        )
    first, phases = 0, list[Phase]()
    for local in schedule:
        point, phase = solve(some_records(records, slice(first, first + local.records)), local, point)
        phases.append(phase.moved(first))
        first += local.records
    return point, phases, {"phases": len(phases), "records_used": first, "gradients": work}
