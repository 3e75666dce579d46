"""The solvers after other papers: sensitivities attained by worst-case neighbours, noise to the last digit, and runs again by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass
from lethe.heavy_tailed.coordinate_wise import SmoothedMean, median_oracle, smoothed_oracle
from lethe.heavy_tailed.localisation.plans import LocalPhase, localised_practical, noise_led_phases
from lethe.heavy_tailed.localisation.population import central_candidate, population_localised
from lethe.heavy_tailed.oracles import ClippedMean, PureClippedMean
from lethe.heavy_tailed.problem import clipping_bias
from lethe.heavy_tailed.sets import Array
from lethe.heavy_tailed.solution import Solution

RHO, EPSILON, COUNT = 0.35, 0.8, 23
PRECISIONS = (1.0, 5.0, 40.0, 1e6)
PROBLEM = Problem(
    gradient=lambda parameters, records: np.asarray(records, dtype=np.float64) + 0.0 * parameters,
    dimension=3,
    domain=BallDomain(radius=1.0),
    smoothness=2.0,
    moments=Moments(order=4, bound=2.0, second=1.5),
)


def truncated(value: float) -> float:
    return value - value**3 / 6 if abs(value) <= math.sqrt(2) else math.copysign(2 * math.sqrt(2) / 3, value)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_smoothed_truncation_is_the_integral(precision: float) -> None:
    """Over the smoothing noise, by quadrature; odd, not decreasing, and from z no further than its bound of the bias."""
    oracle, root = SmoothedMean(scale=1.0, precision=precision, rho=RHO), math.sqrt(precision)

    def integral(value: float) -> float:
        ends = [-9.0, *sorted(min(max((bend / value - 1.0) * root, -9.0), 9.0) for bend in (-math.sqrt(2), math.sqrt(2))), 9.0]

        def kernel(t: float) -> float:
            return truncated(value * (1.0 + t / root)) * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

        return math.fsum(quad(kernel, low, high, epsabs=1e-14)[0] for low, high in pairwise(ends) if high > low)

    values = np.array([1e-3, 0.3, 1.0, 1.5, 3.0, 40.0, 900.0])
    assert oracle.influences(values) == pytest.approx([integral(value) for value in values.tolist()], rel=2e-8)  # 1e-16 x 900^2
    assert oracle.influences(-values) == pytest.approx(-oracle.influences(values))
    grid = np.geomspace(1e-6, 1e9, 4000)
    found = oracle.influences(grid)
    assert np.diff(found).min() > -2e-6  # of rounding
    assert np.all(np.abs(found - grid) <= 3 / (8 * math.sqrt(2)) * (1 + 1 / precision) * grid**2 * (1 + 1e-9))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_worst_case_attains_the_smoothed_sensitivity(precision: float) -> None:
    """One record of the nine from far down to far up in every coordinate: all of it, with the root of the dimension."""
    oracle = SmoothedMean(scale=2.0, precision=precision, rho=RHO)
    low, high = np.zeros((9, 4)), np.zeros((9, 4))
    low[0], high[0] = -1e200, 1e200
    quiet = replace(oracle, rho=math.inf)
    moved = np.linalg.norm(quiet.mean(high, np.random.default_rng()) - quiet.mean(low, np.random.default_rng()))
    release = oracle.release(9, 4)
    assert release.sensitivity is not None
    assert moved <= release.sensitivity
    assert moved == pytest.approx(release.sensitivity, rel=1e-5)
    assert release.sensitivity / release.noise_std == pytest.approx(math.sqrt(2 * RHO), rel=1e-12)
    rows = np.random.default_rng(0).standard_t(2, size=(9, 4))
    noise = np.random.default_rng(3).standard_normal(4) * moved / math.sqrt(2 * RHO)
    assert oracle.mean(rows, np.random.default_rng(3)) == pytest.approx(quiet.mean(rows, np.random.default_rng()) + noise, rel=1e-5)


@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 9), scale=st.sampled_from([0.1, 1.0, 1e6, 1e200]))
def test_no_replacement_moves_a_smoothed_mean_further(seed: int, size: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    oracle = SmoothedMean(scale=0.7, precision=float(rng.choice(PRECISIONS)), rho=math.inf)
    rows = rng.standard_normal((size, 3)) * scale
    changed = rows.copy()
    changed[rng.integers(size)] = rng.choice([-1.0, 1.0], 3) * scale * rng.choice([0.0, 1.0, 1e3])
    sensitivity = oracle.release(size, 3).sensitivity
    assert sensitivity is not None
    assert np.linalg.norm(oracle.mean(rows, rng) - oracle.mean(changed, rng)) <= sensitivity


def test_pure_noise_is_what_the_proof_needs() -> None:
    """Of a density c exp(-|z|/b), b = 2 C/(s epsilon): worst-case means are 2 C/s apart, so that no log ratio is above epsilon."""
    oracle = PureClippedMean(clip_norm=1.5, epsilon=EPSILON)
    rows = np.random.default_rng(0).standard_t(2, size=(7, 3))
    clipped = rows * np.minimum(1.0, 1.5 / np.linalg.norm(rows, axis=1))[:, None]
    rng = np.random.default_rng(5)
    length, direction = rng.gamma(3), rng.standard_normal(3)
    noise = 2 * 1.5 / (7 * EPSILON) * length * direction / np.linalg.norm(direction)
    assert oracle.mean(rows, np.random.default_rng(5)) == pytest.approx(clipped.mean(axis=0) + noise, rel=1e-12)
    # The law: |z| is gamma of shape d and the direction uniform, so E z z' = (d + 1) I at b = 1, and P(|z| <= 1) = 1 - 5/(2e).
    draws = np.random.default_rng(1)
    noises = np.array([PureClippedMean(clip_norm=0.5, epsilon=1.0).mean(np.zeros((1, 3)), draws) for _ in range(30_000)])
    assert noises.T @ noises / len(noises) == pytest.approx(4.0 * np.eye(3), abs=0.25)  # five standard errors
    assert np.mean(np.linalg.norm(noises, axis=1) <= 1.0) == pytest.approx(1 - 5 / (2 * math.e), abs=0.008)
    assert oracle.release(7, 3).noise_std == pytest.approx(2.0 * 2 * 1.5 / (7 * EPSILON))
    third = oracle.shared(3)
    assert third.release(7, 3).guarantee == ApproxDP(third.epsilon, 0.0)
    assert EPSILON * (1 - 1e-12) < 3 * third.epsilon <= EPSILON


PURE = PureClippedMean(clip_norm=1.5, epsilon=EPSILON)
SCHEDULE = noise_led_phases(PROBLEM, COUNT, PURE, steps=4, parts=2)
RUNS = {
    "multi-pass": lambda rows: multi_pass(PROBLEM, rows, oracle=PURE, passes=4),
    "batches": lambda rows: multi_pass(PROBLEM, rows, oracle=PURE, passes=3, batch_size=5),
    "population": lambda rows: population_localised(PROBLEM, rows, schedule=SCHEDULE, oracle=PURE, parts=2),
}


@pytest.mark.parametrize("name", RUNS)
def test_pure_runs_reveal_no_more_of_a_record_than_stated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ratio of two transcripts' densities is at most the sum of the means' moves over b; the worst record attains epsilon."""
    caught: list[tuple[Array, float]] = []
    plain = PureClippedMean.mean

    def mean(self: PureClippedMean, rows: Array, generator: np.random.Generator) -> Array:
        clipped = rows * np.minimum(1.0, self.clip_norm / np.maximum(np.linalg.norm(rows, axis=1), 1e-300))[:, None]
        caught.append((clipped.mean(axis=0), self.scale(len(rows))))
        return plain(self, rows, generator)

    monkeypatch.setattr(PureClippedMean, "mean", mean)
    worst, rng, done = 0.0, np.random.default_rng(1), None
    for place in range(COUNT):
        rows, transcripts = rng.standard_normal((COUNT, 3)), []
        for value in (1e9, -1e9):
            rows[place] = value
            caught.clear()
            done = RUNS[name](rows)
            transcripts.append(list(caught))
        ratios = [float(np.linalg.norm(a - b)) / scale for (a, scale), (b, _) in zip(*transcripts, strict=True)]
        worst = max(worst, math.fsum(ratios))
    assert isinstance(done, Solution)
    guarantee = done.fresh.guarantee
    assert isinstance(guarantee, ApproxDP)
    assert guarantee.delta_bound == 0.0
    assert worst <= guarantee.epsilon_bound * (1 + 1e-9) <= EPSILON * (1 + 2e-9)
    assert worst == pytest.approx(EPSILON, rel=1e-9)


