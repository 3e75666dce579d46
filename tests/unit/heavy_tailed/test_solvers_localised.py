"""The localised solver: descent, schedule, price, noise, and rounds for strongly convex losses."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from how_many import by_night
from scipy.optimize import minimize
from solver_problems import absolute_deviations, distances

from lethe.calculus.guarantees import GDP, ApproxDP
from lethe.errors import InputError
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.localisation import plans
from lethe.heavy_tailed.localisation.descent import localised, regularised_descent, round_distances, round_sizes
from lethe.heavy_tailed.localisation.plans import LocalPhase, descent_distance, localised_bound, localised_practical, localised_theory
from lethe.heavy_tailed.problem import clipping_bias, printed_clipping_bias
from lethe.heavy_tailed.sets import Array, BoxDomain
from lethe.heavy_tailed.solution import Phase, Release, composed, gaussian_release, parallel

MOMENTS = Moments(order=4, bound=6.0, half=4.0, second=3.0, kind="uniform")


def stated(domain: BallDomain | BoxDomain | None = None, dimension: int = 10, strong_convexity: float | None = None) -> Problem:
    chosen = BallDomain(radius=1.0) if domain is None else domain
    return Problem(gradient=distances, dimension=dimension, domain=chosen, moments=MOMENTS, strong_convexity=strong_convexity)


def test_the_schedule_at_the_worked_point() -> None:
    schedule = localised_theory(stated(), 1024, 0.5)
    first, fifth, last = schedule[0], schedule[4], schedule[9]
    assert len(schedule) == 10
    assert (first.records, fifth.records, last.records) == (512, 32, 1)
    assert (first.steps, fifth.steps, last.steps) == (325920, 6291, 25)
    assert first.step_size * 4 == pytest.approx(1.128164e-4, rel=1e-6)
    assert [phase.records for phase in localised_practical(stated(), 37, 0.3, most_steps=20)] == [18, 9, 4, 2, 1]
    assert [phase.strength for phase in (first, fifth, last)] == pytest.approx([3.06043, 50142.1, 9.29453e9], rel=1e-5)
    assert [phase.radius for phase in (first, fifth, last)] == pytest.approx([41.8242, 0.010211, 3.11614e-7], rel=1e-4)
    assert [phase.clip_norm for phase in (first, fifth, last)] == pytest.approx([47.0522, 11.7630, 2.07943], rel=1e-5)
    assert [phase.noise_variance(0.5) for phase in (first, fifth, last)] == pytest.approx([11010.1, 3400.32, 432.404], rel=1e-5)
    assert sum(phase.records * phase.steps for phase in schedule) == 211571707
    assert sum(phase.records for phase in schedule) == 1023
    assert localised_theory(stated(), 2047, 0.5) == schedule  # what exceeds a power of two is not used


def test_the_theorem_s_work_is_refused_before_it_is_done() -> None:
    """2.1e8 gradients at n = 1024 and 2.8e11 at n = 16 384."""
    schedule = localised_theory(stated(), 16_384, 0.5)
    assert sum(phase.records * phase.steps for phase in schedule) == pytest.approx(2.8e11, rel=0.02)
    with pytest.raises(InputError, match="localised_practical"):
        localised(stated(), np.zeros((16_384, 10)), schedule=schedule, rho=0.5)


def test_the_printed_number_of_steps_leaves_a_root_of_the_contraction() -> None:
    """exp(-lambda eta T / 2) for the first phase: what is wanted is the 1/A of the logarithm; half the steps leave its square root."""
    phase = localised_theory(stated(), 1024, 0.5)[0]
    wanted = 2.0**2 * phase.strength * 512**2 / (4 * 10 * phase.clip_norm**2 * phase.step_size)
    rate = phase.strength * phase.step_size
    assert math.exp(-rate * phase.steps / 2) == pytest.approx(1 / wanted, rel=1e-3)
    assert math.exp(-rate * phase.steps / 4) == pytest.approx(wanted**-0.5, rel=1e-3)


def test_generalisation_of_a_linear_loss() -> None:
    """f = -<w, x>, lambda = 2, n = 50, covariance of trace 3, mean of norm 1: gap 0.03 <= 2 r^2/(lambda n) = 0.08."""
    rng = np.random.default_rng(1)
    mean, strength, count = np.array([1.0, 0.0, 0.0]), 2.0, 50
    samples = mean + rng.standard_normal((20_000, count, 3))
    solutions = samples.mean(axis=1) / strength  # of the mean loss plus (lambda/2)|w|^2
    gap = (solutions * samples.mean(axis=1)).sum(axis=1) - solutions @ mean
    assert gap.mean() == pytest.approx(0.030, abs=0.002)
    assert gap.mean() <= 2 * 4.0 / (strength * count) == pytest.approx(0.080)
    assert 2 * 3 / (strength * count) ** 2 == pytest.approx(6.0e-4)  # squared stability, at most (2 r/(lambda n))^2
    assert 6.0e-4 <= (2 * 2.0 / (strength * count)) ** 2 == pytest.approx(1.6e-3)


def test_late_phases_resolve_moves_far_below_the_parameters() -> None:
    """Strength 10^10 and radius 3e-7 about a point of norm 1: the pull is on w - w_0, in float64."""
    problem = Problem(gradient=distances, dimension=2)
    phase = LocalPhase(records=1, steps=40, step_size=5e-11, strength=1e10, radius=3e-7, clip_norm=2.0)
    done = regularised_descent(problem, np.array([[5.0, 5.0]]), phase, math.inf, centre=[0.6, 0.8])
    # The minimiser of -|w - x| + (10^10/2)|w - w_0|^2 is w_0 + 1e-10 along the way to x.
    moved = (done.parameters - np.array([0.6, 0.8])) @ np.array([4.4, 4.2]) / math.hypot(4.4, 4.2)
    assert moved == pytest.approx(1e-10, rel=1e-4)


def test_rounds_of_the_reduction() -> None:
    """N_{j+1} is twice N_j, in print half of it; all of them together fit n."""
    for count in (*range(5, 300), 1000, 10_000, 65_536, 10**6):
        sizes = round_sizes(count)
        assert sizes
        assert sum(sizes) < count
        assert all(after == 2 * before for before, after in pairwise(sizes))
        assert all(size & (size - 1) == 0 for size in sizes)
    assert round_sizes(65_536) == (2048, 4096, 8192, 16_384)
    problem = stated(dimension=3, strong_convexity=2.0)
    reaches = round_distances(problem, (256, 512, 1024), 0.5)
    assert reaches[0] == min(2.0, 2 * 4.0 / 2.0)
    assert list(reaches) == sorted(reaches, reverse=True)


def test_failures_are_rarer_with_the_reduction_s_radius() -> None:
    """sum (2 t_i)^-k: about 1/sqrt(n) with q = 1/2, about 1/n with q = 1."""

    def failures(extra: float) -> float:
        schedule = localised_theory(stated(), 4096, 0.5, extra=extra)
        return sum((phase.strength * phase.radius / (2 * 4.0)) ** -2 for phase in schedule)

    assert failures(0.5) == pytest.approx(0.25 / 64, rel=1e-3)
    assert failures(1.0) == pytest.approx(0.25 / 4096, rel=1e-3)


def printed_distance(phase: LocalPhase, second: float, noise: float, bias: float, *, width: float) -> float:
    """The paper's Lemma 14."""
    step, pull = phase.step_size, phase.strength
    spread = 8.0 * step / pull * (second**2 + (pull * width) ** 2 + noise)
    return math.exp(-pull * step * phase.steps / 2.0) * phase.radius**2 + spread + 20.0 * (bias / pull) ** 2


