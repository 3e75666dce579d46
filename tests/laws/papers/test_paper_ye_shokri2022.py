"""Ye, Shokri 2022 (arXiv:2203.05363): batches fixed by one shuffle, and in a fixed order; strongly convex losses."""

import math

import numpy as np
import pytest
from helpers import make_run
from how_many import examples
from oracles import brute_force_shift

import lethe
from lethe.theorems.literature.ye_shokri_2022 import YeShokri2022, YeShokri2022FixedOrder, earlier_passes, position_rhos, single_touch
from lethe.theorems.shuffled.positions import position_mus


def _run(batches: int, passes: int, contraction: float, design: str = "shuffled_once", ratio: float = 0.4) -> lethe.Run:
    """A run whose step contracts by 1 - contraction and whose touch is s / tau = ratio."""
    return make_run(
        records=10 * batches,
        batches={"design": design, "size": 10},
        passes=passes,
        step_size=1.0,
        noise_multiplier=2 / ratio,
        loss={"kind": "strongly_convex", "strong_convexity": contraction, "smoothness": contraction, "gradient_bound": 1.0},
    )


def _as_printed(alpha: float, batches: int, passes: int, c: float, ratio: float) -> float:
    """Term by term, without care for rounding."""

    def e(j: int) -> float:
        return alpha * ratio**2 / 2 * c ** (2 * (j - 1)) * (1 - c**2) / (1 - c ** (2 * j))

    half = batches // 2
    between = 2 * (batches - half)
    earlier = e(half) * (1 - c ** (between * (passes - 1))) / (1 - c**between)
    mean = sum(math.exp((alpha - 1) * e(batches - j0)) for j0 in range(batches)) / batches
    return earlier + math.log(mean) / (alpha - 1)


CASES = [(batches, passes, c) for batches in (2, 3, 4, 7, 10) for passes in (1, 2, 5, 40) for c in (0.3, 0.9, 0.99)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("batches", "passes", "c"), CASES)
def test_the_formula_of_the_paper(batches: int, passes: int, c: float) -> None:
    guarantee = YeShokri2022().bound(_run(batches, passes, 1 - c)).guarantee
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    for order, value in list(zip(guarantee.orders, guarantee.values, strict=True))[::20]:
        if 1.1 < order < 100:  # nearer to 1 the direct logarithm cancels; beyond, exp overflows
            assert value == pytest.approx(_as_printed(order, batches, passes, c, 0.4), rel=1e-9)


# sqrt(2 rho) of the "RDP" columns of Bok et al. 2024 (arXiv:2403.00278), Table 1, as its script prints them: L / (b sigma) = 2/3, l = 40.
@pytest.mark.parametrize(
    ("c", "passes", "expected"),
    [(0.9999, 50, 1.19723), (0.9998, 50, 1.15992), (0.9999, 100, 1.50374), (0.9998, 100, 1.40154), (0.9999, 200, 1.86922)],
)
def test_the_fixed_order_is_the_rdp_column_of_bok_et_al(c: float, passes: int, expected: float) -> None:
    guarantee = YeShokri2022FixedOrder().bound(_run(40, passes, 1 - c, "cyclic", ratio=2 / 3)).guarantee
    assert isinstance(guarantee, lethe.guarantees.ZCDP)
    assert math.sqrt(2 * guarantee.rho) == pytest.approx(expected, rel=5e-6)  # six digits are printed


def test_no_position_is_ever_below_its_optimal_shift() -> None:
    """Odd and even numbers of batches; with one pass the two are the same number."""
    generator = np.random.default_rng(2)
    for _ in range(examples(250)):
        batches, passes = int(generator.integers(2, 12)), int(generator.integers(1, 20))
        contraction = 10 ** generator.uniform(-5, -0.02)
        run = _run(batches, passes, contraction)
        lipschitz = np.full(run.total_steps, 1 - contraction)
        mus = position_mus(lipschitz, run.sensitivities, run.noise_stds, batches)
        assert np.all(position_rhos(run) >= mus**2 / 2 * (1 - 1e-9))  # the rounding of both
        if passes == 1:
            assert position_rhos(run) == pytest.approx(mus**2 / 2, rel=1e-9)


@pytest.mark.parametrize(("batches", "passes", "c"), [(2, 3, 0.5), (3, 3, 0.5), (3, 4, 0.95), (5, 2, 0.8)])
def test_no_position_is_ever_below_a_brute_force_optimum(batches: int, passes: int, c: float) -> None:
    run = _run(batches, passes, 1 - c, ratio=1.0)
    steps = run.total_steps
    for position, rho in enumerate(position_rhos(run)):
        touches = np.where(np.arange(steps) % batches == position, 1.0, 0.0)
        assert rho >= brute_force_shift(np.full(steps, c), touches, np.ones(steps)) ** 2 / 2 * (1 - 1e-6)  # least squares


@pytest.mark.parametrize("batches", [2, 3, 8, 9])
@pytest.mark.parametrize("passes", [1, 2, 30])
def test_never_below_the_mixture_over_positions(batches: int, passes: int) -> None:
    """Where the output betrays the slot, which has one law on both data sets, the divergence is log E exp((alpha-1) alpha mu_j^2 / 2)."""
    run = _run(batches, passes, 0.1, ratio=1.5)
    mus = position_mus(np.full(run.total_steps, 0.9), run.sensitivities, run.noise_stds, batches)
    guarantee = YeShokri2022().bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    for order, value in zip(guarantee.orders, guarantee.values, strict=True):
        if 1.01 < order < 60:
            exponents = (order - 1) * order * mus**2 / 2
            exact = (exponents.max() + math.log(np.mean(np.exp(exponents - exponents.max())))) / (order - 1)
            assert value >= exact * (1 - 1e-9)
            if passes == 1:
                assert value == pytest.approx(exact, rel=1e-9)
    for epsilon in (0.5, 2.0, 5.0):
        assert guarantee.delta(epsilon) >= np.mean([lethe.guarantees.GDP(mu).delta(epsilon) for mu in mus]) * (1 - 1e-9)


def test_many_batches_are_grouped_upward() -> None:
    run = _run(6000, 3, 1e-5)
    guarantee = YeShokri2022().bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    for index in (150, 300, 400):
        order, value = guarantee.orders[index], guarantee.values[index]
        touches = 0.08 * order * (order - 1) * single_touch(1e-5, np.arange(1, 6001))
        exact = 0.08 * order * earlier_passes(1e-5, 6000, 3) + (touches.max() + math.log(np.mean(np.exp(touches - touches.max())))) / (
            order - 1
        )
        assert exact * (1 - 1e-9) <= value <= exact * 1.001
