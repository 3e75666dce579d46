"""Moments: the bias of clipping, and moments that are released: their price, and what the failure probability promises."""

import math
from dataclasses import replace

import numpy as np
import pytest
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm
from solver_problems import regression, regression_records

from lethe.calculus.guarantees import GDP, NotPrivate
from lethe.errors import InputError
from lethe.heavy_tailed import Moments, multi_pass, practical_oracle
from lethe.heavy_tailed.localisation.rounds import strongly_convex
from lethe.heavy_tailed.moments import clipping_bias, printed_clipping_bias
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import clip_rows
from lethe.heavy_tailed.private_moments import (
    block_moments,
    blocks_for,
    estimated_moments,
    failure_probability,
    median_cell,
    private_moment,
)
from lethe.heavy_tailed.solution import composed

RHO = 0.5


def sizes(count: int, seed: int = 0) -> np.ndarray:
    return np.abs(np.random.default_rng(seed).standard_t(9, size=count))


def test_one_record_moves_one_block_and_so_every_count_by_at_most_one() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        values = rng.pareto(2.5, size=37)
        before, place = block_moments(values, 2.0, 5), int(rng.integers(37))
        values[place] = rng.choice([0.0, 1e9])
        after = block_moments(values, 2.0, 5)
        assert np.count_nonzero(before != after) == (place < 35)
        for point in np.geomspace(1e-3, 1e9, 40):
            assert abs(np.count_nonzero(before <= point) - np.count_nonzero(after <= point)) <= 1


def test_the_noise_is_that_of_eight_gaussian_counts_and_composes_to_rho() -> None:
    estimate = private_moment(sizes(500), order=2, rho=RHO)
    assert estimate.phase.release.noise_std == pytest.approx(math.sqrt(8 / (2 * RHO)), rel=1e-12)
    assert estimate.phase.release.noise_std >= math.sqrt(8 / (2 * RHO))
    assert isinstance(estimate.phase.with_fresh_noise, GDP)
    assert math.sqrt(8) / estimate.phase.release.noise_std <= estimate.phase.with_fresh_noise.mu <= 1.0
    assert estimate.phase.rho == pytest.approx(RHO, rel=1e-12)


@pytest.mark.slow
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


def test_the_failure_probability_against_the_worst_case_by_simulation() -> None:
    """Blocks stray with probability 1/8 and all to the same side: the first comparison beside them is wrong at most so often."""
    rng, blocks, noise_std = np.random.default_rng(4), 41, 2.8284
    stray = rng.binomial(blocks, 0.125, size=200_000)
    wrong = (stray[:, None] + noise_std * rng.standard_normal((200_000, 8)) >= blocks / 2).any(axis=1).mean()
    assert wrong <= failure_probability(blocks, noise_std) <= 0.01
    assert failure_probability(1, 1e9) == 1.0
    assert failure_probability(41, 0.0) < failure_probability(41, 1.0)
    for wanted in (0.2, 0.01, 1e-6):
        assert failure_probability(blocks_for(wanted, noise_std), noise_std) <= wanted
        assert blocks_for(wanted, noise_std) % 2 == 1


def test_outliers_in_a_few_blocks_do_not_move_it() -> None:
    values = sizes(4100)
    spoiled = values.copy()
    spoiled[:300:100] = [math.inf, 1e30, math.nan]
    clean = private_moment(values, order=2, rho=RHO, generator=np.random.default_rng(5)).bound
    dirty = private_moment(spoiled, order=2, rho=RHO, generator=np.random.default_rng(5)).bound
    assert dirty <= 1.2 * clean


def test_the_ends_of_the_range_are_said() -> None:
    top = private_moment(np.full(500, 1e12), order=2, rho=RHO)
    assert top.end == "high"
    with pytest.raises(InputError, match="top of the public range"):
        _ = top.moments
    assert private_moment(np.zeros(500), order=2, rho=RHO).end == "low"
    inside = private_moment(sizes(500), order=2, rho=RHO)
    assert inside.end is None
    assert inside.moments == Moments(order=2, bound=inside.bound)


def test_powers_do_not_overflow() -> None:
    estimate = private_moment(np.full(500, 1e50), order=100, rho=RHO, high=1e59)
    assert 1e50 <= estimate.bound <= 3e50


@pytest.mark.slow
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


def test_a_solver_on_the_same_records_would_pay_twice() -> None:
    """The phases say so by themselves: overlap adds the squares."""
    rng = np.random.default_rng(7)
    problem, records = regression(), regression_records(600, rng)
    estimate = estimated_moments(problem, records, order=2, rho=RHO, share=0.9, generator=rng)
    solution = multi_pass(problem, records, oracle=practical_oracle(problem, rho=RHO), generator=rng)
    both = replace(estimate.joined(solution), phases=(estimate.phase, *solution.phases))
    together = composed(both.phases)
    assert isinstance(together, GDP)
    assert together.mu == pytest.approx(math.sqrt(4 * RHO), rel=1e-12)


def test_without_noise_nothing_is_private() -> None:
    estimate = private_moment(sizes(500), order=2, rho=math.inf)
    assert isinstance(estimate.phase.with_fresh_noise, NotPrivate)
    assert estimate.bound >= np.sqrt(9 / 7)


