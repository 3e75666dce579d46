"""Every conversion: its digits, its printed numbers, its inverse, its direction of rounding."""

import math

import mpmath
import numpy as np
import pytest
from exact_numbers import Exact
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import mironov_epsilon

from lethe.calculus import conversions as c
from lethe.calculus import normal


def exact_delta(mu: float, epsilon: float) -> Exact:
    """Balle & Wang 2018, Theorem 8, as printed."""
    m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", np.logspace(-8, 2, 21))
def test_log_gaussian_delta_is_just_above_eighty_digits(mu: float) -> None:
    with mpmath.workdps(80):
        for x in (-mu / 2, -mu / 4, 0.0, 1e-9, 0.3, 1.0, 5.0, 12.0, 19.9, 20.1, 30.0, 36.5):
            epsilon = mu * (x + mu / 2)
            exact = exact_delta(mu, epsilon)
            if epsilon < 0 or exact < mpmath.mpf(10) ** -300:
                continue
            relative = float(mpmath.exp(mpmath.mpf(float(normal.log_gaussian_delta(mu, epsilon)))) / exact - 1)
            # Never below; above by the documented margin of 1e-11 and the rounding of x at mu = 100.
            assert 0.0 <= relative <= 2e-11 or exact > 1 - 1e-11


def test_log_gaussian_delta_beyond_what_a_float_holds() -> None:
    with mpmath.workdps(80):
        for mu, epsilon in ((1e-8, 1.0), (0.1, 100.0), (1.0, 1e4)):
            exact = float(mpmath.log(exact_delta(mu, epsilon))) if mu > 1e-6 else -0.5 * (epsilon / mu - mu / 2) ** 2
            assert float(normal.log_gaussian_delta(mu, epsilon)) == pytest.approx(exact, rel=1e-12)  # log-space rounding, a few ulp


def test_log_gaussian_delta_at_its_edges() -> None:
    values = normal.log_gaussian_delta([0.0, math.inf, 1.0, math.inf, 1e-300, 1e200], [0.0, 3.0, math.inf, math.inf, 1.0, 0.0])
    assert values[:4].tolist() == [-math.inf, 0.0, -math.inf, 0.0]
    assert -math.inf < values[4] < -1e300  # smaller than any float, still positive
    assert values[5] == 0.0


@pytest.mark.parametrize(("weight", "x"), [(1e-18, 1e-5), (0.3, -40.0), (1e-300, 900.0), (0.5, 0.999), (1.0, 3.0), (0.0, 5.0)])
def test_log_mixture_against_fifty_digits(weight: float, x: float) -> None:
    with mpmath.workdps(50):
        exact = float(mpmath.log(1 - mpmath.mpf(weight) + mpmath.mpf(weight) * mpmath.exp(x)))
    assert float(normal.log_mixture(weight, x)) == pytest.approx(exact, rel=1e-14, abs=1e-300)  # a few ulp


MUS = st.floats(1e-6, 50.0)
RHOS = st.floats(1e-8, 100.0)
DELTAS = st.floats(1e-300, 0.999)
ORDERS = np.concatenate([np.arange(1.1, 11, 0.1), np.arange(11, 200)])


@pytest.mark.parametrize("mu", np.logspace(-8, 2, 11))
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-50, 1e-290])
def test_gdp_epsilon_and_mu_against_sixty_digits(mu: float, delta: float) -> None:
    with mpmath.workdps(60):
        epsilon = c.gdp_epsilon(mu, delta)
        assert exact_delta(mu, epsilon) <= delta  # a bound: true in exact arithmetic
        assert epsilon == 0.0 or exact_delta(mu, epsilon * (1 - 1e-9)) > delta  # and tight: the margin of 1e-11 in delta
        if epsilon > 0:
            largest = c.gdp_mu(epsilon, delta)
            assert exact_delta(largest, epsilon) <= delta
            assert exact_delta(largest * (1 + 1e-9), epsilon) > delta


@given(MUS, DELTAS)
def test_gdp_round_trips_stay_on_the_safe_side(mu: float, delta: float) -> None:
    epsilon = c.gdp_epsilon(mu, delta)
    assert c.gdp_delta(mu, epsilon) <= delta
    back = c.gdp_mu(epsilon, delta)
    assert c.gdp_delta(back, epsilon) <= delta
    # epsilon was rounded up, so mu may come back larger by its resolution, never smaller by more than it.
    assert back >= mu * (1 - 1e-9)


def test_gdp_edges() -> None:
    assert c.gdp_epsilon(0.0, 0.0) == c.gdp_epsilon(0.0, 1e-5) == 0.0
    assert c.gdp_epsilon(math.inf, 0.5) == math.inf
    assert c.gdp_epsilon(1e-9, 0.0) == math.inf
    assert c.gdp_epsilon(1e-9, 0.5) == 0.0
    assert c.gdp_epsilon(1e200, 1e-5) == math.inf  # overflows
    assert c.gdp_delta(0.0, 0.0) == 0.0
    assert c.gdp_delta(math.inf, 5.0) == c.gdp_delta(math.inf, math.inf) == 1.0
    assert c.gdp_delta(1.0, math.inf) == 0.0
    assert c.gdp_delta(0.1, 1e5) > 0.0  # underflows, and is still not zero
    assert c.gdp_mu(1.0, 0.0) == 0.0
    assert c.gdp_mu(0.0, 1e-12) == pytest.approx(1e-12 * math.sqrt(2 * math.pi), rel=1e-9)  # delta(0) = 2 Phi(mu/2) - 1


