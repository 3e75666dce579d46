"""The Gaussian oracles and released moments: worked values, sensitivity under attack, privacy, bias, and how often a moment is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from solver_problems import regression, regression_records

from lethe.calculus.guarantees import GDP, ApproxDP, NotPrivate
from lethe.errors import InputError
from lethe.heavy_tailed import Moments
from lethe.heavy_tailed.localisation.descent import strongly_convex
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, ExactMean, MeanOracle, clip_rows
from lethe.heavy_tailed.private_moments import (
    block_moments,
    blocks_for,
    estimated_moments,
    failure_probability,
    median_cell,
    private_moment,
)
from lethe.heavy_tailed.problem import clipping_bias
from lethe.heavy_tailed.solution import Phase, Release, composed, gaussian_release
from lethe_experiments.lowy_razaviyayn.printed import groups_for, median_error

NOISELESS = math.inf
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("oracle", [ClippedMean(clip_norm=0.7, rho=0.3), CoordinateMedian(threshold=0.7, groups=3, rho=0.3)])
@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(3, 9), dimension=st.integers(1, 5), scale=st.sampled_from([0.1, 1.0, 1e6, 1e200]))
def test_no_replacement_moves_the_mean_further_than_stated(oracle: MeanOracle, seed: int, size: int, dimension: int, scale: float) -> None:
    """And the noise is stated for that: sensitivity / noise = sqrt(2 rho)."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((size, dimension)) * scale
    changed = rows.copy()
    changed[rng.integers(size)] = rng.choice([-1.0, 1.0], dimension) * scale * rng.choice([0.0, 1.0, 1e3])
    quiet = replace(oracle, rho=NOISELESS)  # pyright: ignore[reportArgumentType, reportCallIssue]
    release = oracle.release(size, dimension)
    assert release.sensitivity is not None
    assert np.linalg.norm(quiet.mean(rows, rng) - quiet.mean(changed, rng)) <= release.sensitivity * (1 + 1e-14)
    assert isinstance(release.guarantee, GDP)
    assert math.sqrt(0.6) * (1 - 1e-13) <= release.guarantee.mu <= math.sqrt(0.6)  # never more than asked for
    assert release.guarantee.mu >= release.sensitivity / release.noise_std


def test_a_worst_case_for_the_median_attains_what_is_stated() -> None:
    """One group, all coordinates from -tau to tau: 2 tau sqrt(d) / q, exactly."""
    oracle = CoordinateMedian(threshold=2.0, groups=1, rho=NOISELESS)
    low, high = np.zeros((4, 9)), np.zeros((4, 9))
    low[0], high[0] = -50.0, 50.0
    assert np.linalg.norm(oracle.mean(high, RNG) - oracle.mean(low, RNG)) == pytest.approx(oracle.release(4, 9).sensitivity)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), clip=st.floats(1e-100, 1e100), dimension=st.integers(1, 200))
def test_clipping_is_the_projection_on_a_ball_and_never_longer(seed: int, clip: float, dimension: int) -> None:
    from fractions import Fraction

    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((3, dimension)) * clip * np.array([[0.001], [1.0], [1e80]])
    clipped = clip_rows(rows, clip)
    assert np.array_equal(clipped[0], rows[0])
    exact = [sum(Fraction(entry) ** 2 for entry in row) for row in clipped]
    assert all(square <= Fraction(clip) ** 2 for square in exact)
    assert np.allclose(clipped[2] / clip, rows[2] / np.linalg.norm(rows[2] / 1e80) / 1e80, rtol=1e-9)


def test_values_that_are_not_numbers_count_as_zero_rows() -> None:
    rows = np.array([[math.nan, 1.0], [math.inf, 0.0], [3.0, 4.0], [1e308, -1e308]])
    for oracle in (ClippedMean(clip_norm=1.0, rho=1.0), CoordinateMedian(threshold=1.0, groups=1, rho=1.0), ExactMean()):
        assert np.isfinite(oracle.mean(rows, RNG)).all()
    assert clip_rows(rows, 5.0)[:2] == pytest.approx(np.zeros((2, 2)))
    assert clip_rows(np.zeros((2, 2)), 1.0) == pytest.approx(np.zeros((2, 2)))


def test_every_batch_size_has_noise_and_the_divisor_is_the_real_one() -> None:
    for size in (1, 2, 7, 1000):
        release = ClippedMean(clip_norm=3.0, rho=0.5).release(size, 4)
        assert release.sensitivity == pytest.approx(6.0 / size)
        assert release.noise_std == pytest.approx(6.0 / size)
    seven = CoordinateMedian(threshold=1.0, groups=3, rho=0.5).release(7, 4)
    assert seven.noise_std == pytest.approx(2 * math.sqrt(4) / 2)  # groups of 2; the printed m/s would give 3/7 in place of 1/2


def test_groups_and_the_error_of_the_median() -> None:
    """As many groups as the printed lemma asks for, 166, are far more than 5."""
    assert groups_for(10, 0.01) == 5
    assert math.ceil(20 * math.log(4 * 10 / 0.01)) == 166
    rng = np.random.default_rng(11)
    order, gamma, tau, size, dimension = 2, 3.0, 12.0, 250, 10
    groups = groups_for(dimension, 0.01)
    bound = median_error(order, gamma, tau, size, dimension, groups)
    oracle, failures = CoordinateMedian(threshold=tau, groups=groups, rho=1.0), 0
    for _ in range(300):
        rows = 0.5 + rng.standard_t(3, size=(size, dimension))  # variance 3 in each coordinate
        failures += np.linalg.norm(np.median(oracle.group_means(rows), axis=0) - 0.5) > bound
    assert failures <= 3 + 5 * math.sqrt(3)
    # A plain median of two-valued numbers is far from their mean: the bound must say so.
    assert median_error(2, 0.01 * 0.99 * 1e4, 1e3, 3, 1, 3) > 1.0