def test_population_level_localisation_by_hand() -> None:
    """Two phases of two and three parts' records, the same noise: steps 1/g, then 2/(a(K + t - t_0)) with K = 2g/a, weights K + t - t_0."""
    records = np.random.default_rng(0).standard_t(2, size=(17, 3))
    schedule = tuple(
        LocalPhase(records=size, steps=6, step_size=0.2, strength=pull, radius=1e3, clip_norm=clip)
        for size, pull, clip in ((9, 2.0, 1.5), (7, 4.0, 1.0))
    )
    problem = replace(PROBLEM, gradient=lambda w, x: w - np.asarray(x), domain=BallDomain(radius=1e3))
    point, rng, first = np.array([0.3, -0.2, 0.1]), np.random.default_rng(7), 0
    for phase in schedule:
        size, candidates = phase.records // 2, []
        noise = 2 * phase.clip_norm / size / math.sqrt(2 * RHO / 6)
        for part in range(2):
            mine, here, total, weights = records[first + part * size : first + (part + 1) * size], point, np.zeros(3), 0.0
            shift = 2 * 5.0 / phase.strength
            for t in range(6):
                gradients = here - mine
                gradients = gradients * np.minimum(1.0, phase.clip_norm / np.linalg.norm(gradients, axis=1))[:, None]
                noisy = gradients.mean(axis=0) + noise * rng.standard_normal(3)
                step = 0.2 if t < 3 else 2 / (phase.strength * (shift + t - 3))
                here = here - step * (noisy + phase.strength * (here - point))
                weight = shift + t - 3 if t >= 3 else 0.0
                total, weights = total + weight * here, weights + weight
            candidates.append(total / weights)
        point, first = candidates[0], first + phase.records
    oracle = ClippedMean(clip_norm=9.0, rho=RHO)  # the schedule's clip norms count
    start = [0.3, -0.2, 0.1]
    done = population_localised(
        problem, records, schedule=schedule, oracle=oracle, parts=2, start=start, generator=np.random.default_rng(7)
    )
    assert done.parameters == pytest.approx(point, rel=1e-12)
    assert [(phase.first, phase.stop) for phase in done.phases] == [(0, 8), (9, 15)]
    assert isinstance(done.fresh.guarantee, GDP)
    assert done.fresh.guarantee.mu == pytest.approx(math.sqrt(2 * RHO), rel=1e-12)


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 9))
def test_the_central_candidate_is_within_three_radii_of_what_a_majority_is_near(seed: int, parts: int) -> None:
    rng = np.random.default_rng(seed)
    target, candidates = rng.standard_normal(3), rng.standard_normal((parts, 3)) * 10.0 ** rng.uniform(-1, 2)
    near = rng.permutation(parts)[: parts // 2 + 1]
    directions = rng.standard_normal((len(near), 3))
    candidates[near] = target + directions / np.linalg.norm(directions, axis=1)[:, None]
    assert np.linalg.norm(central_candidate(candidates) - target) <= 3.0 + 1e-9


def test_settings_of_the_rivals_balance_bias_and_noise() -> None:
    """At 1000 records and 30 passes; and phases whose pull is 8 times the error of a mean over the diameter."""
    median = median_oracle(PROBLEM, 1000, RHO)
    assert median.groups == 2 * int(0.5 * math.log(60) / 1.61) + 1 == 3
    assert median.shared(30).release(1000, 3).noise_std == pytest.approx(clipping_bias(4, 2.0 / math.sqrt(3), median.threshold))
    smoothed = smoothed_oracle(PROBLEM, 1000, RHO)
    assert smoothed.precision == pytest.approx(math.log(60))
    bias = 3 / (8 * math.sqrt(2)) * (1 + 1 / smoothed.precision) * 1.5**2 / 3 / smoothed.scale
    assert smoothed.shared(30).release(1000, 3).noise_std == pytest.approx(bias)
    first, second = localised_practical(PROBLEM, 1000, RHO)[:2]
    assert (first.records, second.records, first.clip_norm) == (500, 250, 1.5)
    noise = 2 * 1.5 / 500 / math.sqrt(2 * RHO)
    assert first.strength == pytest.approx(8 * math.sqrt(3 * noise**2 + 1.5**2 / 500) / 2)
    assert second.strength == 4 * first.strength
    assert first.step_size == pytest.approx(min(4 / (first.strength * 30), 1 / (2.0 + first.strength)))
    assert [phase.records for phase in SCHEDULE] == [11, 5, 2]
