"""Every solver again by hand, from the same random numbers: noise, clip norm, divisor and steps, to the last digits.

Audits and averages see a noise that is a half too small, not a hundredth. These do: what is stated of a run is computed here from the
batch sizes, the clip norm and rho alone.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from lethe.calculus.conversions import gdp_delta
from lethe.calculus.guarantees import ApproxDP
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass
from lethe.heavy_tailed.accelerated import accelerated
from lethe.heavy_tailed.localisation.descent import localised, round_distances, strongly_convex
from lethe.heavy_tailed.localisation.plans import LocalPhase, localised_practical
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.sets import Array, WholeSpace
from lethe.heavy_tailed.solution import Solution
from lethe.run.regularisers import L1

COUNT, RHO, SIZE = 23, 0.35, 1.5
Oracle = ClippedMean | CoordinateMedian
Noisy = Callable[[Array], Array]
SAMPLED = import_module("lethe.heavy_tailed.localisation.sampled")  # the package has a function of that name
ORACLES: tuple[Oracle, ...] = (ClippedMean(clip_norm=SIZE, rho=RHO), CoordinateMedian(threshold=SIZE, groups=1, rho=RHO))
PROBLEM = Problem(
    gradient=lambda parameters, records: 2.0 * (parameters - np.asarray(records, dtype=np.float64)),
    dimension=3,
    domain=BallDomain(radius=0.7),
    smoothness=2.0,
    strong_convexity=0.5,
    moments=Moments(order=4, bound=2.0, kind="uniform"),
)
FREE = replace(PROBLEM, domain=WholeSpace())
START = np.array([0.3, -0.2, 0.1])


def rows(count: int = COUNT) -> Array:
    """Heavy tails on every other record, small ones between them: some of the gradients are clipped and some are not."""
    return np.random.default_rng(0).standard_t(2, size=(count, 3)) * np.where(np.arange(count) % 2, 1.0, 0.1)[:, None]


def clipped(gradients: Array) -> Array:
    return gradients * np.minimum(1.0, SIZE / np.linalg.norm(gradients, axis=1))[:, None]


def into_ball(point: Array, radius: float = 0.7, centre: Array | float = 0.0) -> Array:
    return centre + (point - centre) * min(1.0, radius / float(np.linalg.norm(point - centre)))


def noisy_mean(oracle: Oracle, rng: np.random.Generator, touches: int) -> Noisy:
    """The mean of what is clipped, and the noise that a record in `touches` of them needs for rho in all."""

    def mean(gradients: Array) -> Array:
        median = isinstance(oracle, CoordinateMedian)
        shortened = np.clip(gradients, -SIZE, SIZE) if median else clipped(gradients)
        moved = 2.0 * SIZE * (math.sqrt(3.0) if median else 1.0) / len(gradients)
        return shortened.mean(axis=0) + moved / math.sqrt(2.0 * RHO / touches) * rng.standard_normal(3)

    return mean


def batches(size: int, number: int) -> list[Array]:
    return [rows()[size * i : size * (i + 1)] for i in range(number)]


def gradient(point: Array, records: Array) -> Array:
    return 2.0 * (point - records)


def by_hand_multi_pass(noisy: Noisy) -> Array:
    point = START
    for records in 3 * batches(5, 4):
        point = into_ball(point - 0.2 * noisy(gradient(point, records)))
    return point


def by_hand_one_pass(noisy: Noisy) -> Array:
    """T = 10 and kappa = 4: a = 1/4, K = 2 g/a = 16, t_0 = 5."""
    point, total = START, np.zeros(3)
    for t, records in enumerate(batches(2, 11)):
        point = into_ball(point - (0.5 if t < 5 else 8.0 / (11 + t)) * noisy(gradient(point, records)))
        total += point * (0 if t < 5 else 11 + t)
    return total / sum(range(16, 22))


def by_hand_accelerated(noisy: Noisy) -> Array:
    point = averaged = START
    for t, records in enumerate(batches(4, 5), start=1):
        a = 2 / (t + 1)
        point = into_ball(point - t / 8.0 * noisy(gradient((1 - a) * averaged + a * point, records)))
        averaged = a * point + (1 - a) * averaged
    return averaged


def by_hand_proximal(noisy: Noisy) -> Array:
    point = START
    for records in batches(7, 3):
        stepped = point - 0.25 * noisy(gradient(point, records))
        point = into_ball(np.sign(stepped) * np.maximum(np.abs(stepped) - 0.25 * 0.1, 0.0))
    return point


SOLVERS: dict[str, tuple[int, Callable[[Noisy], Array], Callable[[Oracle, np.random.Generator], Solution]]] = {
    "multi-pass": (
        3,
        by_hand_multi_pass,
        lambda oracle, rng: multi_pass(PROBLEM, rows(), oracle=oracle, passes=3, batch_size=5, step_size=0.2, start=START, generator=rng),
    ),
    "one-pass": (1, by_hand_one_pass, lambda oracle, rng: one_pass(PROBLEM, rows(), oracle=oracle, steps=11, start=START, generator=rng)),
    "accelerated": (
        1,
        by_hand_accelerated,
        lambda oracle, rng: accelerated(PROBLEM, rows(), oracle=oracle, steps=5, step=4.0, start=START, generator=rng),
    ),
    "proximal": (
        1,
        by_hand_proximal,
        lambda oracle, rng: proximal(PROBLEM, rows(), oracle=oracle, steps=3, regulariser=L1(strength=0.1), start=START, generator=rng),
    ),
}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: type(oracle).__name__)
@pytest.mark.parametrize("name", SOLVERS)
def test_a_run_is_what_it_says(name: str, oracle: Oracle) -> None:
    sizes = np.linalg.norm(gradient(START, rows()), axis=1)
    assert 5 < np.count_nonzero(sizes > SIZE) < 18
    touches, by_hand, solve = SOLVERS[name]
    expected = by_hand(noisy_mean(oracle, np.random.default_rng(7), touches))
    done = solve(oracle, np.random.default_rng(7))
    assert done.parameters == pytest.approx(expected, rel=1e-12, abs=1e-13)
    (phase,) = done.phases
    assert phase.touches == touches
    assert phase.release.sensitivity is not None
    assert (phase.release.sensitivity / phase.release.noise_std) ** 2 * touches == pytest.approx(2.0 * RHO, rel=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_in_pieces_the_noise_and_the_divisor_are_those_of_the_whole_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 4 records or more, summed 3 at a time."""
    monkeypatch.setattr(import_module("lethe.heavy_tailed.multi_pass"), "rows_at_once", lambda dimension: 3)
    touches, by_hand, solve = SOLVERS[name]
    expected = by_hand(noisy_mean(ORACLES[0], np.random.default_rng(7), touches))
    assert solve(ORACLES[0], np.random.default_rng(7)).parameters == pytest.approx(expected, rel=1e-12, abs=1e-13)


