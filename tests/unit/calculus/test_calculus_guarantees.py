"""The laws every guarantee obeys, and what each kind adds."""

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
from lethe.errors import InputError

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
]
IDS = [f"{k}-{guarantee.kind}" for k, guarantee in enumerate(KINDS)]
DELTAS = [0.0, 1e-12, 1e-6, 0.1, 0.9]
EPSILONS = [0.0, 0.1, 1.0, 5.0, 50.0, math.inf]


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", KINDS, ids=IDS)
def test_json_round_trip_is_exact_and_strict(guarantee: Guarantee) -> None:
    text = json.dumps(guarantee.to_dict(), allow_nan=False)
    back = guarantee_from_dict(json.loads(text))
    assert back == guarantee
    assert hash(back) == hash(guarantee)
    assert json.loads(text)["kind"] == guarantee.kind
    assert [back.epsilon(delta) for delta in DELTAS] == [guarantee.epsilon(delta) for delta in DELTAS]
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee


@pytest.mark.parametrize("guarantee", KINDS, ids=IDS)
def test_profile_and_inverse_agree_and_are_monotone(guarantee: Guarantee) -> None:
    epsilons = [guarantee.epsilon(delta) for delta in DELTAS]
    deltas = [guarantee.delta(epsilon) for epsilon in EPSILONS]
    assert all(after <= before for before, after in itertools.pairwise(epsilons))
    assert all(after <= before for before, after in itertools.pairwise(deltas))
    assert all(0 <= delta <= 1 for delta in deltas)
    for delta, epsilon in zip(DELTAS, epsilons, strict=True):
        assert epsilon >= 0
        if math.isfinite(epsilon):
            # Profiles are solved so that this holds; a Rényi epsilon is a closed form with its own rounding, and 0 is a clipped value.
            assert guarantee.delta(epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("guarantee", KINDS, ids=IDS)
@pytest.mark.parametrize("bad", [-0.1, math.nan, "1", None])
def test_bad_questions_are_refused(guarantee: Guarantee, bad: float) -> None:
    with pytest.raises(InputError):
        guarantee.epsilon(bad)
    with pytest.raises(InputError):
        guarantee.delta(bad)
    with pytest.raises(InputError):
        guarantee.epsilon(1.0)


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_mixture_of_many_is_accurate_in_the_tail() -> None:
    mus = np.linspace(0.1, 3.0, 100_000)
    mixture = GDPMixture(tuple(mus.tolist()), (1e-5,) * 100_000)
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
