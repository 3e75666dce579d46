"""Lower bounds: the worked numbers, small cases against exact Bayes risks, and never above an upper bound."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from how_many import by_night
from scipy.stats import binom, norm

from lethe.certificates.findings import first_failure
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.accelerated import accelerated_optimised
from lethe.heavy_tailed.one_pass import one_pass_optimised
from lethe.heavy_tailed.sets import BoxDomain
from lethe_experiments.lower_bounds.bounds import convex_lower_bound, strongly_convex_lower_bound
from lethe_experiments.lower_bounds.packings import coin_divergence, error_probability, packings, private_divergence
from lethe_experiments.lowy_razaviyayn.printed import printed_fano_factor


def problem(dimension: int = 20, order: float = 2.0, **changes: object) -> Problem:
    plain = Problem(
        gradient=lambda parameters, records: np.asarray(records),
        dimension=dimension,
        domain=BallDomain(radius=1.0),
        smoothness=1.0,
        moments=Moments(order=order, bound=3.0),
    )
    return replace(plain, **changes)


def test_packings_exist() -> None:
    """Greedy packings are as large as is said, which is what Gilbert and Varshamov say."""
    for dimension in (4, 6, 8, 10) if by_night() else (4, 6, 8):
        points = list(itertools.product((0, 1), repeat=dimension))
        for share, log_size in packings(dimension)[:-1]:
            chosen: list[tuple[int, ...]] = []
            for point in points:
                if all(sum(a != b for a, b in zip(point, other, strict=True)) >= share * dimension for other in chosen):
                    chosen.append(point)
            assert math.log(len(chosen)) >= log_size
    assert any(share >= 1 / 8 and size >= 40 * math.log(2) / 20 for share, size in packings(40))
    assert all(size > 0 for _, size in packings(4096))
    assert max(size for _, size in packings(4000)) <= 4000 * math.log(2)
    sizes = dict(packings(12))
    for places in (2, 3, 4):
        ball = sum(math.comb(12, i) for i in range(places))
        assert sizes[places / 12] == pytest.approx(12 * math.log(2) - math.log(ball), rel=1e-11)


def test_one_coin_against_the_exact_bayes_risk() -> None:
    """d = 1, two signs, n coins: no algorithm does better on average than the sign of the sum, whose risk is enumerated."""
    assert printed_fano_factor(7202, 40) == pytest.approx(-0.053582, abs=1e-6)  # the printed proof
    assert coin_divergence(7202, 1, 7202**-0.5) == pytest.approx(2.000093, abs=1e-6)
    # The mended proof: bias 0.065 at n = 1 record's worth of information, a packing of 2^(d/20).
    assert error_probability(coin_divergence(10**6, 40, 0.065e-3), 2 * math.log(2)) == pytest.approx(0.256184, abs=2e-6)
    for records, bias in ((1, 0.3), (5, 0.3), (20, 0.1)):
        laws = [binom.pmf(np.arange(records + 1), records, (1 + sign * bias) / 2) for sign in (1, -1)]
        assert error_probability(coin_divergence(records, 1, bias), math.log(2)) <= 0.5 * float(np.minimum(*laws).sum())


def test_private_divergence_against_the_gaussian_mechanism() -> None:
    """The sum of n rare records plus noise: KL of its exact laws (mixtures of normals), by integration, is below the bound, which is the
    second moment of how many records differ."""
    records, chance, rho = 5, 0.2, 0.3
    noise = 2.0 / math.sqrt(2 * rho)  # one record moves the sum by 2
    grid, hits = np.linspace(-60, 60, 200_001), np.arange(records + 1)
    chances = binom.pmf(hits, records, chance)
    one, other = (norm.pdf((grid[:, None] - sign * hits) / noise) @ chances / noise for sign in (1, -1))
    divergence = float(np.trapezoid(one * np.log(one / other), grid))
    assert 0.0 < divergence <= private_divergence(records, chance, rho)
    assert private_divergence(records, chance, rho) == pytest.approx(rho * float(chances @ hits**2), rel=1e-12)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("order", [2.0, 4.0])
@pytest.mark.parametrize("dimension", [1, 20, 200])
@pytest.mark.parametrize("records", [100, 10**4, 10**6])
def test_never_above_an_upper_bound(records: int, dimension: int, order: float) -> None:
    convex = problem(dimension, order)
    found = convex_lower_bound(convex, records, 0.5)
    assert first_failure(found.findings) is None
    assert 0.0 < found.value <= accelerated_optimised(convex, records, 0.5).bound
    strong = problem(dimension, order, strong_convexity=1.0)
    lower = strongly_convex_lower_bound(strong, records, 0.5)
    assert 0.0 < lower.value <= one_pass_optimised(strong, records, 0.5).bound


def test_each_hypothesis_that_fails_is_named_and_nothing_is_claimed() -> None:
    strong = problem(strong_convexity=1.0)
    for found, name in (
        (convex_lower_bound(problem(1, domain=BoxDomain(low=(-1.0,), high=(1.0,))), 100, 0.5), "domain"),
        (convex_lower_bound(problem(strong_convexity=0.5), 100, 0.5), "loss"),
        (strongly_convex_lower_bound(replace(strong, domain=BallDomain(radius=5.0)), 100, 0.5), "radius"),
        (strongly_convex_lower_bound(replace(strong, moments=Moments(order=2, bound=9.0, kind="central")), 100, 0.5), "moments"),
    ):
        failure = first_failure(found.findings)
        assert failure is not None
        assert failure.name == name
        assert found.value == 0.0


def test_every_moment_that_is_stated_limits_the_class() -> None:
    """A bound of order k/2 below r_2 makes the class smaller, and with it what is claimed: as if it were r_2 where k = 4."""
    for bound, strong in ((convex_lower_bound, None), (strongly_convex_lower_bound, 1.0)):
        for records in (3, 100):
            narrow, wide, alike = (
                bound(problem(3, strong_convexity=strong, moments=Moments(order=4, bound=8.0, kind="uniform", **stated)), records, 0.5)
                for stated in ({"second": 6.0, "half": 2.0}, {"second": 6.0}, {"second": 2.0})
            )
            assert (narrow.sampling, narrow.privacy) == (alike.sampling, alike.privacy)
            assert 0.0 < narrow.value < wide.value
    # Order 2: the first moment of coins that are r long is r.
    first = problem(1, moments=Moments(order=2, bound=1.0, half=0.01))
    assert convex_lower_bound(first, 1, math.inf).value <= 0.01
    central, raw = (Moments(order=2, bound=1.0, kind="central"), Moments(order=2, bound=2 * math.sqrt(20)))
    assert 0 < convex_lower_bound(problem(moments=central), 1000, 0.5).value < convex_lower_bound(problem(moments=raw), 1000, 0.5).value
    uniform = Moments(order=2, bound=9.0, kind="uniform")  # a larger PL constant is the curvature of the hard loss
    both, curved = (
        problem(smoothness=4.0, moments=uniform, **one)
        for one in ({"strong_convexity": 0.5, "pl_constant": 4.0}, {"strong_convexity": 4.0})
    )
    assert strongly_convex_lower_bound(both, 50, 0.5).value == strongly_convex_lower_bound(curved, 50, 0.5).value > 0


def test_two_directions_give_the_closed_form_and_not_a_hundredth_more() -> None:
    """d = 1: the best of half the risk of a wrong sign times how often it is wrong, by a finer search."""
    n, rho, radius, mu, second, high = 40, 0.3, 1.5, 2.0, 7.0, 9.0
    moments = Moments(order=4, bound=high, kind="uniform", second=second)
    flat = problem(1, moments=moments, domain=BallDomain(radius=radius), smoothness=None)
    delta, p = np.geomspace(1e-4, 0.999, 200_000), np.geomspace(1e-4, 1.0, 200_000)
    coin_error = 0.5 * (1 - np.sqrt(0.5 * n * delta * np.log((1 + delta) / (1 - delta))))
    rare_error = 0.5 * (1 - np.sqrt(0.5 * rho * ((n * p) ** 2 + n * p * (1 - p))))
    rare = p * np.minimum(high * p**-0.25, second * p**-0.5)
    found = convex_lower_bound(flat, n, rho)
    for value, exact in ((found.sampling, 0.5 * radius * delta * second * coin_error), (found.privacy, 0.5 * radius * rare * rare_error)):
        assert 0.995 * exact.max() <= value <= exact.max() * (1 + 1e-9)
    lengths = [np.maximum(((r / mu) ** j - (1 - p) * radius**j) / p, 0) ** (1 / j) - radius for j, r in ((2, second), (4, high))]
    means = np.minimum(radius, p * np.maximum(np.minimum(*lengths), 0))
    found = strongly_convex_lower_bound(replace(flat, strong_convexity=mu), n, rho)
    for value, exact in (
        (found.sampling, 0.5 * mu * np.minimum(radius, delta * (second / mu - radius)) ** 2 * coin_error),
        (found.privacy, 0.5 * mu * means**2 * rare_error),
    ):
        assert 0.99 * exact.max() <= value <= exact.max() * (1 + 1e-9)