def by_hand_localised(schedule: tuple[LocalPhase, ...], records: Array, start: Array, rho: float, rng: np.random.Generator) -> Array:
    point, first = start, 0
    for phase in schedule:
        centre, mine = point, records[first : first + phase.records]
        noise = 2.0 * phase.clip_norm / phase.records / math.sqrt(2.0 * rho / phase.steps)
        for _ in range(phase.steps):
            gradients = gradient(point, mine)
            gradients *= np.minimum(1.0, phase.clip_norm / np.linalg.norm(gradients, axis=1))[:, None]
            noisy = gradients.mean(axis=0) + noise * rng.standard_normal(3)
            point = into_ball(point - phase.step_size * (noisy + phase.strength * (point - centre)), phase.radius, centre)
        first += phase.records
    return point


SCHEDULE = (
    LocalPhase(records=12, steps=5, step_size=0.1, strength=0.8, radius=0.3, clip_norm=SIZE),
    LocalPhase(records=7, steps=3, step_size=0.05, strength=2.0, radius=0.1, clip_norm=2.0),
    LocalPhase(records=4, steps=2, step_size=0.02, strength=4.0, radius=0.05, clip_norm=1.0),
)


def test_phases_on_smaller_and_smaller_parts() -> None:
    expected = by_hand_localised(SCHEDULE, rows(), START, RHO, np.random.default_rng(3))
    done = localised(FREE, rows(), schedule=SCHEDULE, rho=RHO, start=START, generator=np.random.default_rng(3))
    assert done.parameters == pytest.approx(expected, rel=1e-12, abs=1e-13)
    assert done.fresh.guarantee.epsilon(1e-5) == max(phase.with_fresh_noise.epsilon(1e-5) for phase in done.phases)


