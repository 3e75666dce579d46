"""The localised solver on secret batches: its price, its noise, its gradients, and its refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
from solver_problems import distances

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.errors import InputError
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.localisation.plans import localised_practical, localised_theory
from lethe.heavy_tailed.localisation.sampled import nominal_batch, sampled_localised, sampled_noise
from lethe.heavy_tailed.private_moments import private_moment
from lethe.heavy_tailed.solution import Phase, Release, beside, composed, gaussian_release

EPSILON, DELTA = 1.0, 1e-5


PROBLEM = Problem(
    gradient=distances,
    dimension=2,
    domain=BallDomain(radius=2.0),
    moments=Moments(order=4, bound=1.0, kind="uniform", half=1.0, second=1.0),
)


@pytest.mark.slow
def test_every_phase_meets_the_target_and_together_they_cost_the_worst() -> None:
    rng = np.random.default_rng(0)
    schedule = localised_practical(PROBLEM, 2048, 0.5, most_steps=30)
    records = rng.standard_t(5, size=(2048, 2))
    done = sampled_localised(PROBLEM, records, schedule=schedule, epsilon=EPSILON, delta=DELTA, generator=rng)
    assert isinstance(done.fresh.guarantee, ApproxDP)
    assert done.fresh.guarantee.delta_bound == DELTA
    assert 0.998 * EPSILON <= done.fresh.guarantee.epsilon_bound <= EPSILON
    assert [phase.stop - phase.first for phase in done.phases] == [phase.records for phase in schedule]
    for phase, local in zip(done.fresh.phases, schedule, strict=True):
        assert phase.with_fresh_noise.epsilon(DELTA) <= EPSILON
        assert phase.batch_size == nominal_batch(local) == (local.records if local.records < 64 else math.ceil(math.sqrt(local.records)))
        if local.records >= 64:
            noise, spent = sampled_noise(phase.batch_size / local.records, local.steps, EPSILON, DELTA)
            assert phase.release.noise_std == pytest.approx(noise * local.clip_norm / phase.batch_size, rel=1e-12)
            assert phase.whole == ApproxDP(spent, DELTA)
            assert phase.rho is None
        else:
            assert isinstance(phase.with_fresh_noise, GDP)
    assert done.fresh.zcdp is None
    assert np.linalg.norm(done.parameters) <= 2.0 + 1e-9


def test_fewer_gradients_than_full_batches() -> None:
    schedule = localised_theory(PROBLEM, 4096, 0.5)
    full = sum(phase.records * phase.steps for phase in schedule)
    assert sum(nominal_batch(phase) * phase.steps for phase in schedule) < full / 30


@pytest.mark.slow
def test_a_released_moment_joins_at_the_target_s_delta() -> None:
    schedule = localised_practical(PROBLEM, 128, 0.5, most_steps=5)
    estimate = private_moment(np.ones(200), order=2, rho=0.5)
    done = sampled_localised(PROBLEM, np.ones((128, 2)), schedule=schedule, epsilon=EPSILON, delta=DELTA)
    whole = estimate.joined(done)
    assert isinstance(whole.fresh.guarantee, ApproxDP)
    assert whole.fresh.guarantee == ApproxDP(
        max(estimate.phase.with_fresh_noise.epsilon(DELTA), done.fresh.guarantee.epsilon(DELTA)), DELTA
    )
    assert whole.phases[1].first == 200


def test_phases_with_secret_batches_may_not_share_records() -> None:
    single = Phase(first=0, stop=10, batch_size=3, steps=2, touches=2, release=gaussian_release(1.0, 1.0), clip_norm=1.0)
    secret = replace(single, release=Release(guarantee=GDP(1.0), sensitivity=1.0, noise_std=1.0), whole=ApproxDP(1.0, DELTA))
    assert composed([secret, single.moved(10)]) == ApproxDP(single.guarantee.epsilon(DELTA), DELTA)
    with pytest.raises(InputError, match="disjoint"):
        composed([secret, single.moved(9)])
    with pytest.raises(InputError, match="guarantees of kind"):
        beside([])
