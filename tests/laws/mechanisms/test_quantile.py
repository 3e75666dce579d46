"""A bounded range against all two-point pairs, and the exact law of the quantile that has one, on neighbouring data sets."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from gaussian_guarantees import mu_of
from scipy.special import expit, ndtri

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, RDPCurve
from lethe.mechanisms.bounded_range import (
    guarantee_for,
    range_delta,
    range_mu,
    range_of_mu,
    range_of_target,
    range_renyi,
)
from lethe.mechanisms.quantiles.quantile import private_quantile, quantile_law

RANGES = (0.01, 0.3, 1.0, 4.0)


def two_point_pairs(epsilon: float, count: int = 20_001) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(upper ratio x, lower ratio, probability of the upper one) of pairs whose ratio takes the two ends of its range."""
    upper = np.exp(np.linspace(0.0, epsilon, count)[1:-1])
    lower = upper * math.exp(-epsilon)
    return upper, lower, (1.0 - lower) / (upper - lower)


@pytest.mark.parametrize("epsilon", RANGES)
@pytest.mark.parametrize("order", [1.05, 2.0, 5.5, 64.0])
def test_renyi_divergence_is_the_largest_of_all_pairs(epsilon, order):
    upper, lower, weight = two_point_pairs(epsilon)
    largest = float(np.log(weight * upper**order + (1.0 - weight) * lower**order).max()) / (order - 1.0)
    stated = float(range_renyi(epsilon, [order])[0])
    assert largest <= stated * (1.0 + 1e-12)
    assert stated <= largest * 1.001 + 1e-9  # the scan misses the maximum by its squared step
    assert stated <= order * epsilon**2 / 8.0 * (1.0 + 1e-12)


@pytest.mark.parametrize("epsilon", RANGES)
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_delta_is_the_largest_of_all_pairs(epsilon, fraction):
    upper, _, weight = two_point_pairs(epsilon)
    largest = float((weight * (upper - math.exp(fraction * epsilon))).max())
    stated = range_delta(epsilon, fraction * epsilon)
    assert largest <= stated <= largest * (1.0 + 1e-6)
    assert range_delta(epsilon, epsilon) == 0.0


@pytest.mark.parametrize("epsilon", RANGES)
def test_mu_is_the_smallest_that_all_pairs_meet(epsilon):
    _, lower, weight = two_point_pairs(epsilon)
    needed = -ndtri(weight) - ndtri((1.0 - weight) * lower)  # of the corner of each pair's trade-off
    assert needed.max() <= range_mu(epsilon) <= needed.max() * (1.0 + 1e-6)


def test_the_slope_of_probit_after_logistic_falls():
    points = np.linspace(0.0, 30.0, 3001)
    slope = np.gradient(ndtri(expit(-points)), points)
    assert (np.diff(slope) >= -1e-9).all()  # ndtri(expit(-u)) = -psi(u): psi' falls with u


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 5.0, 20.0])
def test_range_of_mu_is_the_inverse_rounded_down(mu):
    assert range_mu(range_of_mu(mu)) <= mu * (1.0 + 1e-9) + 1e-14
    assert range_of_mu(mu) == pytest.approx(1.5958 * mu, rel=0.02) or mu >= 1.0  # 4 / sqrt(2 pi)