def test_the_bias_of_one_record_is_the_sampling_error_of_none() -> None:
    """The printed chain |E mean - nu| <= E|mean - nu| <= r^k/((k-1) C^(k-1)) fails in the middle for signs: 1 > 0.1."""
    signs = np.array([[-1.0], [1.0]])
    means = [ClippedMean(clip_norm=10.0, rho=NOISELESS).mean(row[None], RNG) for row in signs]
    assert np.mean([abs(mean[0]) for mean in means]) == 1.0 > 1.0 / 10.0
    assert abs(np.mean(means)) == 0.0


def _phase(first: int, stop: int, mu: float, touches: int = 1) -> Phase:
    return Phase(first=first, stop=stop, batch_size=1, steps=1, touches=touches, release=gaussian_release(mu, 1.0), clip_norm=1.0)


def test_disjoint_phases_do_not_add_up_and_overlapping_ones_do() -> None:
    def mu(*phases: Phase) -> float:
        guarantee = composed(phases)
        assert isinstance(guarantee, GDP)
        return guarantee.mu

    assert mu(_phase(0, 5, 3.0), _phase(5, 9, 4.0)) == pytest.approx(4.0)
    assert mu(_phase(0, 6, 3.0), _phase(5, 9, 4.0)) == pytest.approx(5.0)
    assert mu(_phase(0, 5, 1.0, touches=9), _phase(5, 9, 2.0)) == pytest.approx(3.0)
    assert isinstance(composed([_phase(0, 5, 1.0), replace(_phase(5, 9, 1.0), release=gaussian_release(1.0, 0.0))]), NotPrivate)
    point = Release(guarantee=ApproxDP(0.5, 1e-6), sensitivity=None, noise_std=1.0)
    shuffled = [replace(_phase(a, b, 1.0), release=point) for a, b in ((0, 5), (5, 9), (3, 4))]
    assert composed(shuffled[:2]) == ApproxDP(0.5, 1e-6)
    both = composed(shuffled)
    assert isinstance(both, ApproxDP)
    assert (both.epsilon_bound, both.delta_bound) == pytest.approx((1.0, 2e-6))
    assert shuffled[0].rho is None
    assert composed([_phase(0, 5, 1.0), shuffled[1]]).epsilon(1e-6) == pytest.approx(GDP(1.0).epsilon(1e-6))
    with pytest.raises(InputError, match="one kind"):
        composed([_phase(0, 6, 1.0), shuffled[1]])


def test_float32_rows_are_added_in_float64() -> None:
    """One row decides on which side of a power of two the sum is, and all later ones are rounded otherwise: in float32, 1.34 times 2 C."""
    rows = np.full((8192, 16), 0.51 * 2.0**-23 * 1024, dtype=np.float32)
    rows[:4915] = 1024 / 4915
    means = []
    for sign in (1.0, -1.0):
        rows[0] = sign * 0.249
        means.append(ClippedMean(clip_norm=1.0, rho=math.inf).mean(rows, np.random.default_rng(0)))
    assert 0.99 < float(np.linalg.norm(means[0] - means[1])) * 8192 / 2 <= 1.0


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


def test_the_ends_of_the_range_are_said_and_powers_do_not_overflow() -> None:
    top = private_moment(np.full(500, 1e12), order=2, rho=RHO)
    assert top.end == "high"
    with pytest.raises(InputError, match="top of the public range"):
        _ = top.moments
    assert private_moment(np.zeros(500), order=2, rho=RHO).end == "low"
    inside = private_moment(sizes(500), order=2, rho=RHO)
    assert inside.end is None
    assert inside.moments == Moments(order=2, bound=inside.bound)
    assert 1e50 <= private_moment(np.full(500, 1e50), order=100, rho=RHO, high=1e59).bound <= 3e50
    quiet = private_moment(sizes(500), order=2, rho=math.inf)
    assert isinstance(quiet.phase.with_fresh_noise, NotPrivate)
    assert quiet.bound >= np.sqrt(9 / 7)


def test_joining_moves_every_phase() -> None:
    rng = np.random.default_rng(8)
    problem, records = replace(regression(), moments=Moments(order=4, bound=6.0, kind="uniform")), regression_records(900, rng)
    estimate = estimated_moments(problem, records, order=4, rho=RHO, generator=rng)
    solution = strongly_convex(problem, estimate.others(records), rho=RHO, most_steps=3, generator=rng)
    whole = estimate.joined(solution)
    assert [phase.first for phase in whole.phases[1:]] == [phase.first + 90 for phase in solution.phases]
    assert whole.fresh.guarantee.mu == pytest.approx(1.0, rel=1e-12)  # pyright: ignore[reportAttributeAccessIssue]


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
    assert failure_probability(1, 1e9) == 1.0
    for wanted in (0.2, 0.01, 1e-6):
        assert failure_probability(blocks_for(wanted, 2.8284), 2.8284) <= wanted
        assert blocks_for(wanted, 2.8284) % 2 == 1


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
