"""From error rates to epsilon: published digits, and the accountant on the other side."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.audit.statistics.counts import Rates, Tally
from lethe.audit.statistics.curves import (
    AnyMechanism,
    GaussianCurve,
    SampledGaussianCurve,
    gaussian_epsilon,
    printed_epsilon,
)
from lethe.calculus.conversions import gdp_epsilon


def tally(false_positives: int, out_trials: int, false_negatives: int, in_trials: int) -> Tally:
    return Tally(out_trials=out_trials, false_positives=false_positives, in_trials=in_trials, false_negatives=false_negatives)


@pytest.mark.parametrize(
    ("counts", "plug_in", "certified", "mu", "gaussian"),
    [
        (tally(5, 1000, 120, 1000), 5.170473, 4.301322, 3.341569, 19.192871),
        (tally(300, 1000, 320, 1000), 0.818296, 0.679635, 0.826963, 3.517677),
        (tally(0, 500, 0, 500), math.inf, 4.905584, None, 31.997408),
        (tally(500, 1000, 500, 1000), 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_values(counts: Tally, plug_in: float, certified: float, mu: float | None, gaussian: float) -> None:
    rates = counts.upper_rates(0.05)
    assert max(0.0, printed_epsilon(counts.observed_rates(), 1e-5)) == pytest.approx(plug_in, abs=1e-6)  # six decimals are given
    assert AnyMechanism().epsilon(rates, 1e-5) == pytest.approx(certified, abs=1e-6)
    assert GaussianCurve().epsilon(rates, 1e-5) == pytest.approx(gaussian, abs=1e-6)
    assert mu is None or GaussianCurve().mu(rates) == pytest.approx(mu, abs=1e-6)


@given(mu=st.floats(1e-3, 30), log_delta=st.floats(-12, -0.5))
def test_the_gaussian_epsilon_is_just_below_the_accountant_s(mu: float, log_delta: float) -> None:
    delta = 10.0**log_delta
    below, above = gaussian_epsilon(mu, delta), gdp_epsilon(mu, delta)
    assert below <= above
    assert below == pytest.approx(above, rel=1e-6, abs=1e-6)  # relative 1e-13 of a tail, over the slope of its logarithm


@pytest.mark.parametrize(("mu", "delta", "epsilon"), [(1.0, 1e-5, 4.377178), (0.5, 1e-5, 1.993091)])
def test_gaussian_values(mu: float, delta: float, epsilon: float) -> None:
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, abs=1e-6)  # six decimals are given


@given(mu=st.floats(0.1, 6), q=st.floats(0.05, 1), threshold=st.floats(-2, 4))
def test_exact_rates_give_back_mu(mu: float, q: float, threshold: float) -> None:
    false_positive = stats.norm.sf(threshold)
    false_negative = (1 - q) * stats.norm.cdf(threshold) + q * stats.norm.cdf(threshold - mu)
    found = SampledGaussianCurve(sampling_probability=q, steps=1).mu(Rates(false_positive, false_negative))
    # Lowered by 1e-12 (1 + mu), and rounding of 1e-16 in the rates, over q and the normal density at threshold - mu.
    assert found == pytest.approx(mu, abs=1e-11 + 1e-14 / (q * stats.norm.pdf(threshold - mu)))
    assert found <= mu + 1e-9


def test_every_step_sampled_is_gaussian_composition() -> None:
    curve, rates = SampledGaussianCurve(sampling_probability=1.0, steps=4), Rates(0.1, 0.2)
    assert curve.epsilon(rates, 1e-5) == pytest.approx(gaussian_epsilon(2 * GaussianCurve().mu(rates), 1e-5), abs=1e-9)  # rounding


@given(p=st.floats(1e-9, 1), r=st.floats(1e-9, 1), more=st.floats(1, 3))
def test_larger_rates_never_prove_more(p: float, r: float, more: float) -> None:
    for curve in (AnyMechanism(), GaussianCurve()):
        assert curve.epsilon(Rates(min(p * more, 1), r), 1e-5) <= curve.epsilon(Rates(p, r), 1e-5) + 1e-9
        assert curve.epsilon(Rates(p, min(r * more, 1)), 1e-5) <= curve.epsilon(Rates(p, r), 1e-5) + 1e-9


@given(p=st.floats(1e-6, 0.999), r=st.floats(1e-6, 0.999), q=st.floats(1e-6, 0.999), s=st.floats(1e-6, 0.999))
def test_strength_orders_as_epsilon_does(p: float, r: float, q: float, s: float) -> None:
    first, second = Rates(p, r), Rates(q, s)
    for curve in (AnyMechanism(), GaussianCurve()):
        if curve.strength(first, 1e-5) <= curve.strength(second, 1e-5):
            assert curve.epsilon(first, 1e-5) <= curve.epsilon(second, 1e-5) + 1e-6  # rounding in the flat part near epsilon 0
    assert curve.strengths(np.array([p, q]), np.array([r, s]), 1e-5).shape == (2,)


@pytest.mark.parametrize(
    ("false_positives", "false_negatives", "expected"),
    [
        # The first two: plug-in values of an independent implementation, to its six decimals.
        (0.005, 0.12, 5.170473),
        (0.3, 0.32, 0.818296),
        (0.6, 0.6, math.log((1 - 1e-5 - 0.6) / 0.6)),
        (0.2, 0.9, math.log((1 - 1e-5 - 0.2) / 0.9)),
        (0.0, 0.4, math.inf),
        (0.4, 0.0, math.inf),
        (1.0, 1.0, -math.inf),
        (0.0, 1.0, math.log(1 - 1e-5)),
    ],
)
def test_the_formula_is_the_printed_one(false_positives: float, false_negatives: float, expected: float) -> None:
    assert printed_epsilon(Rates(false_positives, false_negatives), 1e-5) == pytest.approx(expected, abs=5e-7)
    assert printed_epsilon(Rates(false_negatives, false_positives), 1e-5) == pytest.approx(expected, abs=5e-7)