def test_the_explicit_bound_at_the_worked_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the paper's constants 254, 29.0, 3.63, falling at the proved rate; eight times less with those of the proof here."""
    printed, sharp, rates = [], [], []
    for exponent in (10, 16, 22):
        schedule = localised_theory(stated(), 2**exponent, 0.5)
        sharp.append(localised_bound(stated(), schedule, 0.5, lipschitz=3.0))
        with monkeypatch.context() as patch:
            patch.setattr(plans, "descent_distance", printed_distance)
            patch.setattr(plans, "clipping_bias", printed_clipping_bias)
            printed.append(localised_bound(stated(), schedule, 0.5, lipschitz=3.0))
        rates.append(2 ** (-exponent / 2) + (math.sqrt(10 * math.log(2**exponent)) / 2**exponent) ** 0.5)
    assert printed == pytest.approx([253.734234, 29.032044, 3.627773], rel=1e-4)
    assert np.array(printed) / (6.0 * 2.0 * np.array(rates)) == pytest.approx([174, 146, 137], rel=0.005)
    assert all(8 * new <= old for new, old in zip(sharp, printed, strict=True))


def test_the_inner_descent_stays_within_its_bound() -> None:
    """Least absolute deviations, 200 records with t_4 features; the minimiser by another method.

    The worked example prints 11.414975 for Lemma 14 and a simulated 0.0121 and no data: these features and settings give both.
    """
    rng = np.random.default_rng(9)
    features = rng.standard_t(4, size=(200, 3))
    targets = features @ rng.standard_normal(3) + rng.standard_t(3, size=200)

    def loss(w: Array) -> float:
        return float(np.abs(features @ w - targets).mean() + phase.strength / 2 * w @ w)

    phase = LocalPhase(records=200, steps=400, step_size=0.05, strength=2.0, radius=1.0, clip_norm=6.0)
    best = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000}).x
    assert np.linalg.norm(best) < 1.0
    problem, runs = Problem(gradient=absolute_deviations, dimension=3, domain=BallDomain(radius=1.0)), 20 if by_night() else 5
    ends = [regularised_descent(problem, (features, targets), phase, 2.0, generator=np.random.default_rng(seed)) for seed in range(runs)]
    squares = [float(((end.parameters - best) ** 2).sum()) for end in ends]
    second, noise = math.sqrt(float((features**2).sum(axis=1).mean())), 3 * phase.noise_variance(2.0)
    printed = printed_distance(phase, second, noise, printed_clipping_bias(2, second, 6.0), width=2.0)
    assert printed == pytest.approx(11.414975, abs=5e-7)
    assert np.mean(squares) == pytest.approx(0.0121, rel=2.9 / math.sqrt(runs))
    assert np.mean(squares) <= descent_distance(phase, second, noise, clipping_bias(2, second, 6.0), width=2.0) <= printed


