"""Composition: exact for equal kinds, sound for mixed ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.composition.composition import compose, compose_gdp, compose_rdp, compose_zcdp
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, RDPCurve
from lethe.errors import InputError

ORDERS = (1.5, 2.0, 8.0, 32.0)


def test_printed_values() -> None:
    # theory.md section 3: composition of 50, 100, 200 touches of s/tau = 2/3 at delta = 1e-5, four printed digits.
    for touches, epsilon in ((50, 30.51), (100, 49.88), (200, 83.83)):
        assert GDP(compose_gdp([2 / 3] * touches)).epsilon(1e-5) == pytest.approx(epsilon, abs=0.0051)
    assert compose_gdp([3.0, 4.0]) == pytest.approx(5.0, rel=2e-15)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_gdp_sum_is_the_root_of_squares_from_above(mus: list[float]) -> None:
    exact = math.hypot(*mus)  # neither overflows nor underflows on the way
    assert exact * (1 - 4e-16) <= compose_gdp(mus) <= exact * (1 + 3e-15) + 5e-324 * len(mus)  # rounded up by 1e-15


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_gdp_sum_neither_overflows_nor_underflows(scale: float) -> None:
    assert compose_gdp([3 * scale, 4 * scale]) == pytest.approx(5 * scale, rel=3e-15)  # rounding up by 1e-15


def test_sums_at_their_edges() -> None:
    assert compose_gdp([0.0, 0.7, 0.0]) == 0.7
    assert compose_gdp([0.0]) == compose_zcdp([0.0, 0.0]) == 0.0
    assert compose_gdp([1.0, math.inf]) == compose_zcdp([1.0, math.inf]) == math.inf
    assert compose_zcdp([1e308, 1e308]) == math.inf
    assert compose_zcdp([0.1] * 10) >= 1.0


def test_curves_add_order_by_order() -> None:
    total = compose_rdp([RDPCurve(ORDERS, (1.0, 2.0, 3.0, math.inf)), RDPCurve(ORDERS, (0.5, 0.0, 1.0, 1.0))])
    assert total.orders == ORDERS
    assert total.values == (pytest.approx(1.5, rel=2e-15), 2.0, pytest.approx(4.0, rel=2e-15), math.inf)  # rounded up by 1e-15
    with pytest.raises(InputError, match="different orders"):
        compose_rdp([RDPCurve((2.0,), (1.0,)), RDPCurve((3.0,), (1.0,))])
    with pytest.raises(InputError):
        compose_rdp([])


def test_equal_kinds_stay_what_they_are() -> None:
    assert compose([GDP(3.0), GDP(4.0)]) == GDP(compose_gdp([3.0, 4.0]))
    assert compose([ZCDP(1.0), ZCDP(2.0)]) == ZCDP(compose_zcdp([1.0, 2.0]))
    curve = RDPCurve(ORDERS, (1.0, 2.0, 3.0, 4.0))
    assert compose([curve, curve]) == compose_rdp([curve, curve])


def test_mixed_kinds_go_through_zcdp_and_renyi() -> None:
    mixed = compose([GDP(1.0), ZCDP(0.25)])
    assert isinstance(mixed, ZCDP)
    assert mixed.rho == pytest.approx(0.75, rel=1e-14)  # 1/2 + 1/4, rounded up
    assert mixed.rho >= 0.75
    curve = compose([GDP(1.0), ZCDP(0.25), RDPCurve(ORDERS, (1.0, 1.0, 1.0, 1.0))])
    assert isinstance(curve, RDPCurve)
    assert np.all(np.array(curve.values) >= 1.0 + 0.75 * np.array(ORDERS))
    np.testing.assert_allclose(curve.values, 1.0 + 0.75 * np.array(ORDERS), rtol=1e-14)


@pytest.mark.slow
@given(st.lists(st.floats(0.01, 3.0), min_size=2, max_size=5))
def test_mixed_is_never_below_the_exact_gaussian(mus: list[float]) -> None:
    exact = compose([GDP(mu) for mu in mus]).epsilon(1e-5)
    assert compose([GDP(mus[0]), *(ZCDP(mu * mu / 2) for mu in mus[1:])]).epsilon(1e-5) >= exact * (1 - 1e-12)


@pytest.mark.parametrize("bad", [[], [ApproxDP(1.0, 1e-5)], [GDP(1.0), None]])
def test_other_kinds_are_refused(bad: list[object]) -> None:
    with pytest.raises(InputError):
        compose(bad)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bad", [[], [-1.0], [math.nan], [[1.0]], "1", None])
def test_bad_lists_are_refused(bad: object) -> None:
    for add in (compose_gdp, compose_zcdp):
        with pytest.raises(InputError):
            add(bad)  # pyright: ignore[reportArgumentType]