def test_rounds_of_phases() -> None:
    """With a domain wide enough never to be met."""
    problem, records = replace(PROBLEM, domain=BallDomain(radius=1e6)), rows(40)
    expected, first, rng = START, 0, np.random.default_rng(5)
    sizes = (20, 20)
    for size, distance in zip(sizes, round_distances(problem, sizes, RHO), strict=True):
        schedule = localised_practical(problem, size, RHO, distance=distance, most_steps=4)
        expected = by_hand_localised(schedule, records[first : first + size], expected, RHO, rng)
        first += size
    done = strongly_convex(problem, records, rho=RHO, most_steps=4, start=START, generator=np.random.default_rng(5))
    assert done.parameters == pytest.approx(expected, rel=1e-9)
    assert np.linalg.norm(done.parameters - START) > 1e-3
    assert all(before.stop <= after.first for before, after in pairwise(done.phases))
    for phase in done.phases:
        assert phase.release.sensitivity is not None
        assert phase.release.noise_std >= phase.release.sensitivity / math.sqrt(2.0 * RHO / phase.touches) * (1.0 - 1e-12)


def test_a_run_on_secret_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two phases on 64 and 100 records in batches of 8 and 10 on average: every record with its probability, divided by 8 and by 10.

    The multiplier is made up, and what it is asked for written down: that it is enough is tested where it is computed.
    """
    asked = list[tuple[float, int, float, float]]()

    def sampled_noise(*wanted: Any) -> tuple[float, float]:
        asked.append(wanted)
        return 1.7, 0.9

    monkeypatch.setattr(SAMPLED, "sampled_noise", sampled_noise)
    schedule = (
        LocalPhase(records=64, steps=6, step_size=0.1, strength=0.8, radius=0.3, clip_norm=SIZE),
        LocalPhase(records=100, steps=4, step_size=0.05, strength=2.0, radius=0.1, clip_norm=2.0),
    )
    records, rng, point, sizes = rows(170), np.random.default_rng(4), START, list[int]()
    first = 0
    for phase, batch in zip(schedule, (8, 10), strict=True):
        centre, mine = point, records[first : first + phase.records]
        for _ in range(phase.steps):
            total = 1.7 * phase.clip_norm * rng.standard_normal(3)
            drawn = rng.choice(phase.records, size=rng.binomial(phase.records, batch / phase.records), replace=False, shuffle=False)
            sizes.append(len(drawn) - batch)
            for record in mine[drawn]:
                one = gradient(point, record)
                total += one * min(1.0, phase.clip_norm / float(np.linalg.norm(one)))
            point = into_ball(point - phase.step_size * (total / batch + phase.strength * (point - centre)), phase.radius, centre)
        first += phase.records
    assert len(set(sizes)) > 3  # sizes do vary, and the divisor does not
    randomness = {"start": START, "generator": np.random.default_rng(4)}
    done = sampled_localised(FREE, records, schedule=schedule, epsilon=1.0, delta=1e-3, allow_large_delta=True, **randomness)
    assert done.parameters == pytest.approx(point, rel=1e-12, abs=1e-13)
    assert asked == [(8 / 64, 6, 1.0, 1e-3), (10 / 100, 4, 1.0, 1e-3)]


@pytest.mark.parametrize("costlier", [0, 1, 2])
def test_no_phase_of_secret_batches_is_free(costlier: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SAMPLED, "sampled_noise", lambda rate, steps, epsilon, delta: (1.7, 0.1 * steps))
    steps = [5 if place == costlier else 3 for place in range(3)]
    schedule = tuple(LocalPhase(records=64, steps=t, step_size=0.1, strength=0.8, radius=0.3, clip_norm=SIZE) for t in steps)
    done = sampled_localised(FREE, rows(192), schedule=schedule, epsilon=1.0, delta=0.1, allow_large_delta=True)
    assert done.fresh.guarantee == ApproxDP(0.5, 0.1)


def test_a_short_phase_pays_what_the_target_allows() -> None:
    """All of 40 records at every step: the largest mu that is (1, 0.001)-DP, shared by the steps."""
    phase = LocalPhase(records=40, steps=6, step_size=0.1, strength=0.8, radius=0.3, clip_norm=SIZE)
    done = sampled_localised(FREE, rows(40), schedule=(phase,), epsilon=1.0, delta=1e-3, start=START, generator=np.random.default_rng(4))
    mu = 2.0 * SIZE / 40 * math.sqrt(6) / done.phases[0].release.noise_std
    assert gdp_delta(mu, 1.0) == pytest.approx(1e-3, rel=1e-9)
    expected = by_hand_localised((phase,), rows(40), START, 0.5 * mu * mu, np.random.default_rng(4))
    assert done.parameters == pytest.approx(expected, rel=1e-9)
