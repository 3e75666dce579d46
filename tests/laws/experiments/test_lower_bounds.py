"""Lower bounds: the worked numbers, small cases against exact Bayes risks, and never above an upper bound."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from how_many import by_night
from scipy.stats import binom

from lethe.certificates.findings import first_failure
from lethe.errors import InputError
from lethe.heavy_tailed import BallDomain, Moments, Problem
from lethe.heavy_tailed.accelerated import accelerated_optimised
from lethe.heavy_tailed.one_pass import one_pass_optimised
from lethe.heavy_tailed.sets import BoxDomain
from lethe_experiments.lower_bounds.bounds import convex_lower_bound, strongly_convex_lower_bound
from lethe_experiments.lower_bounds.packings import coin_divergence, error_probability, packings, private_divergence
from lethe_experiments.lowy_razaviyayn import printed_fano_factor


def problem(dimension: int = 20, order: float = 2.0, **changes: object) -> Problem:
    plain = Problem(
        gradient=lambda parameters, records: np.asarray(records),
        dimension=dimension,
        domain=BallDomain(radius=1.0),
        smoothness=1.0,
        moments=Moments(order=order, bound=3.0),
    )
    return replace(plain, **changes)


def test_the_worked_numbers_of_the_printed_proofs() -> None:
    assert printed_fano_factor(7202, 40) == pytest.approx(-0.053582, abs=1e-6)
    assert coin_divergence(7202, 1, 7202**-0.5) == pytest.approx(2.000093, abs=1e-6)
    # The mended proof: bias 0.065 at n = 1 record's worth of information, a packing of 2^(d/20).
    assert error_probability(coin_divergence(10**6, 40, 0.065e-3), 2 * math.log(2)) == pytest.approx(0.256184, abs=2e-6)


def test_packings_exist() -> None:
    """Greedy packings are as large as is said."""
    for dimension in (4, 6, 8, 10) if by_night() else (4, 6, 8):
        points = list(itertools.product((0, 1), repeat=dimension))
        for share, log_size in packings(dimension)[:-1]:
            chosen: list[tuple[int, ...]] = []
            for point in points:
                if all(sum(a != b for a, b in zip(point, other, strict=True)) >= share * dimension for other in chosen):
                    chosen.append(point)
            assert math.log(len(chosen)) >= log_size
    assert any(share >= 1 / 8 and size >= 40 * math.log(2) / 20 for share, size in packings(40))
    exact, formula = dict(packings(4000)), dict(packings(4096))
    assert all(size > 0 for size in formula.values())
    assert max(exact.values()) <= 4000 * math.log(2)


def test_one_coin_against_the_exact_bayes_risk() -> None:
    """d = 1, two signs, n coins: no algorithm does better on average than the sign of the sum, whose risk is enumerated."""
    for records, bias in ((1, 0.3), (5, 0.3), (20, 0.1)):
        error = 0.0
        for heads in range(records + 1):
            ways = math.comb(records, heads)
            laws = [ways * ((1 + sign * bias) / 2) ** heads * ((1 - sign * bias) / 2) ** (records - heads) for sign in (1, -1)]
            error += 0.5 * min(laws)
        assert error_probability(coin_divergence(records, 1, bias), math.log(2)) <= error
    found = convex_lower_bound(problem(1), 20, math.inf)
    best = 0.0
    for bias in np.linspace(0.01, 0.99, 99):
        error = sum(
            0.5 * math.comb(20, heads) * min(((1 + s * bias) / 2) ** heads * ((1 - s * bias) / 2) ** (20 - heads) for s in (1, -1))
            for heads in range(21)
        )
        best = max(best, 2 * 3.0 * bias * error)  # a wrong sign costs 2 m D
    assert 0 < found.sampling <= best


def test_private_divergence_against_the_gaussian_mechanism() -> None:
    """The sum of n rare records plus noise: KL of its exact laws (mixtures of normals), by integration, is below the bound."""
    records, chance, rho = 5, 0.2, 0.3
    noise = 2.0 / math.sqrt(2 * rho)  # one record moves the sum by 2
    grid = np.linspace(-60, 60, 200_001)
    laws = []
    for sign in (1, -1):
        law = sum(
            math.comb(records, hit)
            * chance**hit
            * (1 - chance) ** (records - hit)
            * np.exp(-0.5 * ((grid - sign * hit) / noise) ** 2)
            / (noise * math.sqrt(2 * math.pi))
            for hit in range(records + 1)
        )
        laws.append(law)
    divergence = float(np.trapezoid(laws[0] * np.log(laws[0] / laws[1]), grid))
    assert 0.0 < divergence <= private_divergence(records, chance, rho)


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


def test_the_rates() -> None:
    """1/sqrt(n) and (sqrt(d)/(eps n))^((k-1)/k) for convex losses, their squares for strongly convex ones."""
    for order in (2.0, 4.0):
        few, many = (convex_lower_bound(problem(40, order), n, 0.5) for n in (10**4, 10**6))
        assert few.sampling / many.sampling == pytest.approx(10.0, rel=0.1)
        assert few.privacy / many.privacy == pytest.approx(100 ** ((order - 1) / order), rel=0.2)
        few, many = (strongly_convex_lower_bound(problem(40, order, strong_convexity=1.0), n, 0.5) for n in (10**4, 10**6))
        assert few.sampling / many.sampling == pytest.approx(100.0, rel=0.2)
        assert few.privacy / many.privacy == pytest.approx(100 ** (2 * (order - 1) / order), rel=0.5)


def test_more_privacy_more_risk_and_less_second_moment_less() -> None:
    values = [convex_lower_bound(problem(), 1000, rho).privacy for rho in (0.01, 0.1, 1.0, math.inf)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0.0
    tight = problem(moments=Moments(order=4, bound=3.0, second=0.5))
    loose = problem(moments=Moments(order=4, bound=3.0))
    assert convex_lower_bound(tight, 1000, 0.5).privacy < convex_lower_bound(loose, 1000, 0.5).privacy
    central = problem(moments=Moments(order=2, bound=1.0, kind="central"))
    raw = problem(moments=Moments(order=2, bound=2 * math.sqrt(20)))
    assert 0 < convex_lower_bound(central, 1000, 0.5).value < convex_lower_bound(raw, 1000, 0.5).value


def test_each_hypothesis_that_fails_is_named_and_nothing_is_claimed() -> None:
    boxed = problem(1, domain=BoxDomain(low=(-1.0,), high=(1.0,)))
    for found, name in (
        (convex_lower_bound(boxed, 100, 0.5), "domain"),
        (convex_lower_bound(problem(strong_convexity=0.5), 100, 0.5), "loss"),
        (strongly_convex_lower_bound(problem(strong_convexity=1.0, domain=BallDomain(radius=5.0)), 100, 0.5), "radius"),
        (
            strongly_convex_lower_bound(problem(strong_convexity=1.0, moments=Moments(order=2, bound=9.0, kind="central")), 100, 0.5),
            "moments",
        ),
    ):
        failure = first_failure(found.findings)
        assert failure is not None
        assert failure.name == name
        assert found.value == 0.0
    with pytest.raises(InputError):
        convex_lower_bound(problem(), 100, 0.0)
    with pytest.raises(InputError, match="strong_convexity"):
        strongly_convex_lower_bound(problem(), 100, 0.5)
    with pytest.raises(InputError, match="moments"):
        convex_lower_bound(problem(moments=None), 100, 0.5)


def test_every_moment_that_is_stated_limits_the_class() -> None:
    """A bound of order k/2 below r_2 makes the class smaller, and with it what is claimed: as if it were r_2 where k = 4."""
    for bound, strong in ((convex_lower_bound, None), (strongly_convex_lower_bound, 1.0)):

        def problem(strong: float | None = strong, **moments: float) -> Problem:
            stated = Moments(order=4, bound=8.0, kind="uniform", **moments)
            return Problem(
                gradient=lambda parameters, records: parameters,
                dimension=3,
                domain=BallDomain(radius=1.0),
                strong_convexity=strong,
                moments=stated,
            )

        for records in (3, 100):
            narrow, wide = bound(problem(second=6.0, half=2.0), records, 0.5), bound(problem(second=6.0), records, 0.5)
            alike = bound(problem(second=2.0), records, 0.5)
            assert (narrow.sampling, narrow.privacy) == (alike.sampling, alike.privacy)
            assert 0.0 < narrow.value < wide.value
    # Order 2: the first moment of coins that are r long is r.
    first = Problem(
        gradient=lambda parameters, records: parameters,
        dimension=1,
        domain=BallDomain(radius=1.0),
        moments=Moments(order=2, bound=1.0, half=0.01),
    )
    assert convex_lower_bound(first, 1, math.inf).value <= 0.01


def test_a_larger_pl_constant_is_the_curvature_of_the_hard_loss() -> None:
    def problem(**constants: float) -> Problem:
        moments = Moments(order=2, bound=9.0, kind="uniform")
        return Problem(
            gradient=lambda parameters, records: parameters, dimension=2, domain=BallDomain(radius=1.0), moments=moments, **constants
        )

    both = strongly_convex_lower_bound(problem(strong_convexity=0.5, pl_constant=4.0), 50, 0.5)
    assert both.value == strongly_convex_lower_bound(problem(strong_convexity=4.0), 50, 0.5).value


def test_the_private_divergence_is_the_second_moment_of_the_differing_records() -> None:
    chances = binom.pmf(np.arange(11), 10, 0.3)
    assert private_divergence(10, 0.3, 0.5) == pytest.approx(0.5 * float(chances @ np.arange(11) ** 2), rel=1e-12)


def test_two_directions_give_the_closed_form_and_not_a_hundredth_more() -> None:
    """d = 1: the best of half the risk of a wrong sign times how often it is wrong, by a finer search."""
    n, rho, radius, mu, second, high = 40, 0.3, 1.5, 2.0, 7.0, 9.0
    moments = Moments(order=4, bound=high, kind="uniform", second=second)
    problem = Problem(gradient=lambda parameters, records: parameters, dimension=1, domain=BallDomain(radius=radius), moments=moments)
    delta, p = np.geomspace(1e-4, 0.999, 200_000), np.geomspace(1e-4, 1.0, 200_000)
    coin_error = 0.5 * (1 - np.sqrt(0.5 * n * delta * np.log((1 + delta) / (1 - delta))))
    rare_error = 0.5 * (1 - np.sqrt(0.5 * rho * ((n * p) ** 2 + n * p * (1 - p))))
    rare = p * np.minimum(high * p**-0.25, second * p**-0.5)
    found = convex_lower_bound(problem, n, rho)
    for value, exact in (
        (found.sampling, 0.5 * radius * delta * second * coin_error),
        (found.privacy, 0.5 * radius * rare * rare_error),
    ):
        assert 0.995 * exact.max() <= value <= exact.max() * (1 + 1e-9)
    lengths = [np.maximum(((r / mu) ** j - (1 - p) * radius**j) / p, 0) ** (1 / j) - radius for j, r in ((2, second), (4, high))]
    means = np.minimum(radius, p * np.maximum(np.minimum(*lengths), 0))
    found = strongly_convex_lower_bound(replace(problem, strong_convexity=mu), n, rho)
    for value, exact in (
        (found.sampling, 0.5 * mu * np.minimum(radius, delta * (second / mu - radius)) ** 2 * coin_error),
        (found.privacy, 0.5 * mu * means**2 * rare_error),
    ):
        assert 0.99 * exact.max() <= value <= exact.max() * (1 + 1e-9)


def test_the_sizes_of_packings_are_those_of_gilbert_and_varshamov() -> None:
    sizes = dict(packings(12))
    for places in (2, 3, 4):
        ball = sum(math.comb(12, i) for i in range(places))
        assert sizes[places / 12] == pytest.approx(12 * math.log(2) - math.log(ball), rel=1e-11)
