"""The laws every guarantee obeys, Rényi curves, targets and trade-off functions; calibration and the bracket under it."""

import itertools
import json
import math
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import lethe
from lethe.calculus import conversions
from lethe.calculus.any_guarantee import guarantee_from_dict
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.composition import concentrated_rho, gaussian_mu, overshoot, renyi_curve
from lethe.calculus.crossing import crossing, log_gap, smallest
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, Guarantee, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_gaussian
from lethe.calculus.sampled.renyi import ORDERS
from lethe.errors import CalibrationError, InputError

SAMPLED = SampledGaussian(
    sampling_probability=0.01,
    noise=(1.0, 2.5),
    counts=(10, 20),
    relation="zero_out",
    design="poisson",
    levels_before_rounding=7,
    gaussian_mu=0.25,
)
KINDS: list[Guarantee] = [
    GDP(0.0),
    GDP(0.1 + 0.2),
    GDP(math.inf),
    ZCDP(0.3),
    ZCDP(math.inf),
    RDPCurve((2.0, 3.0, 16.0), (0.1, 0.2, math.inf)),
    ApproxDP(1.0, 1e-6),
    NotPrivate(),
    GDPMixture((0.0, 0.5, 1.5, math.inf), (0.3, 0.4, 0.2, 1e-9)),
    Tightest((GDP(1.0), ZCDP(0.1), Tightest((NotPrivate(),)))),
    WithSlack(GDP(1.0), 1e-9),
    SAMPLED,
    BallsInBinsGaussian(mus=(0.5, 2.0), counts=(40, 2), relation="replace_one"),
]
IDS = [f"{k}-{guarantee.kind}" for k, guarantee in enumerate(KINDS)]
DELTAS = [0.0, 1e-12, 1e-6, 0.1, 0.9]
EPSILONS = [0.0, 0.1, 1.0, 5.0, 50.0, math.inf]


@pytest.mark.parametrize("guarantee", KINDS, ids=IDS)
def test_json_round_trip_is_exact_and_strict(guarantee: Guarantee) -> None:
    text = json.dumps(guarantee.to_dict(), allow_nan=False)
    back = guarantee_from_dict(json.loads(text))
    assert back == guarantee
    assert hash(back) == hash(guarantee)
    assert json.loads(text)["kind"] == guarantee.kind
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee


@pytest.mark.parametrize("guarantee", KINDS[:-1], ids=IDS[:-1])
def test_profile_and_inverse_agree_and_are_monotone(guarantee: Guarantee) -> None:
    epsilons = [guarantee.epsilon(delta) for delta in DELTAS]
    deltas = [guarantee.delta(epsilon) for epsilon in EPSILONS]
    assert all(after <= before for before, after in itertools.pairwise(epsilons))
    assert all(after <= before for before, after in itertools.pairwise(deltas))
    assert all(0 <= delta <= 1 for delta in deltas)
    for question in (guarantee.epsilon, guarantee.delta):
        for bad in (-0.1, math.nan, "1", None):
            with pytest.raises(InputError):
                question(bad)  # pyright: ignore[reportArgumentType]
    for delta, epsilon in zip(DELTAS, epsilons, strict=True):
        assert epsilon >= 0
        if math.isfinite(epsilon):
            # Profiles are solved so that this holds; a Rényi epsilon is a closed form with its own rounding, and 0 is a clipped value.
            assert guarantee.delta(epsilon) <= delta * (1 + 1e-9)


@given(st.lists(st.tuples(st.floats(0, 6), st.floats(0.001, 1)), min_size=1, max_size=6), st.floats(0, 20))
def test_mixture_is_the_weighted_sum(components: list[tuple[float, float]], epsilon: float) -> None:
    total = math.fsum(weight for _, weight in components)
    mus = tuple(mu for mu, _ in components)
    weights = tuple(weight / total for _, weight in components)
    expected = math.fsum(weight * conversions.gdp_delta(mu, epsilon) for mu, weight in zip(mus, weights, strict=True))
    value = GDPMixture(mus, weights).delta(epsilon)
    assert value == pytest.approx(expected, rel=1e-14, abs=1e-320)  # the same terms, summed and rounded up
    low, high = conversions.gdp_delta(min(mus), epsilon), conversions.gdp_delta(max(mus), epsilon)
    assert low * (1 - 1e-12) - 1e-320 <= value <= high * (1 + 1e-12) + 1e-320  # rounding of the weights, and of subnormal numbers


