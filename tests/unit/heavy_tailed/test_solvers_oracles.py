"""The Gaussian oracles: worked values, sensitivity under attack, and the privacy of what they release."""

import math
from dataclasses import replace

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.calculus.guarantees import GDP, ApproxDP, NotPrivate
from lethe.errors import InputError
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, ExactMean, MeanOracle, clip_rows
from lethe.heavy_tailed.solution import Phase, Release, composed, gaussian_release
from lethe_experiments.lowy_razaviyayn import groups_for, median_error

NOISELESS = math.inf
ROWS = np.array([[3.0, 4.0], [0.0, 0.5], [-6.0, 8.0]])
COORDINATES = np.array([[1.0, -9.0], [2.0, 0.0], [3.0, 1.0], [50.0, 2.0], [-4.0, 3.0], [0.0, 4.0]])
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


def test_sharing_splits_the_cost_so_that_it_composes_to_the_whole() -> None:
    for oracle in (ClippedMean(clip_norm=2.0, rho=0.7), CoordinateMedian(threshold=2.0, groups=3, rho=0.7)):
        single = oracle.shared(30)
        phase = Phase(first=0, stop=9, batch_size=9, steps=30, touches=30, release=single.release(9, 2), clip_norm=2.0)
        assert phase.rho == pytest.approx(0.7, rel=1e-12)
        whole = composed([phase])
        assert isinstance(whole, GDP)
        assert whole.mu == pytest.approx(math.sqrt(1.4), rel=1e-12)


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
