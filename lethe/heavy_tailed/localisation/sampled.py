"""The localised solver on small batches drawn in secret: far fewer gradients, for an (epsilon, delta) guarantee. The estimators for heavy
tails call `sampled_localised` when a user chooses it; lethe/accounting/heavy_tailed.py derives its cost again from `draws_of`. Phase i has
$n_i$ records, z is the noise multiplier, q the sampling rate.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lethe.calculus.conversions import gdp_mu
from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.domains import require_count, require_positive
from lethe.calculus.guarantees import ApproxDP
from lethe.calculus.large_delta import delta_for
from lethe.calculus.noise_generators import noise_generator
from lethe.calculus.rounding import round_down, round_up
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.heavy_tailed.localisation.descent import MOST_GRADIENTS, phase_by_phase, regularised_descent
from lethe.heavy_tailed.localisation.plans import LocalPhase
from lethe.heavy_tailed.oracles import clip_rows
from lethe.heavy_tailed.problem import Problem, Records, count_records, some_records
from lethe.heavy_tailed.progress import Progress
from lethe.heavy_tailed.sets import Array, near_projection
from lethe.heavy_tailed.solution import Phase, Release, Solution, composed

_LEAST_NOISE = 0.4  # of one record's part of a sum: accounting for less takes many seconds, and no target worth the name asks for it
_TOLERANCE = 1e-3
FEWEST_RECORDS = 64
"""Phases on fewer records take them all at every step: sampling would save little, and hide little."""


def sampled_localised(
    problem: Problem,
    records: Records,
    *,
    schedule: tuple[LocalPhase, ...],
    epsilon: float,
    delta: float,
    allow_large_delta: bool = False,
    start: ArrayLike | None = None,
    most_gradients: int = MOST_GRADIENTS,
    generator: np.random.Generator | None = None,
    progress: bool | Progress = True,
) -> Solution:
    r"""`localised`, with batches of $m_i = \lceil\sqrt{n_i}\rceil$ records on average, each with probability $m_i/n_i$.

    $$w \leftarrow \Pi\Big(w - \eta_i\Big(\frac1{m_i}\sum_{u \in S}\Pi_{C_i}(g_u) + N(0, \sigma_i^2I) + \lambda_i(w - w_0)
      \Big)\Big),\qquad\sigma_i = \frac{z_iC_i}{m_i}$$

    The sum is divided by the nominal $m_i$, not by how many were drawn, which is secret. About $n^{3/2+1/k}\ln n$ gradients with the
    theorem's schedule in place of $n^{2+1/k}\ln n$.

    Formal guarantee: $(\epsilon, \delta)$-DP for replacing one record, n public, all iterates released and the batches secret. The phases'
    records are disjoint; in phase i each step is a Poisson-sampled Gaussian mechanism, whatever was released before it, and $z_i$ is the
    smallest noise from 0.4 on (within a thousandth) whose $T_i$-fold composition meets the target by `lethe.calculus.sampled.gaussian`.
    Phases on fewer than 64 records use all of them at every step, as a Gaussian mechanism that meets the target.
    The paper calibrates by the moments accountant's closed form, whose conditions (small rates, noise at least that of one
    record, small $\epsilon$) short phases do not meet.

    Args:
        problem, records, schedule, start, most_gradients, progress: as `localised`.
        epsilon: $\epsilon > 0$, finite.
        delta: $\delta \in (0, 1)$, and below 1/records.
        allow_large_delta: whether a delta >= 1/records is meant.
        generator: of the batches and of the noise; None: fresh entropy, as privacy needs: with another the solution is `seeded`.
    Reference: Lowy & Razaviyayn 2023, arXiv:2209.07403, Remarks 13 and 42.
    """
    source, target = noise_generator(generator), require_positive("epsilon", epsilon)
    slack = delta_for(count_records(records), delta, allow_large_delta=allow_large_delta)
    mu = round_down(gdp_mu(target, slack), 1e-12)
    rho = round_down(0.5 * mu * mu, 1e-12)

    def solve(part: Records, local: LocalPhase, point: Array, step_done: Callable[[], None]) -> tuple[Array, Phase]:
        if local.records < FEWEST_RECORDS:
            end = regularised_descent(problem, part, local, rho, centre=point, generator=generator, step_done=step_done)
            return end.parameters, end.phases[0]
        return _sampled_phase(problem, part, local, point, target, slack, source, step_done)

    point, phases, facts = phase_by_phase(problem, records, schedule, start, most_gradients, nominal_batch, solve, progress)
    whole = composed(phases)
    return Solution(
        parameters=point,
        seeded=generator is not None,
        phases=tuple(phases),
        guarantee=whole if any(phase.whole for phase in phases) else ApproxDP(whole.epsilon(slack), slack),
        method="localised clipped subgradient descent on secret batches",
        diagnostics=facts,
    )


def nominal_batch(phase: LocalPhase) -> int:
    r"""$\lceil\sqrt{n_i}\rceil$, or all of fewer than 64 records."""
    return phase.records if phase.records < FEWEST_RECORDS else math.isqrt(phase.records - 1) + 1


def _sampled_phase(
    problem: Problem,
    records: Records,
    local: LocalPhase,
    start: Array,
    epsilon: float,
    delta: float,
    generator: np.random.Generator,
    step_done: Callable[[], None],
) -> tuple[Array, Phase]:
    """One phase on secret random batches: its last point, and the phase with its cost."""
    batch, count = nominal_batch(local), local.records
    rate = batch / count
    multiplier, spent = sampled_noise(rate, local.steps, epsilon, delta)
    noise_std = round_up(multiplier * local.clip_norm / batch, 4e-15)
    project, point = near_projection(problem.domain, start, local.radius), start
    for _ in range(local.steps):
        gradient = noise_std * generator.standard_normal(problem.dimension)
        drawn = generator.choice(count, size=int(generator.binomial(count, rate)), replace=False, shuffle=False)
        if len(drawn):
            rows = problem.gradients(point, some_records(records, drawn))
            gradient += clip_rows(rows, local.clip_norm).sum(axis=0) / batch
        point = project(point - local.step_size * (gradient + local.strength * (point - start)))
        step_done()
    single = _steps(rate, multiplier, 1)
    return point, Phase(
        first=0,
        stop=count,
        batch_size=batch,
        steps=local.steps,
        touches=local.steps,
        release=Release(guarantee=single, sensitivity=round_up(2.0 * local.clip_norm / batch, 1e-15), noise_std=noise_std),
        clip_norm=local.clip_norm,
        whole=ApproxDP(spent, delta),
    )


def _steps(rate: float, noise: float, count: int) -> SampledGaussian:
    return SampledGaussian(sampling_probability=rate, noise=(noise,), counts=(count,), relation="replace_one", design="poisson")


def draws_of(phase: Phase) -> dict[str, Any] | None:
    """The numbers that give the cost of a phase on secret batches, with how often a record is used; None for another kind of phase."""
    single = phase.release.guarantee
    if not isinstance(phase.whole, ApproxDP) or not isinstance(single, SampledGaussian):
        return None
    return {"sampling_probability": single.sampling_probability, "noise": single.noise[0], "delta": phase.whole.delta_bound}


def drawn_phase(*, first: int, stop: int, touches: int, sampling_probability: Any, noise: Any, delta: Any) -> Phase:
    """A phase with what `draws_of` says costs, from those numbers alone; its sizes are not known from them.

    Raises:
        InputError: they are not those of a phase.
    """
    require_count("stop", stop, low=require_count("first", first, low=0) + 1)
    whole = ApproxDP(_steps(sampling_probability, noise, require_count("touches", touches)).epsilon(delta), delta)
    release = Release(guarantee=whole, sensitivity=None, noise_std=0.0)
    return Phase(first=first, stop=stop, batch_size=1, steps=touches, touches=touches, release=release, clip_norm=None, whole=whole)


@lru_cache(maxsize=256)
def sampled_noise(rate: float, steps: int, epsilon: float, delta: float) -> tuple[float, float]:
    r"""The smallest noise multiplier $z \ge 0.4$, within a thousandth, of T steps that are $(\epsilon, \delta)$-DP, and their $\epsilon$.

    An evaluation of the exact price takes up to seconds, so the search starts where a central limit says: $\mu^2 = 4q^2T\sinh(1/z^2)$, from
    $\int\frac{(qN(1,z^2)-qN(-1,z^2))^2}{N(0,z^2)}$ a step. Nothing depends on it but the time: the z that is returned was itself priced
    and meets the target.
    """
    prices = dict[float, float]()

    def gap(logarithm: float) -> float:
        noise = math.exp(logarithm)
        prices[logarithm] = _steps(rate, noise, steps).epsilon(delta)
        return log_gap(prices[logarithm], epsilon)

    floor = math.log(_LEAST_NOISE)
    first_log = max(math.log(normal_limit(rate, steps, gdp_mu(epsilon, delta))), floor)
    gap_here = gap(first_log)
    shortest = _TOLERANCE
    while True:
        if gap_here <= 0.0 and first_log == floor:
            return math.exp(first_log), prices[first_log]
        # Epsilon falls at least as fast as the noise grows, so this far is most often beyond the end.
        stride = min(max(1.2 * abs(gap_here), shortest), 0.25)
        second_log = max(first_log - stride, floor) if gap_here <= 0.0 else first_log + stride
        gap_there = gap(second_log)
        if (gap_there <= 0.0) != (gap_here <= 0.0):
            break
        first_log, gap_here, shortest = second_log, gap_there, 2.0 * shortest
    (failing, gap_failing), (passing, gap_passing) = sorted(((first_log, gap_here), (second_log, gap_there)), key=lambda end: -end[1])
    log_noise = crossing(gap, failing, passing, resolution=math.log1p(_TOLERANCE), gap_failing=gap_failing, gap_passing=gap_passing)
    return math.exp(log_noise), prices[log_noise]


def normal_limit(rate: float, steps: int, mu: float) -> float:
    r"""The z at which $4q^2T\sinh(1/z^2) = \mu^2$, within a range of positive numbers."""
    ratio = 2.0 * rate * math.sqrt(steps) / max(mu, 1e-100)
    return math.asinh(min(max(ratio, 1e-2), 1e100) ** -2.0) ** -0.5
