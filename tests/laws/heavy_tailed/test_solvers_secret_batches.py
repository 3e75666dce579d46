"""The noise of secret batches against the exact price, never too little and hardly too much; localised phases on them; released moments."""

import math
from dataclasses import replace

import numpy as np
import pytest
from how_many import by_night
from scipy.integrate import quad
from scipy.stats import beta, binom, norm
from solver_problems import distances, regression, regression_records

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.calculus.sampled.gaussian import SampledGaussian
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass, practical_oracle
from lethe.heavy_tailed.localisation.descent import regularised_descent
from lethe.heavy_tailed.localisation.plans import LocalPhase, localised_practical
from lethe.heavy_tailed.localisation.sampled import nominal_batch, sampled_localised, sampled_noise
from lethe.heavy_tailed.private_moments import estimated_moments, private_moment
from lethe.heavy_tailed.problem import Records
from lethe.heavy_tailed.sets import Array, BoxDomain, WholeSpace

DELTA = 1e-5


def one_step_delta(rate: float, noise: float, epsilon: float) -> float:
    """Of (1-q)N(0, z^2) + qN(1, z^2) against (1-q)N(0, z^2) + qN(-1, z^2), by integration."""

    def excess(x: float) -> float:
        shared = (1 - rate) * norm.pdf(x, 0, noise)
        return max(shared + rate * norm.pdf(x, 1, noise) - math.exp(epsilon) * (shared + rate * norm.pdf(x, -1, noise)), 0.0)

    return quad(excess, 0.0, 1.0 + 40.0 * noise, limit=2000, points=[1.0, 4.0 * noise, 12.0 * noise])[0]


def composed_delta(rate: float, noise: float, steps: int, epsilon: float) -> float:
    """Of that many steps: the law on 200 000 points, losses rounded to the nearest of a grid of 1/4000, convolved.

    Rounding errs to both sides, by 1e-4 in the sum of 30 losses, and so delta by a thousandth of itself.
    """
    points = np.linspace(-1.0 - 9.0 * noise, 1.0 + 9.0 * noise, 200_000)
    shared, up, down = (
        (1 - rate) * norm.pdf(points, 0.0, noise),
        rate * norm.pdf(points, 1.0, noise),
        rate * norm.pdf(points, -1.0, noise),
    )
    places = np.rint(4000.0 * np.log((shared + up) / (shared + down))).astype(int)
    law = (shared + up) / (shared + up).sum()
    masses = np.bincount(places - places.min(), weights=law)
    length = 2 ** math.ceil(math.log2(steps * masses.size))
    together = np.fft.irfft(np.fft.rfft(masses, length) ** steps, length)
    losses = (np.arange(length) + steps * int(places.min())) / 4000.0
    return float((together * np.maximum(-np.expm1(epsilon - losses), 0.0)).sum())


def test_the_noise_of_one_step_is_just_enough() -> None:
    assert composed_delta(0.125, 2.0, 1, 0.5) == pytest.approx(one_step_delta(0.125, 2.0, 0.5), rel=2e-3)
    noise, spent = sampled_noise(0.125, 1, 0.5, DELTA)
    assert spent <= 0.5
    assert one_step_delta(0.125, noise, 0.5) <= DELTA * (1 + 1e-6)
    assert one_step_delta(0.125, 0.995 * noise, 0.5) > DELTA  # 0.1 % of the search, and what the discretisation adds


@pytest.mark.parametrize(("rate", "steps", "epsilon"), [(0.125, 30, 1.0), (0.05, 30, 0.5), (0.05, 100, 1.0)])
def test_the_noise_of_many_steps_is_just_enough(rate: float, steps: int, epsilon: float) -> None:
    """An independent price: at most the target, and above it with three thousandths less noise."""
    noise, spent = sampled_noise(rate, steps, epsilon, DELTA)
    assert spent <= epsilon
    assert composed_delta(rate, noise, steps, epsilon) <= DELTA * (1 + 2e-3)
    assert composed_delta(rate, 0.997 * noise, steps, epsilon) > DELTA * (1 + 2e-3)


def test_where_the_search_starts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """From far below and far above, and a price that is not smooth: at most the target, and above it a thousandth further down."""
    asked = list[float]()

    def price(self: SampledGaussian, delta: float) -> float:
        asked.append(self.noise[0])
        return math.ceil(50.0 / self.noise[0] ** 1.3) / 20.0

    monkeypatch.setattr(SampledGaussian, "epsilon", price)
    for start in (0.01, 1.0, 7.0, 300.0):
        monkeypatch.setattr("lethe.heavy_tailed.localisation.sampled.normal_limit", lambda *_, start=start: start)
        for target in (0.06, 0.5, 1.0):
            asked.clear()
            noise, spent = sampled_noise.__wrapped__(0.1, 10, target, DELTA)
            assert noise in asked
            assert spent == math.ceil(50.0 / noise**1.3) / 20.0 <= target
            assert math.ceil(50.0 / (noise / 1.0011) ** 1.3) / 20.0 > target
            assert len(asked) < 40


def test_it_never_goes_below_the_least_noise_that_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SampledGaussian, "epsilon", lambda self, delta: 0.1 / self.noise[0])
    for target in (0.3, 5.0, 100.0):
        noise, spent = sampled_noise.__wrapped__(0.1, 10, target, DELTA)
        assert noise == pytest.approx(0.4, rel=1e-15)
        assert spent == pytest.approx(0.25)


