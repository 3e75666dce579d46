"""Targets of any kind: what it means to meet one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.composition import concentrated_rho, gaussian_mu, overshoot
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, NotPrivate, RDPCurve, Tightest, WithSlack
from lethe.calculus.sampled.gaussian import SampledGaussian, sampled_gaussian

SAMPLED = sampled_gaussian(0.05, np.array([2.0, 3.0]), "zero_out", "poisson")
GUARANTEES = [GDP(0.7), ZCDP(0.3), GDPMixture((0.2, 1.0), (0.5, 0.5)), Tightest((GDP(2.0), ZCDP(0.1))), WithSlack(GDP(0.5), 1e-9), SAMPLED]


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", GUARANTEES)
@given(st.floats(0.1, 3), st.floats(1e-8, 0.1))
def test_a_point_is_met_where_the_profile_says_so(guarantee, epsilon, delta) -> None:
    met = overshoot(guarantee, ApproxDP(epsilon, delta)) <= 1
    assert met == (guarantee.epsilon(delta) <= epsilon)


@pytest.mark.slow
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
    assert gaussian_mu(SAMPLED) == math.inf


def test_a_sampled_gaussian_meets_a_renyi_curve_and_no_zcdp() -> None:
    """Its divergence at order a grows like a/(2 z^2) in the end: amplification holds at bounded orders only."""
    assert isinstance(SAMPLED, SampledGaussian)
    curve = SAMPLED.renyi_curve()
    assert overshoot(SAMPLED, RDPCurve(curve.orders, curve.values)) == pytest.approx(1.0, rel=1e-9)
    assert overshoot(SAMPLED, ZCDP(0.5)) == math.inf