def test_slack_is_added_to_delta() -> None:
    slack = WithSlack(GDP(1.0), 1e-6)
    assert slack.delta(2.0) >= GDP(1.0).delta(2.0) + 1e-6
    assert slack.delta(2.0) == pytest.approx(GDP(1.0).delta(2.0) + 1e-6, rel=1e-15)
    assert slack.epsilon(1e-5) == pytest.approx(GDP(1.0).epsilon(9e-6), rel=1e-12)
    assert slack.epsilon(9e-7) == math.inf
    assert WithSlack(GDP(1.0), 0.0).epsilon(1e-5) == GDP(1.0).epsilon(1e-5)


def test_one_point_says_nothing_elsewhere() -> None:
    point = ApproxDP(1.0, 1e-6)
    assert (point.epsilon(1e-6), point.epsilon(0.5), point.epsilon(9e-7)) == (1.0, 1.0, math.inf)
    assert (point.delta(1.0), point.delta(9.0), point.delta(0.99)) == (1e-6, 1e-6, 1.0)


@given(st.floats(1e-3, 1e3), st.floats(0.3, 4.0), st.floats(1e-3, 1e3), st.floats(1e-6, 1e6))
def test_power_laws_are_met_and_met_tightly(scale: float, power: float, target: float, start: float) -> None:
    asked: list[float] = []

    def bound(x: float) -> float:
        asked.append(x)
        return scale * x**-power

    answer = smallest(bound, target, start=start)
    assert answer in asked
    truth = (scale / target) ** (1 / power)
    assert scale * answer**-power <= target
    # The promised tolerance, and the rounding of the truth computed here.
    assert answer <= truth * (1 + 1e-6 + 1e-12)


@pytest.mark.parametrize("start", [1e-4, 1.0, 1e4])
def test_infinite_and_nan_bounds_are_failures(start: float) -> None:
    assert 2.0 <= smallest(lambda x: math.inf if x < 2.0 else 0.0, 1.0, start=start) <= 2.0 * (1 + 1e-6)
    assert 2.0 <= smallest(lambda x: math.nan if x < 2.0 else 1.0, 1.0, start=start) <= 2.0 * (1 + 1e-6)


@given(st.integers(0, 2**32))
def test_bound_that_is_not_monotone_is_still_met(seed: int) -> None:
    def bumpy(x: float) -> float:
        return 5.0 / x * (1.0 + 0.5 * math.sin(40.0 * math.log(x) + seed))

    assert bumpy(smallest(bumpy, 1.0, start=0.1)) <= 1.0


def test_target_met_everywhere_gives_the_end_of_the_search() -> None:
    assert smallest(lambda _: 0.0, 1.0, start=1.0) == pytest.approx(2.0**-200, rel=1e-9)  # documented end; exp and log round


def test_target_met_nowhere_is_an_error_with_its_parts() -> None:
    with pytest.raises(CalibrationError, match=r"needs to fall to 1(.|\n)*From: (.|\n)*Do: "):
        smallest(lambda _: 2.0, 1.0, start=1.0)


@given(st.floats(-50, 50), st.booleans())
def test_crossing_works_from_either_side(root: float, reverse: bool) -> None:
    sign = -1.0 if reverse else 1.0
    failing, passing = sign * -100.0, sign * 100.0
    answer = crossing(
        lambda u: math.atan(sign * (root - u)),
        failing,
        passing,
        resolution=1e-9,
        gap_failing=math.atan(sign * (root - failing)),
        gap_passing=math.atan(sign * (root - passing)),
    )
    assert 0.0 <= sign * (answer - root) <= 1e-9 + 1e-13  # the resolution, and one ulp of 100


@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_log_gap_has_the_sign_of_the_comparison(value: float, target: float) -> None:
    assert (log_gap(value, target) <= 0.0) == (value <= target)
    assert not math.isnan(log_gap(value, target))


# Sums are raised by 1e-12 and, for mixtures, a rounding error a component.
ROOM = 1 + 1e-11


def curve_of(*parts: tuple[lethe.guarantees.Guarantee, int]) -> tuple[np.ndarray, np.ndarray]:
    curve = renyi_curve(dict(parts))
    assert curve is not None
    return np.array(curve.orders), np.array(curve.values)