def test_joining_moves_every_phase() -> None:
    rng = np.random.default_rng(8)
    problem = replace(regression(), moments=Moments(order=4, bound=6.0, kind="uniform"))
    records = regression_records(900, rng)
    estimate = estimated_moments(problem, records, order=4, rho=RHO, generator=rng)
    for solution in (
        strongly_convex(problem, estimate.others(records), rho=RHO, most_steps=3, generator=rng),
        one_pass(problem, estimate.others(records), oracle=practical_oracle(problem, rho=RHO), steps=4, generator=rng),
    ):
        whole = estimate.joined(solution)
        assert [phase.first for phase in whole.phases[1:]] == [phase.first + 90 for phase in solution.phases]
        assert whole.fresh.guarantee.mu == pytest.approx(1.0, rel=1e-12)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_a_moment_inside_the_range_may_be_made_of_sizes_beyond_it() -> None:
    """0, or 30 high with probability 1/1000: the moment is 0.95 high, and cutting sizes at high would find a thirtieth of it."""
    rng, high, chance = np.random.default_rng(9), 100.0, 1e-3
    for _ in range(5):
        values = np.where(rng.random(41 * 40_000) < chance, 30.0 * high, 0.0)
        estimate = private_moment(values, order=2, rho=RHO, low=1e-2, high=high, generator=rng)
        assert 1 / chance <= 1 + estimate.block_size / 32  # the hypothesis of `failure`
        assert estimate.bound >= 30.0 * high * math.sqrt(chance)


class Fixed(np.random.Generator):
    """A generator whose normal numbers are all the same."""

    def standard_normal(self, size: int) -> np.ndarray:  # pyright: ignore[reportIncompatibleMethodOverride]
        return np.full(size, 4.52)


def test_the_search_adds_all_of_its_noise_and_its_failures_are_counted_exactly() -> None:
    """9 values above the grid: a comparison goes down if its noise is at least 4.5."""
    assert median_cell(np.full(9, 10.0), 0.01, 1.0, 1.0, Fixed(np.random.PCG64(0)))[0] == 0
    assert median_cell(np.full(9, 10.0), 0.01, 1.0, 0.99, Fixed(np.random.PCG64(0)))[0] == 255
    assert failure_probability(3, 0.0) == pytest.approx((3 * 7 + 1) / 512, rel=1e-12)
    assert failure_probability(1, 0.1) == pytest.approx(0.125 + 8 * norm.sf(5.0), rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "order", "clip", "exact", "printed", "sharp"),
    [(3.0, 2, 4.0, 0.031250, 0.750000, 0.187500), (5.0, 4, 3.0, 0.00308642, 0.0617284, 0.0195313), (2.5, 2, 10.0, 0.0210819, 0.5, 0.125)],
)
def test_the_bias_of_clipping_pareto_numbers(shape: float, order: int, clip: float, exact: float, printed: float, sharp: float) -> None:
    """P(X > x) = x^-a from 1 on: E(X - C)_+ = C^(1-a)/(a - 1), E X^k = a/(a - k)."""
    bound = (shape / (shape - order)) ** (1 / order)
    assert clip ** (1 - shape) / (shape - 1) == pytest.approx(exact, rel=1e-5)
    assert clipping_bias(order, bound, clip) == pytest.approx(sharp, rel=1e-5)
    assert printed_clipping_bias(order, bound, clip) == pytest.approx(printed, rel=1e-5)
    rows = np.random.default_rng(0).pareto(shape, size=(1_000_000, 1)) + 1.0
    lost = rows - clip_rows(rows, clip)
    assert lost.mean() == pytest.approx(exact, abs=6 * lost.std() / 1000)


def test_two_points_attain_the_sharp_bias() -> None:
    """Mass 0.1 at 3, clipped at 2: the mean falls by 0.1."""
    assert clipping_bias(3, (0.1 * 27) ** (1 / 3), 2.0) == pytest.approx(0.1, rel=1e-12)


@given(order=st.floats(2.0, 40.0), clip=st.floats(0.01, 100.0), u=st.floats(0.0, 1e3))
def test_the_constant_is_a_bound_and_sharp(order: float, clip: float, u: float) -> None:
    constant = clipping_bias(order, 1.0, 1.0)
    assert max(u - clip, 0.0) <= constant * u * (u / clip) ** (order - 1) * (1 + 1e-9)
    worst = order * clip / (order - 1)
    assert worst - clip == pytest.approx(constant * worst * (worst / clip) ** (order - 1), rel=1e-9)
    assert 0.25 <= constant * (order - 1) <= 1 / math.e * (1 + 1e-9) or order == 2


def test_no_clipping_has_no_bias_and_extremes_do_not_overflow() -> None:
    assert clipping_bias(2, 1.0, math.inf) == 0.0
    assert clipping_bias(1000, 1e10, 1e-10) == math.inf
    assert clipping_bias(8, 1e100, 1e120) == pytest.approx(clipping_bias(8, 1.0, 1.0) * 1e-40)


def test_moments_of_the_three_kinds() -> None:
    """Central ones: |g| <= |g - Eg| + |Eg| and Minkowski give 2 sqrt(d) gamma^(1/k), half of the printed 4."""
    assert Moments(order=4, bound=3.0, second=2.0).raw(7) == 3.0
    assert Moments(order=4, bound=3.0, second=2.0).raw_second(7) == 2.0
    assert Moments(order=2, bound=3.0, kind="central").raw(4) == 12.0
    rng = np.random.default_rng(2)
    central = rng.standard_t(9, size=(100_000, 6)) * 0.7
    gamma = (np.abs(central) ** 4).mean(axis=0).max()
    mean = np.full(6, gamma**0.25)  # of the largest norm allowed
    raw = (np.linalg.norm(central + mean, axis=1) ** 4).mean() ** 0.25
    assert raw <= Moments(order=4, bound=gamma**0.25, kind="central").raw(6)
