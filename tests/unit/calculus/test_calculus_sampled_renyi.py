"""Renyi values of one sampled Gaussian step against dp_accounting, 40 digits of mpmath, and closed forms."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from exact_numbers import Exact
from how_many import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lethe.calculus.sampled.renyi import ORDERS, Design, Relation, poisson_renyi, renyi_values

NOISE = np.array([0.3, 0.5, 1.0, 3.0, 10.0, 100.0])


def exact_log_moment(q: float, z: float, order: float) -> Exact:
    """log A by adaptive quadrature of 30 digits, its integrand written without cancellation."""
    with mpmath.workdps(30):
        probability, noise, alpha = mpmath.mpf(q), mpmath.mpf(z), mpmath.mpf(order)

        def integrand(u: Exact) -> Exact:
            excess = probability * mpmath.expm1(u / noise - 1 / (2 * noise**2))
            return mpmath.npdf(u) * ((1 + excess) ** alpha - 1 - alpha * excess)

        whole = int(order)
        points = sorted({-15 - 1 / z, -5.0, 0.0, 0.5 / z, 0.5 / z + 1, *(k / z for k in range(1, whole + 2)), (whole + 1) / z + 15})
        return mpmath.log1p(mpmath.quad(integrand, [mpmath.mpf(point) for point in points]))


@pytest.mark.parametrize("q", [1e-6, 1e-3, 0.01, 0.1, 0.5, 0.9])
def test_whole_orders_equal_dp_accounting(q: float) -> None:
    orders = (2, 3, 4, 8, 17, 32, 64, 128, 300, 1024)
    values = poisson_renyi(q, NOISE, orders)
    for i, z in enumerate(NOISE):
        for j, order in enumerate(orders):
            theirs = rdp_privacy_accountant._compute_log_a_int(q, float(z), order)
            # Their logarithm of a number near 1 is rounded at 1e-12: log-gamma of 1024 is 6000.
            assert values[i, j] * (order - 1) == pytest.approx(theirs, rel=1e-6, abs=2e-12)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 3, 5, 64, 1024])
@pytest.mark.parametrize(("q", "z"), [(1e-12, 0.3), (1e-6, 100.0), (1e-6, 1.0), (0.01, 1e4), (0.3, 0.7), (0.01, 7.0), (0.999, 2.0)])
def test_whole_orders_are_never_below_fifty_digits(q: float, z: float, order: int) -> None:
    with mpmath.workdps(50):
        half, rest = mpmath.mpf(1) / (2 * mpmath.mpf(z) ** 2), 1 - mpmath.mpf(q)
        terms = (
            mpmath.binomial(order, k) * mpmath.mpf(q) ** k * rest ** (order - k) * mpmath.expm1(k * (k - 1) * half)
            for k in range(2, order + 1)
        )
        exact = mpmath.log1p(mpmath.fsum(terms)) / (order - 1)
    value = poisson_renyi(q, [z], [order])[0, 0]
    assert exact <= value <= exact * (1 + 1e-10)


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "z", "order"),
    [
        (1e-12, 0.2, 1.9), (1e-6, 0.3, 1.1), (1e-6, 100.0, 1.1), (1e-3, 1.0, 1.001), (0.01, 1.0, 1.5),
        (0.01, 1.0, 10.9), (0.1, 0.5, 3.3), (0.3, 3.0, 40.25), (0.9, 0.3, 5.7), (0.9, 1e5, 2.5), (1 - 1e-9, 2.0, 1.7),
    ],
)  # fmt: skip
def test_fractional_orders_are_just_above_thirty_digits(q: float, z: float, order: float) -> None:
    exact = exact_log_moment(q, z, order) / (mpmath.mpf(order) - 1)
    value = poisson_renyi(q, [z], [order])[0, 0]
    assert exact <= value <= exact * (1 + 3e-11 + 5e-12 / (order - 1))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.floats(-27.0, -1e-9), st.floats(-1.8, 12.0), st.sampled_from([2, 3, 6, 10]))
def test_quadrature_meets_the_binomial_sum_next_to_whole_orders(log_q: float, log_z: float, order: int) -> None:
    q, z = math.exp(log_q), math.exp(log_z)
    # (alpha - 1) D(alpha) is convex: a fractional order is below the chord of its neighbours and above the lines through them.
    step = 1e-5
    low, whole, high = (poisson_renyi(q, [z], [alpha])[0, 0] * (alpha - 1) for alpha in (order - step, float(order), order + step))
    assert whole == pytest.approx((low + high) / 2, rel=1e-6)
    assert whole <= (low + high) / 2 * (1 + 1e-11)


def test_fractional_orders_are_not_above_dp_accounting() -> None:
    orders = (1.1, 1.7, 2.5, 4.1, 9.9)
    for q, z in ((0.01, 1.0), (0.1, 2.0), (0.3, 0.7)):
        values = poisson_renyi(q, [z], orders)[0]
        theirs = np.array([rdp_privacy_accountant._compute_log_a_frac(q, z, order) / (order - 1) for order in orders])
        # Their series takes absolute values, so it is above: by 1e-8 at the order 9.9 for q = .01, z = 1, by half at 1.1 for q = .1, z = 2.
        assert np.all(values <= theirs * (1 + 1e-9) + 1e-12)
        assert np.all(values[2:] >= theirs[2:] * 0.99)


def test_chords_bound_what_quadrature_cannot_reach() -> None:
    # At z = .1 exponentials of order 11 overflow; the value at 2.5 alone can be had with room for it.
    lone = poisson_renyi(0.01, [0.1], [2.5])[0, 0]
    chord = renyi_values(0.01, [0.1], "zero_out", "poisson")[0, ORDERS.index(2.5)]
    assert lone <= chord < math.inf
    assert poisson_renyi(0.01, [1.0], [100.5])[0, 0] >= poisson_renyi(0.01, [1.0], [100.0])[0, 0]


@pytest.mark.parametrize("design", ["poisson", "without_replacement"])
@pytest.mark.parametrize(("relation", "distance"), [("replace_one", 2.0), ("zero_out", 1.0)])
def test_full_batches_are_gaussians_at_the_distance_of_the_relation(relation: Relation, distance: float, design: Design) -> None:
    exact = np.array(ORDERS) * distance**2 / (2 * 1.7**2)
    value = renyi_values(1.0, [1.7], relation, design)[0]
    assert np.all((value >= exact) & (value <= exact * (1 + 1e-14)))
    # Nearly full batches are nearly that, and never above it.
    nearly = renyi_values(1 - 1e-13, [1.7], relation, design)[0]
    assert np.all(nearly <= value)
    low = np.array(ORDERS) <= (10.0 if (relation, design) == ("replace_one", "poisson") else np.inf)  # a ratio can be no larger than 1e13
    assert nearly[low] == pytest.approx(value[low], rel=1e-9)
    assert np.all(renyi_values(0.0, [1.7], relation, design) == 0.0)


def test_replace_one_poisson_is_no_more_than_joint_convexity() -> None:
    """The pair itself where it is computed; the joint convexity of the draw at orders that would take too many nodes."""
    value = renyi_values(0.1, [3.0], "replace_one", "poisson")[0, ORDERS.index(3.0)]
    assert value < 0.06 * math.log(0.9 + 0.1 * math.exp(3 * 2 / 2 * (2 / 3) ** 2)) / 2
    far = ORDERS.index(2048.0)
    joint = (2 * 2048 * 2047 / 0.01**2 + math.log(0.1)) / 2047
    assert renyi_values(0.1, [0.01], "replace_one", "poisson")[0, far] == pytest.approx(joint, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@example(log_q=-27.5625, log_z=0.0, relation="replace_one", design="poisson")
@given(
    log_q=st.floats(-30.0, -1e-6),
    log_z=st.floats(-7.0, 14.0),
    relation=st.sampled_from(["replace_one", "zero_out"]),
    design=st.sampled_from(["poisson", "without_replacement"]),
)
def test_values_are_numbers_and_monotone(log_q: float, log_z: float, relation: Relation, design: Design) -> None:
    q, z = math.exp(log_q), math.exp(log_z)
    low, high = renyi_values(q, [z, 1.01 * z], relation, design)
    assert np.all(low > 0.0)
    assert not np.any(np.isnan(low))
    room = 1 + 1e-10
    assert np.all(high <= low * room)
    assert np.all(np.diff(low) >= -1e-10 * low[1:])
    unsampled = np.array(ORDERS) * (2.0 if relation == "replace_one" else 0.5) / z**2
    rarer = renyi_values(0.99 * q, [z], relation, design)[0]
    # High orders with little noise take more nodes than are spent on them, from some q on down: then convexity alone bounds them.
    assert np.all((rarer <= low * room) | (np.array(ORDERS) / z > 100.0))
    assert np.all(low <= unsampled * (1 + 1e-13))


@pytest.mark.slow
def test_extremes_and_order_of_levels() -> None:
    noise = np.array([3.0, 0.0, 1e-300, 1e-3, 1e6, 1e150, 1e300, 0.5, 3.0])
    for relation, design in (("zero_out", "poisson"), ("replace_one", "poisson"), ("replace_one", "without_replacement")):
        values = renyi_values(0.01, noise, relation, design)
        assert values.shape == (9, len(ORDERS))
        assert np.all(np.isinf(values[1]))
        assert not np.any(np.isnan(values))
        assert np.all(values > 0.0)
        assert np.array_equal(values[0], values[-1])
        assert values[7] == pytest.approx(renyi_values(0.01, [0.5], relation, design)[0], rel=1e-11)