@pytest.mark.parametrize("count", [1, 7, 10**15, 10**30])
def test_gaussians_and_zcdp_are_lines_in_the_order(count: int) -> None:
    orders, values = curve_of((lethe.guarantees.GDP(0.7), count))
    exact = float(count) * orders * 0.7**2 / 2
    assert np.all((exact <= values) & (values <= exact * ROOM))
    orders, values = curve_of((lethe.guarantees.ZCDP(0.3), count), (lethe.guarantees.GDP(0.7), 2))
    exact = float(count) * 0.3 * orders + orders * 0.7**2
    assert np.all((exact <= values) & (values <= exact * ROOM))


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
def test_pure_privacy_is_just_above_randomised_response(epsilon: float) -> None:
    # Randomised response is the extreme epsilon-DP mechanism: no other has larger divergences.
    orders, values = curve_of((lethe.guarantees.ApproxDP(epsilon, 0.0), 3))
    with mpmath.workdps(40):
        yes = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        exact = [3 * mpmath.log(yes**a * (1 - yes) ** (1 - a) + (1 - yes) ** a * yes ** (1 - a)) / (a - 1) for a in map(mpmath.mpf, orders)]
    assert all(value >= limit for value, limit in zip(values, exact, strict=True))
    if epsilon <= 0.1:  # e tanh(e / 2) at order 1 is e^2 / 2 less a part e^2 / 12 of it
        assert values[0] <= exact[0] * (1 + 1e-3)
    assert values[-1] <= exact[-1] * (1 + 1e-3)  # epsilon itself


def test_mixtures_are_sums_of_moments() -> None:
    mixture = lethe.guarantees.GDPMixture((0.1, 1.0, 2.5), (0.5, 0.2, 0.1))  # and 0.2 that reveals nothing
    orders, values = curve_of((mixture, 3))
    with mpmath.workdps(40):
        for alpha, value in zip(orders, values, strict=True):
            a = mpmath.mpf(alpha)
            weighted = zip((*mixture.weights, 0.2), (*mixture.mus, 0.0), strict=True)
            moment = mpmath.fsum(weight * mpmath.exp(a * (a - 1) / 2 * mpmath.mpf(mu) ** 2) for weight, mu in weighted)
            exact = 3 * mpmath.log(moment) / (a - 1)
            # A rounding error of 1e-14 in the moment, divided by the order less 1.
            assert exact <= value <= exact * ROOM + 3e-14 / (alpha - 1)
    assert math.isinf(curve_of((lethe.guarantees.GDPMixture((1.0, math.inf), (0.5, 0.5)), 1))[1][0])


def test_curves_at_other_orders_count_at_the_next_order_above() -> None:
    # Divergences grow with the order, so the value at an order bounds those below it, and says nothing above it.
    first = lethe.guarantees.RDPCurve((1.5, 2.0, 4.0, 8.0), (0.1, 0.2, 0.4, 0.9))
    second = lethe.guarantees.RDPCurve((4.5, 1.75, 3.0), (1.0, 0.3, 0.5))
    orders, values = curve_of((first, 2), (second, 3))
    assert tuple(orders) == first.orders
    exact = np.array([2 * 0.1 + 3 * 0.3, 2 * 0.2 + 3 * 0.5, 2 * 0.4 + 3 * 1.0, math.inf])
    assert np.all((exact <= values) & (values <= exact * ROOM))


@pytest.mark.parametrize("design", ["poisson", "without_replacement"])
def test_sampled_steps_bring_their_own_curve(design: str) -> None:
    steps = SampledGaussian(sampling_probability=0.1, noise=(1.5,), counts=(4,), relation="zero_out", design=design, gaussian_mu=0.5)  # pyright: ignore[reportArgumentType]
    orders, values = curve_of((steps, 3), (lethe.guarantees.GDP(0.4), 1))
    assert tuple(orders) == ORDERS
    exact = 3 * np.array(steps.renyi_curve().values) + orders * 0.4**2 / 2
    assert np.all((exact * (1 - 1e-15) <= values) & (values <= exact * ROOM))


def test_of_several_bounds_the_smallest_counts_and_unknown_ones_do_not() -> None:
    both = Tightest((lethe.guarantees.GDP(1.0), lethe.guarantees.ApproxDP(0.8, 0.0), WithSlack(lethe.guarantees.GDP(0.1), 1e-3)))
    orders, values = curve_of((both, 2))
    exact = 2 * np.minimum(np.minimum(orders / 2, 0.5 * orders * 0.8**2), 0.8)
    assert np.all((exact <= values) & (values <= exact * ROOM))


@pytest.mark.parametrize(
    "part",
    [WithSlack(lethe.guarantees.GDP(0.1), 1e-3), lethe.guarantees.ApproxDP(0.1, 1e-9), Tightest((lethe.guarantees.ApproxDP(0.1, 1e-9),))],
)
def test_what_has_no_curve_has_none(part: lethe.guarantees.Guarantee) -> None:
    assert renyi_curve({lethe.guarantees.GDP(1.0): 1, part: 1}) is None