RHO = 0.5
EPSILON, DELTA = 1.0, 1e-5


PROBLEM = Problem(
    gradient=distances,
    dimension=2,
    domain=BallDomain(radius=2.0),
    moments=Moments(order=4, bound=1.0, kind="uniform", half=1.0, second=1.0),
)


def test_the_largest_gradient_is_not_bounded_by_the_higher_moment() -> None:
    """f = M(<w, x> - 1/2)_+, w of the unit ball, x uniform on the sphere in 200 dimensions, k = 2: sup_w |gradient| is M (take w = x).

    So the moments of the supremum are M, and the supremum of the moments of order 4 is M P(<w, x> > 1/2)^(1/4): no constant relates them.
    """
    chance = 0.5 * beta.sf(0.5**2, 0.5, (200 - 1) / 2)  # <w, x>^2 has a beta law
    directions = np.random.default_rng(0).standard_normal((20_000, 200))
    cosines = directions[:, 0] / np.linalg.norm(directions, axis=1)
    assert np.mean(cosines > 0.1) == pytest.approx(0.5 * beta.sf(0.1**2, 0.5, (200 - 1) / 2), abs=5 * 0.27 / math.sqrt(20_000))
    assert 2000.0 * chance**0.25 < 1.0


@pytest.mark.parametrize("domain", [BallDomain(radius=1.0), WholeSpace(), BoxDomain(low=(-0.5, -0.2), high=(0.5, 0.4))])
def test_every_step_stays_in_the_domain_and_in_the_ball(domain: BallDomain | BoxDomain) -> None:
    seen: list[Array] = []

    def gradient(parameters: Array, records: Records) -> Array:
        seen.append(parameters)
        return np.ones((len(records), 2))

    problem = Problem(gradient=gradient, dimension=2, domain=domain)
    start = domain.project(np.array([0.9, 0.3]))
    phase = LocalPhase(records=4, steps=30, step_size=0.5, strength=0.5, radius=0.25, clip_norm=1.0)
    regularised_descent(problem, np.zeros(4), phase, 0.01, centre=start, generator=np.random.default_rng(2))
    for point in seen:
        assert np.linalg.norm(point - start) <= 0.25 + 1e-9
        assert np.allclose(domain.project(point), point, atol=1e-9)


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


@pytest.mark.parametrize(("order", "freedom"), [(2.0, 9), (4.0, 20)])
def test_the_bound_is_wrong_no_more_often_than_promised(order: float, freedom: int) -> None:
    rng, truth = np.random.default_rng(3), float(np.mean(np.abs(np.random.default_rng(0).standard_t(freedom, size=10**6)) ** order))
    moment, wrong, runs = truth ** (1 / order), 0, 200 if by_night() else 50
    cell = (1e9 / 1e-6) ** (1 / 256)
    for _ in range(runs):
        estimate = private_moment(np.abs(rng.standard_t(freedom, size=20000)), order=order, rho=RHO, failure=0.02, generator=rng)
        wrong += not moment <= estimate.bound <= 3 ** (1 / order) * cell * moment
        assert estimate.failure <= 0.02
    assert wrong <= binom.isf(1e-6, runs, 0.02)


def test_the_solver_uses_the_other_records_and_the_larger_cost_is_the_whole() -> None:
    rng = np.random.default_rng(6)
    problem, records = replace(regression(), moments=None), regression_records(4096, rng)
    estimate = estimated_moments(problem, records, order=2, rho=RHO, points=[np.zeros(10), np.full(10, -0.3)], generator=rng)
    stated = replace(problem, moments=estimate.moments)
    others = estimate.others(records)
    assert len(others[0]) == 4096 - 409 == 4096 - estimate.phase.stop
    for rho, larger in ((RHO, RHO), (0.1, RHO), (2.0, 2.0)):
        solution = multi_pass(stated, others, oracle=practical_oracle(stated, rho=rho), generator=rng)
        whole = estimate.joined(solution)
        assert isinstance(whole.fresh.guarantee, GDP)
        assert whole.fresh.guarantee.mu == max(estimate.phase.with_fresh_noise.mu, solution.fresh.guarantee.mu)  # pyright: ignore[reportAttributeAccessIssue]
        assert whole.fresh.guarantee.mu == pytest.approx(math.sqrt(2 * larger), rel=1e-12)
        assert whole.phases[0].stop == whole.phases[1].first == 409
        assert whole.phases[1].stop == 4096
        assert np.array_equal(whole.parameters, solution.parameters)
        assert whole.diagnostics["records_for_moments"] == 409


def test_a_moment_inside_the_range_may_be_made_of_sizes_beyond_it() -> None:
    """0, or 30 high with probability 1/1000: the moment is 0.95 high, and cutting sizes at high would find a thirtieth of it."""
    rng, high, chance = np.random.default_rng(9), 100.0, 1e-3
    for _ in range(5):
        values = np.where(rng.random(41 * 40_000) < chance, 30.0 * high, 0.0)
        estimate = private_moment(values, order=2, rho=RHO, low=1e-2, high=high, generator=rng)
        assert 1 / chance <= 1 + estimate.block_size / 32  # the hypothesis of `failure`
        assert estimate.bound >= 30.0 * high * math.sqrt(chance)