@given(RHOS, st.floats(1e-200, 0.99))
@example(0.0002917955522954288, 0.0078125)  # log delta + log alpha cancel: their rounding errors do not
def test_renyi_conversion_brackets(rho: float, delta: float) -> None:
    curve = (ORDERS, rho * ORDERS)
    tight, order = c.rdp_epsilon(*curve, delta)
    with mpmath.workdps(40):
        a, d = mpmath.mpf(order), mpmath.mpf(delta)
        exact = mpmath.mpf(float(rho * order)) + mpmath.log((a - 1) / a) - (mpmath.log(d) + mpmath.log(a)) / (a - 1)
        assert tight >= max(exact, 0)  # Canonne, Kamath, Steinke 2020, Proposition 12, at the order it chose
        assert tight <= max(exact, 0) + mpmath.mpf("1e-12") * (1 + abs(exact) + abs(mpmath.log(d) / (a - 1)))  # rounding of its terms
    assert tight <= mironov_epsilon(*curve, delta) * (1 + 1e-12)
    # A real order is never worse than a listed one, and the simple form is the conversion at one order with terms left out.
    assert c.zcdp_epsilon(rho, delta) <= tight * (1 + 1e-9) + 1e-12
    assert c.zcdp_epsilon(rho, delta) <= c.zcdp_epsilon_simple(rho, delta)


@given(RHOS, st.floats(1e-200, 0.99), st.floats(1e-3, 50.0))
def test_zcdp_is_between_gdp_and_the_listed_orders(rho: float, delta: float, level: float) -> None:
    """mu-GDP implies (mu^2/2)-zCDP, so a zCDP epsilon below the exact Gaussian one would be false."""
    epsilon, mu = c.zcdp_epsilon(rho, delta), math.sqrt(2 * rho)
    assert c.gdp_epsilon(mu, delta) <= epsilon * (1 + 1e-9) + 1e-12
    if epsilon > 0:
        # log delta moves by (order - 1) times the rounding of epsilon.
        assert math.log(c.zcdp_delta(rho, epsilon)) == pytest.approx(math.log(delta), abs=1e-6)
    assert c.gdp_delta(mu, level) <= c.zcdp_delta(rho, level) * (1 + 1e-9)
    assert c.zcdp_delta(rho, level) <= c.rdp_delta(ORDERS, rho * ORDERS, level) * (1 + 1e-9)


@given(st.floats(1e-6, 100.0), DELTAS)
def test_rho_simple_is_the_largest_whose_epsilon_fits(epsilon: float, delta: float) -> None:
    rho, log_inverse = c.zcdp_rho_simple(epsilon, delta), -math.log(delta)
    with mpmath.workdps(40):

        def exact(r: float) -> Exact:
            return mpmath.mpf(r) + 2 * mpmath.sqrt(mpmath.mpf(r) * mpmath.log(1 / mpmath.mpf(delta)))

        assert exact(rho) <= epsilon
        assert exact(rho * (1 + 1e-12)) > epsilon * (1 - 1e-13 * (1 + 1 / log_inverse))  # the rounding of log delta near delta = 1


def test_renyi_values_against_the_formula() -> None:
    # One order, by hand: 1 + log(1/2) - (log(1e-5) + log 2) / 1 at alpha = 2.
    expected = 1 + math.log(0.5) - math.log(2e-5)
    assert c.rdp_epsilon([2.0], [1.0], 1e-5) == (pytest.approx(expected, rel=1e-13), 2.0)  # rounding of three terms
    assert c.rdp_delta([2.0], [1.0], expected) == pytest.approx(1e-5, rel=1e-12)
    assert c.rdp_delta([2.0], [1.0], expected) >= 1e-5 * (1 - 1e-15)


def test_renyi_and_zcdp_edges() -> None:
    assert c.rdp_epsilon([2, 3], [math.inf, math.inf], 1e-5)[0] == math.inf
    assert c.rdp_epsilon([2, 3], [math.inf, 1.0], 1e-5)[1] == 3.0
    assert c.rdp_epsilon([2], [0.0], 0.0) == (0.0, 2.0)
    assert c.rdp_epsilon([2], [1e-9], 0.0)[0] == math.inf
    assert c.rdp_epsilon([2], [1e-9], 0.9)[0] == 0.0  # never negative
    assert c.rdp_delta([2], [0.0], 0.0) == 0.0
    assert c.rdp_delta([2], [math.inf], 3.0) == c.rdp_delta([2], [math.inf], math.inf) == 1.0
    assert c.rdp_delta([2], [1.0], math.inf) == 0.0
    assert c.zcdp_epsilon(0.0, 0.0) == c.zcdp_epsilon_simple(0.0, 0.5) == c.zcdp_delta(0.0, 0.0) == 0.0
    assert c.zcdp_epsilon(1.0, 0.0) == c.zcdp_epsilon(math.inf, 0.5) == c.zcdp_epsilon_simple(1.0, 0.0) == math.inf
    assert c.zcdp_delta(math.inf, 1.0) == 1.0
    assert c.zcdp_delta(1.0, math.inf) == 0.0
    assert c.zcdp_rho_simple(3.0, 0.0) == c.zcdp_rho_simple(0.0, 0.5) == 0.0


def test_profile_epsilon_returns_a_point_it_has_seen_to_hold() -> None:
    asked: list[float] = []

    def steps(epsilon: float) -> float:
        asked.append(epsilon)
        return 0.5 if epsilon < math.pi else 1e-9

    answer = c.profile_epsilon(steps, 1e-5)
    assert answer in asked
    assert math.pi <= answer <= math.pi * (1 + 1e-11)  # the resolution, 1e-13 of the bracket's upper end of 8
    assert c.profile_epsilon(lambda _: 0.25, 0.2) == math.inf
    assert c.profile_epsilon(lambda _: 0.25, 0.25) == 0.0
