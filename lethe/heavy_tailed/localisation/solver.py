"""Localised noisy clipped subgradient descent, for convex losses that need not be smooth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.domains import require_count, require_nonnegative, require_positive
from lethe.calculus.noise_generators import noise_generator
from lethe.errors import InputError
from lethe.heavy_tailed.inputs import Array
from lethe.heavy_tailed.localisation.plans import LocalPhase, require_schedule
from lethe.heavy_tailed.oracles.base import MeanOracle
from lethe.heavy_tailed.oracles.clipped import ClippedMean
from lethe.heavy_tailed.problem import Problem, Records, some_records
from lethe.heavy_tailed.sets import BallDomain, WholeSpace, dykstra, onto_two_balls
from lethe.heavy_tailed.single_pass.blocks import noisy_gradient, phase_over, require_oracle, started
from lethe.heavy_tailed.solution import Phase, Solution, composed

MOST_GRADIENTS = 10**9


def regularised_descent(
    problem: Problem,
    records: Records,
    *,
    oracle: MeanOracle,
    steps: int,
    step_size: float,
    strength: float,
    centre: ArrayLike | None = None,
    radius: float | None = None,
    generator: np.random.Generator | None = None,
) -> Solution:
    r"""$w \leftarrow \Pi(w - \eta(\tilde g + \lambda(w - w_0)))$, T times on all records, from $w_0$; the last iterate.

    Only the loss's subgradients are clipped, never the regulariser. $\Pi$ projects on the domain, intersected with a ball about $w_0$.

    Formal guarantee: what the oracle states, its cost shared by T Gaussian mechanisms on all records.

    Args:
        problem: its gradient may be any subgradient.
        records: n of them, all used in every step.
        oracle: states the cost of all T steps.
        steps: T.
        step_size: $\eta \in (0, 2/\lambda]$.
        strength: $\lambda \ge 0$.
        centre: $w_0$, shape (d,), projected on the domain; None: 0.
        radius: of the ball about $w_0$; None: no ball.
        generator: of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Raises:
        InputError: an argument is outside its range.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 3.
    """
    start, count = started(problem, centre, records)
    rounds, source = require_count("steps", steps), noise_generator(generator)
    length, pull = require_positive("step_size", step_size), require_nonnegative("strength", strength, allow_infinity=False)
    if length * pull > 2.0:
        raise InputError(
            f"step_size = {length:g} and strength = {pull:g}; their product is {length * pull:g} and needs to be at most 2.",
            source="the arguments step_size and strength",
            remedy="take smaller steps",
        )
    single = require_oracle(oracle, count).shared(rounds)
    project = local_projection(problem, start, None if radius is None else require_positive("radius", radius))
    point, everything = start, slice(0, count)
    for _ in range(rounds):
        gradient = noisy_gradient(problem, point, records, everything, single, source)
        # Relative to w_0: late phases move by less than the rounding of a pull times w.
        point = project(point - length * (gradient + pull * (point - start)))
    phase = phase_over([everything], single, problem.dimension, touches=rounds)
    return Solution(
        parameters=point,
        seeded=generator is not None,
        phases=(phase,),
        guarantee=composed([phase]),
        method="regularised clipped subgradient descent",
        diagnostics={"steps": rounds, "noise_std": phase.release.noise_std},
    )


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
    Raises:
        InputError: an argument is outside its range, or the schedule needs more records or gradients than there may be.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Algorithm 4.
    """
    point, count = started(problem, start, records)
    work = require_work(schedule, count, most_gradients, lambda phase: phase.records)
    first, phases = 0, list[Phase]()
    for local in schedule:
        part = some_records(records, slice(first, first + local.records))
        point, phase = full_batch_phase(problem, part, local, point, rho, generator)
        phases.append(phase.moved(first))
        first += local.records
    return Solution(
        parameters=point,
        seeded=generator is not None,
        phases=tuple(phases),
        guarantee=composed(phases),
        method="localised clipped subgradient descent",
        diagnostics={"phases": len(phases), "records_used": first, "gradients": work},
    )


def full_batch_phase(
    problem: Problem, records: Records, local: LocalPhase, start: Array, rho: float, generator: np.random.Generator | None
) -> tuple[Array, Phase]:
    """One phase of a schedule by `regularised_descent`, all of its records at every step: its last point, and its privacy.

    Args:
        problem, generator: as `localised`.
        records: of this phase.
        local: its clip norm, steps, step size, strength and radius.
        start: shape (d,), where it begins and what it is drawn to.
        rho: its zCDP budget.
    """
    done = regularised_descent(
        problem,
        records,
        oracle=ClippedMean(clip_norm=local.clip_norm, rho=rho),
        steps=local.steps,
        step_size=local.step_size,
        strength=local.strength,
        centre=start,
        radius=local.radius,
        generator=generator,
    )
    return done.parameters, done.phases[0]


def require_work(schedule: object, count: int, most_gradients: int, batch_size: Callable[[LocalPhase], int]) -> int:
    """How many gradients a schedule computes with batches of these sizes.

    Args:
        schedule: anything; a schedule of `LocalPhase`s is accepted.
        count: the number of records there are.
        most_gradients: the largest number of gradients that is accepted, >= 1.
        batch_size: the records in a batch of a phase.
    Raises:
        InputError: it is no schedule, or needs more records or gradients than there may be.
    """
    phases = require_schedule(schedule)
    needed, work = sum(phase.records for phase in phases), sum(batch_size(phase) * phase.steps for phase in phases)
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
    return work


def local_projection(problem: Problem, centre: Array, radius: float | None) -> Callable[[Array], Array]:
    """The projection on the points of the domain that lie in a ball.

    Args:
        problem: its domain is meant.
        centre: of the ball, shape (d,).
        radius: of the ball, > 0, in parameter units; None: the whole domain.
    """
    domain = problem.domain
    if radius is None:
        return domain.project
    local = BallDomain(radius=radius, centre=tuple(centre.tolist()))
    if isinstance(domain, WholeSpace):
        return local.project
    if isinstance(domain, BallDomain):
        return lambda point: onto_two_balls(point, domain, local)

    def project(point: Array) -> Array:
        near = domain.project(point)
        return near if float(np.linalg.norm(near - centre)) <= radius else dykstra(point, [local, domain])

    return project