DELTA = 1e-5


def test_phases_with_secret_batches_may_not_share_records() -> None:
    single = Phase(first=0, stop=10, batch_size=3, steps=2, touches=2, release=gaussian_release(1.0, 1.0), clip_norm=1.0)
    secret = replace(single, release=Release(guarantee=GDP(1.0), sensitivity=1.0, noise_std=1.0), whole=ApproxDP(1.0, DELTA))
    assert composed([secret, single.moved(10)]) == ApproxDP(single.guarantee.epsilon(DELTA), DELTA)
    with pytest.raises(InputError, match="disjoint"):
        composed([secret, single.moved(9)])
    with pytest.raises(InputError, match="guarantees of kind"):
        parallel([])


def test_the_distance_is_that_of_its_recursion() -> None:
    """Iterated from the phase's radius: never above the closed form, and after many steps less than 1 % below it."""
    noise, bias, second, width = 0.3, 0.05, 1.2, 2.0
    for steps, tight in ((1, False), (40, False), (5000, True)):
        phase = LocalPhase(records=100, steps=steps, step_size=0.05, strength=0.4, radius=1.5, clip_norm=1.0)
        step, pull = phase.step_size, phase.strength
        each = step**2 * (2 * second**2 + 2 * (pull * width) ** 2 + noise) + 2 * step * bias**2 / pull
        squared = phase.radius**2
        for _ in range(steps):
            squared = (1 - 1.5 * pull * step) * squared + each
        bound = descent_distance(phase, second, noise, bias, width=width)
        assert squared <= bound * (1 + 1e-12)
        assert not tight or squared > 0.995 * bound
