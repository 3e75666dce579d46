"""The laws every guarantee obeys and what each kind adds; calibration and the bracket under it, never on the wrong side."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus import conversions
from lethe.calculus.any_guarantee import guarantee_from_dict
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.crossing import crossing, log_gap, smallest
from lethe.calculus.guarantees import (
    GDP,
    ZCDP,
    ApproxDP,
    GDPMixture,
    Guarantee,
    NotPrivate,
    RDPCurve,
    Tightest,
    WithSlack,
)
from lethe.calculus.sampled.gaussian import SampledGaussian
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


def test_a_mixture_of_many_is_accurate_in_the_tail() -> None:
    mus = np.linspace(0.1, 3.0, 1000)
    mixture = GDPMixture(tuple(mus.tolist()), (1e-3,) * 1000)
    epsilon = mixture.epsilon(1e-250)
    assert mixture.delta(epsilon) <= 1e-250
    assert mixture.delta(epsilon * (1 - 1e-9)) > 1e-250
    # 3.4 % of the weight lies above 2.9, and none above 3.
    assert conversions.gdp_epsilon(2.9, 1e-250 / 0.034) < epsilon < conversions.gdp_epsilon(3.0, 1e-250)


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


def test_crossing_takes_no_more_evaluations_than_bisection_and_one() -> None:
    for shape in (lambda u: 1.0 - u**9, lambda u: math.exp(-40 * u) - 1e-9, lambda u: 1.0 if u < 1e-7 else -1e-9):
        asked: list[float] = []

        def gap(u: float, shape=shape, asked=asked) -> float:
            asked.append(u)
            return shape(u)

        crossing(gap, 0.0, 2.0, resolution=2.0**-20, gap_failing=1.0, gap_passing=-1.0)
        assert len(asked) <= 22  # log2(2 / 2^-20) = 21 halvings, and one


@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_log_gap_has_the_sign_of_the_comparison(value: float, target: float) -> None:
    assert (log_gap(value, target) <= 0.0) == (value <= target)
    assert not math.isnan(log_gap(value, target))