POISSON = sampled_gaussian(0.05, np.array([2.0, 3.0]), "zero_out", "poisson")
GUARANTEES = [GDP(0.7), ZCDP(0.3), GDPMixture((0.2, 1.0), (0.5, 0.5)), Tightest((GDP(2.0), ZCDP(0.1))), WithSlack(GDP(0.5), 1e-9), POISSON]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_many_deltas_at_once_are_those_of_each(guarantee) -> None:
    levels = np.array([0.0, 0.3, 2.0])
    assert guarantee.deltas(levels) == pytest.approx([guarantee.delta(level) for level in levels.tolist()], rel=1e-10)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@given(st.floats(0.1, 3), st.floats(1e-8, 0.1))
def test_a_point_is_met_where_the_profile_says_so(guarantee, epsilon, delta) -> None:
    met = overshoot(guarantee, ApproxDP(epsilon, delta)) <= 1
    assert met == (guarantee.epsilon(delta) <= epsilon)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@given(st.sampled_from(["gdp", "zcdp", "rdp"]), st.floats(0.05, 3), st.floats(1e-8, 0.1))
def test_what_meets_a_target_implies_it(guarantee, kind, size, delta) -> None:
    """A guarantee that meets a target is at least as strong at every delta: the target's own conversion is never below it."""
    orders = (1.5, 2.0, 8.0, 64.0)
    target = {"gdp": GDP(size), "zcdp": ZCDP(size), "rdp": RDPCurve(orders, tuple(size * order for order in orders))}[kind]
    factor = overshoot(guarantee, target)
    if factor <= 1:
        assert guarantee.epsilon(delta) <= target.epsilon(delta) * (1 + 1e-9)


def test_by_hand() -> None:
    assert overshoot(GDP(1.0), GDP(0.5)) == 2.0
    assert overshoot(GDP(1.0), ZCDP(1.0)) == pytest.approx(0.5)
    assert overshoot(ZCDP(1.0), GDP(10.0)) == math.inf  # zCDP implies no GDP
    assert overshoot(GDP(1.0), RDPCurve((2.0, 4.0), (1.0, 1.0))) == pytest.approx(2.0)
    assert overshoot(GDP(1.0), RDPCurve((2.0, 4.0), (1.0, math.inf))) == pytest.approx(1.0)
    assert overshoot(NotPrivate(), GDP(1.0)) == overshoot(NotPrivate(), RDPCurve((2.0,), (1.0,))) == math.inf
    assert gaussian_mu(GDPMixture((0.2, math.inf), (1.0, 0.0))) == 0.2
    assert concentrated_rho(Tightest((GDP(1.0), ZCDP(0.1)))) == 0.1
    assert gaussian_mu(WithSlack(GDP(1.0), 1e-12)) == math.inf
    assert gaussian_mu(POISSON) == math.inf


def test_a_sampled_gaussian_meets_a_renyi_curve_and_no_zcdp() -> None:
    """Its divergence at order a grows like a/(2 z^2) in the end: amplification holds at bounded orders only."""
    assert isinstance(POISSON, SampledGaussian)
    curve = POISSON.renyi_curve()
    assert overshoot(POISSON, RDPCurve(curve.orders, curve.values)) == pytest.approx(1.0, rel=1e-9)
    assert overshoot(POISSON, ZCDP(0.5)) == math.inf


ALPHAS = (0.0, 1e-6, 1e-3, 0.05, 0.3, 0.5, 0.9, 1.0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0])
def test_of_a_gaussian_it_is_just_below_the_exact_one(mu: float) -> None:
    for alpha in ALPHAS:
        exact = float(stats.norm.cdf(stats.norm.ppf(1.0 - alpha) - mu))
        found = lethe.guarantees.GDP(mu).tradeoff(alpha)
        assert found <= exact + 1e-15  # a test may be this good, never better than what is promised
        assert found >= exact * (1 - 1e-3) - 1e-6


def test_of_a_point_it_is_the_polygon_of_that_point() -> None:
    epsilon, delta = 0.7, 1e-3
    for alpha in ALPHAS:
        exact = max(0.0, 1 - delta - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - delta - alpha))
        found = lethe.guarantees.ApproxDP(epsilon, delta).tradeoff(alpha)
        assert found <= exact
        assert found >= exact - 0.02  # the levels at which it is looked are not the point itself


def test_what_is_not_private_hides_nothing_and_no_data_hides_all() -> None:
    for alpha in ALPHAS:
        assert NotPrivate().tradeoff(alpha) == 0.0
        assert lethe.guarantees.GDP(0.0).tradeoff(alpha) == pytest.approx(1.0 - alpha, abs=1e-14)
        with pytest.raises(lethe.InputError):
            lethe.guarantees.GDP(1.0).tradeoff(alpha + 1.5)
