"""Mironov, Talwar, Zhang 2019 (arXiv:1908.10530): the closed form, where it holds, and how loose it is."""

import math

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.theorems.literature.mironov_2019 import Mironov2019

RUN = make_run(batches={"design": "poisson", "size": 10}, neighbours="zero_out", noise_multiplier=5.0)  # q = 0.1, 50 steps


def _curve(run: lethe.Run) -> dict[float, float]:
    guarantee = Mironov2019().bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    return dict(zip(guarantee.orders, guarantee.values, strict=True))


def _run(records: int, size: int, noise: float, steps: int = 1) -> lethe.Run:
    return make_run(
        records=records, batches={"design": "poisson", "size": size}, neighbours="zero_out", noise_multiplier=noise, steps=steps
    )


def _sampled_gaussian(q: float, z: float, order: int) -> float:
    """The binomial sum of the exact moment at a whole order, by logarithms: log sum C(a, k) (1-q)^(a-k) q^k exp((k^2 - k) / 2z^2)."""
    k = np.arange(order + 1)
    binomials = np.array([math.lgamma(order + 1) - math.lgamma(i + 1) - math.lgamma(order - i + 1) for i in k])
    logs = binomials + (order - k) * math.log1p(-q) + k * math.log(q) + (k * k - k) / (2 * z * z)
    return float(np.logaddexp.reduce(logs)) / (order - 1)


def test_the_formula_of_the_paper() -> None:
    """50 steps of 2 alpha q^2 / z^2 with q = 1/10 and z = 5, up to an order between 6 and 9."""
    curve = _curve(RUN)
    finite = {order: value for order, value in curve.items() if value < math.inf}
    assert 6 < max(finite) < 9
    for order, value in finite.items():
        assert value == pytest.approx(50 * 2 * order * 0.1**2 / 5.0**2, rel=1e-12)  # pairwise sums of 50 terms
        assert value >= 50 * 2 * order * 0.1**2 / 5.0**2 * (1 - 1e-14)


# From the two conditions, solved independently; to the digits given.
@pytest.mark.parametrize(
    ("records", "size", "noise", "largest"),
    [(100, 20, 4.0, 4.0), (100, 10, 4.0, 6.0), (100, 1, 4.0, 14.3), (1000, 1, 4.0, 26.7), (100, 1, 10.0, 50.6)],
)
def test_it_says_nothing_above_the_largest_order(records: int, size: int, noise: float, largest: float) -> None:
    curve = _curve(_run(records, size, noise))
    assert max(order for order, value in curve.items() if value < math.inf) == pytest.approx(largest, abs=0.05)
    assert all(value == math.inf for order, value in curve.items() if order > largest + 0.05)


@pytest.mark.parametrize(
    ("records", "size", "noise"), [(100, 20, 4.0), (100, 10, 4.0), (100, 1, 4.0), (1000, 1, 4.0), (100, 1, 10.0), (50, 1, 7.0)]
)
def test_never_below_the_exact_divergence_and_about_four_times_it(records: int, size: int, noise: float) -> None:
    curve = _curve(_run(records, size, noise))
    rho = next(iter(curve.values())) / next(iter(curve))
    largest = max(order for order, value in curve.items() if value < math.inf)
    for order in range(2, int(largest) + 1):
        exact = _sampled_gaussian(size / records, noise, order)
        assert 0.24 <= exact / (rho * order) <= 0.27  # the leading term is alpha q^2 / 2 z^2


def test_beyond_the_largest_order_the_formula_is_false() -> None:
    """q = 0.01, z = 4: above some order the rare draw dominates; at order 257 the exact divergence is 3.4, the formula gives 0.003."""
    assert _sampled_gaussian(0.01, 4.0, 257) > 3
    assert 2 * 257 * 0.01**2 / 4.0**2 < 0.01
    assert max(order for order, value in _curve(_run(100, 1, 4.0)).items() if value < math.inf) < 257


def test_steps_of_different_noise_compose_under_the_strictest_condition() -> None:
    run = RUN.replace(steps=3, noise_multiplier=[4.0, 5.0, 20.0])
    curve = _curve(run)
    finite = [order for order, value in curve.items() if value < math.inf]
    assert max(finite) == pytest.approx(6.0, abs=0.05)
    assert curve[finite[0]] == pytest.approx(2 * finite[0] * 0.01 * (1 / 16 + 1 / 25 + 1 / 400), rel=1e-12)


def test_a_smaller_gradient_bound_counts_as_more_noise() -> None:
    """The noise is in units of clip_norm = 2, while no gradient exceeds 1: z = 10 of what a record adds."""
    loss = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}
    assert _curve(RUN.replace(loss=loss, clip_norm=2.0)) == _curve(RUN.replace(loss=loss, noise_multiplier=10.0))