TARGETS = (GDP(0.5), ZCDP(0.1), ApproxDP(1.0, 1e-5), ApproxDP(1.0, 0.0), ApproxDP(0.5, 0.1), RDPCurve((2.0, 8.0), (0.3, 1.0)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.describe())
def test_a_target_is_met_and_nearly_reached(target):
    epsilon = range_of_target(target)
    got = guarantee_for(epsilon, target)
    if isinstance(target, ApproxDP):
        assert got.delta(target.epsilon_bound) <= target.delta_bound
        above = epsilon * 1.01
        assert above > target.epsilon_bound
        assert range_delta(above, target.epsilon_bound) > target.delta_bound
    elif isinstance(target, RDPCurve):
        assert (range_renyi(epsilon, list(target.orders)) <= np.array(target.values)).all()
    elif isinstance(target, GDP):
        assert isinstance(got, GDP)
        assert got.mu <= target.mu < range_mu(1.01 * epsilon)
    else:
        assert isinstance(got, ZCDP)
        assert got.rho <= target.rho < (1.01 * epsilon) ** 2 / 8.0


VALUES = (0.0, 0.2, 0.2, 0.5, 0.9, 1.0)
LEVELS = (0.1, 0.5, 0.8)


def law_of(values, quantile=0.5, neighbours="replace_one", epsilon=1.0):
    return quantile_law(np.array(values, dtype=float), (0.0, 1.0), quantile=quantile, epsilon=epsilon, neighbours=neighbours)


def neighbouring(neighbours, most=4):
    """Pairs of small lists: one value replaced, or one taken away."""
    for count in range(1, most):
        for values in itertools.combinations_with_replacement(VALUES, count):
            yield from (
                ((values, (*values[:-1], other)) for other in VALUES)
                if neighbours == "replace_one"
                else [(values, values[1:]), (values, values[:-1])]
            )


def log_density(values, points, *, quantile, neighbours, epsilon):
    """The density at the points, straight from its definition: a plain sum over the distinct values."""
    ends = sorted({0.0, 1.0, *values})
    pm = quantile * len(values)
    slope = epsilon / (2.0 * (1.0 if neighbours == "replace_one" else max(quantile, 1.0 - quantile)))

    def weight(point):
        return math.exp(-slope * abs(sum(value < point for value in values) - pm))

    total = sum((right - left) * weight((left + right) / 2.0) for left, right in itertools.pairwise(ends))
    return np.log([weight(point) / total for point in points])


def log_density_of_the_code(values, points, **options):
    law = law_of(values, **options)
    where = np.searchsorted(law.edges, points, side="right") - 1
    return np.log(law.probabilities[where] / np.diff(law.edges)[where])


POINTS = np.array([0.1, 0.35, 0.7, 0.95])


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("quantile", LEVELS)
def test_the_law_is_the_exponential_mechanism(neighbours, quantile):
    for values, _ in neighbouring(neighbours):
        options = {"quantile": quantile, "neighbours": neighbours, "epsilon": 1.3}
        assert log_density_of_the_code(values, POINTS, **options) == pytest.approx(log_density(values, POINTS, **options), abs=1e-12)


SPREAD = tuple((index + 0.5) / 20 for index in range(20))
SPREAD_POINTS = np.arange(21) / 20 + 1e-3 * np.array([1, *[0] * 19, -1])


def spread_pairs(neighbours):
    """Twenty spread values and their neighbours: here records cross any quantile, with room on both sides."""
    for index in range(20):
        rest = SPREAD[:index] + SPREAD[index + 1 :]
        yield from ([(SPREAD, (*rest, 1e-4)), (SPREAD, (*rest, 1.0 - 1e-4))] if neighbours == "replace_one" else [(SPREAD, rest)])


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
@pytest.mark.parametrize("quantile", LEVELS)
def test_the_range_of_the_log_ratio_is_epsilon_and_reached(neighbours, quantile):
    options = {"quantile": quantile, "neighbours": neighbours, "epsilon": 1.3}
    widest = 0.0
    pairs = [(*pair, POINTS) for pair in neighbouring(neighbours)] + [(*pair, SPREAD_POINTS) for pair in spread_pairs(neighbours)]
    for one, other, points in pairs:
        ratio = log_density_of_the_code(one, points, **options) - log_density_of_the_code(other, points, **options)
        widest = max(widest, float(np.ptp(ratio)))
        assert np.abs(ratio).max() <= 1.3 + 1e-12
    assert 0.999 * 1.3 < widest <= 1.3 + 1e-12  # 1 % less noise would show; 1e-12 of rounding


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_epsilon_itself_is_reached(neighbours):
    """Almost all mass is in the middle, which the move brings nearer to the quantile, and takes what is right of it further away."""
    left, right = [1e-9 * index for index in range(1, 11)], [1.0 - 1e-9 * index for index in range(1, 12)]
    one, other = (left[1:] + right, left + right[1:]) if neighbours == "replace_one" else (left + right, left + right[1:])
    point = np.array([1.0 - 1.5e-9])
    options = {"quantile": 0.5, "neighbours": neighbours, "epsilon": 1.3}
    ratio = log_density_of_the_code(one, point, **options) - log_density_of_the_code(other, point, **options)
    assert 0.999 * 1.3 < float(abs(ratio[0])) <= 1.3 + 1e-9


def test_ties_and_clipping_give_empty_intervals():
    law = law_of((0.3, 0.3, 0.3, -5.0, 7.0))
    assert law.edges.tolist() == [0.0, 0.0, 0.3, 0.3, 0.3, 1.0, 1.0]
    assert law.probabilities[[0, 2, 3, 5]].tolist() == [0.0, 0.0, 0.0, 0.0]
    assert law.probabilities.sum() == pytest.approx(1.0)
    draws = np.array([law.draw(np.random.default_rng(seed)) for seed in range(200)])
    assert ((draws >= 0.0) & (draws <= 1.0)).all()
    assert np.mean(draws < 0.3) == pytest.approx(law.probabilities[1], abs=5.0 * math.sqrt(0.25 / 200))  # five standard errors


def test_draws_follow_the_law():
    law = law_of((0.1, 0.4, 0.45, 0.8))
    generator = np.random.default_rng(7)
    counts = np.histogram([law.draw(generator) for _ in range(20_000)], bins=law.edges)[0]
    assert counts / 20_000 == pytest.approx(law.probabilities, abs=5.0 * 0.5 / math.sqrt(20_000))


# --- the face ---


def test_a_large_data_set_gives_the_quantile():
    values = np.random.default_rng(0).lognormal(0.0, 0.5, 20_000)
    found = private_quantile(values, quantile=0.9, low=0.01, high=20.0, target=GDP(1.0), generator=np.random.default_rng(1))
    assert found.value == pytest.approx(np.quantile(values, 0.9), rel=0.05)
    assert mu_of(found.statement.planned) <= 1.0
    assert mu_of(found.statement.planned) == pytest.approx(1.0)


def test_the_guarantee_is_in_the_targets_currency():
    options = {"quantile": 0.5, "low": 0.0, "high": 1.0}
    assert isinstance(private_quantile([0.5], target=ZCDP(0.1), **options).statement.planned, ZCDP)
    pure = private_quantile([0.5], target=ApproxDP(0.4, 0.0), **options).statement
    assert pure.epsilon(0.0) == 0.4
    assert pure.epsilon(1e-5) < 0.4


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.7), (1e-3, 1e5), (math.pi, math.e**5)])
def test_values_stay_within_the_range(low, high):
    for values in ([low / 2] * 50, [high * 2] * 50):
        found = private_quantile(values, quantile=0.5, low=low, high=high, target=ApproxDP(1e3, 0.0))
        assert low <= found.value <= high
