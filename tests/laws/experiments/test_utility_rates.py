"""Rates of Hong et al. 2022 and Liang et al. 2025: every row at one point by hand, the mark that all numbers carry; and clipping twice."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lethe.theorems.lipschitz import clipped_step
from lethe_experiments.liang.double_clipping import clip_mean
from lethe_experiments.rates.hong_orders import dynamic_order, momentum_dynamic_order, momentum_uniform_order, uniform_order
from lethe_experiments.rates.liang_rates import (
    ClippedDescent,
    gradient_norm_rate,
    private_gradient_norm_rate,
    private_root_gap_rate,
    root_gap_rate,
)
from lethe_experiments.rates.tables import TABLE_1, TABLE_2, Row, Setting, row
from lethe_experiments.standing import ORDER

# D = 16, N = 100, R = .16: D / (N^2 R) = .01, T = ln 100. eps^2 / ln(1/delta) = .25 / 10 = .025. ln N = ln 100 = L.
SETTING = Setting(dimension=16, records=100, budget=0.16, epsilon=0.5, delta=math.exp(-10.0), failure=0.1)
LOG, TEN = math.log(100.0), math.log(10.0)

TABLE_1_VALUES = [
    ("gd-adv", (LOG + 10) / 0.025, 16 * LOG**3 / (100 * 0.025)),
    ("gd-ma", LOG / 0.025, 16 * LOG**2 / (1e4 * 0.025)),
    ("gd-ma-adjusted", LOG / 0.025, min(4 / 2.5, 16 * LOG / (1e4 * 0.025**2))),
    ("gd-adv-growing", 1e4 * (LOG + 10) / 0.025, 256 * TEN**2 / (0.025 * 10)),  # n = N, c = 1/2
    ("adam-ma", LOG / 0.025, 4 * math.log(100 * 16 * 0.5 / 0.9) / 2.5),
    ("gd-non-private", 0.0, 0.01),
    ("gd-static", LOG / 0.16, 0.01 * LOG),
    ("gd-dynamic", 0.9 ** ((3 - LOG) / 2) / 0.16, 0.01),
    ("momentum-static", LOG / 0.16, 0.01 * (1 + LOG)),
    ("momentum-dynamic", (0.9 ** (LOG + 3) + 0.9 ** ((LOG - 3) / 2)) / 0.16, 0.01 * 1.01),
]
INSIDE = 16 * TEN / 16.0  # D ln(1/p) / (N R)
TABLE_2_VALUES = [
    ("true-gd-adv", 4 * LOG**2 * TEN / (0.1 * 100 * 0.025), 1e4),
    ("true-svrg-ma", 16 * LOG / (1e4 * 0.025), math.log(1e4 * 0.025 / 16)),
    ("true-snowball", (0.1 + 2 * 4 / (0.4 * 100)) * LOG, 1e4 / (16 * 16 / 0.16**2 + 400)),
    ("true-sgd-ma", max(4 / (100 * math.sqrt(0.025)), 0.1), min(12.5, 1e4 * 0.025 / 512)),
    ("likely-gd-static", (math.sqrt(INSIDE * LOG) + 40) / 100, LOG),
    ("likely-gd-dynamic", (math.sqrt(INSIDE) + 40) / 100, LOG),
    ("likely-momentum-static", (math.sqrt(INSIDE * (1 + LOG)) + 40) / 100, LOG),
    ("likely-momentum-dynamic", (math.sqrt(INSIDE * 1.01) + 40) / 100, LOG),
    ("stable-gd-non-private", 0.01, LOG),
    ("stable-gd-static", 0.01 * LOG, LOG),
    ("stable-gd-dynamic", 0.01, LOG),
    ("stable-momentum-static", 0.01 * (1 + LOG), LOG),
    ("stable-momentum-dynamic", 0.01 * 1.01, LOG),
]


def test_the_values_cover_both_tables_and_the_indicator_of_momentum_compares_the_steps_with_the_turn() -> None:
    """T = ln 100 = 4.6."""
    assert [key for key, *_ in (*TABLE_1_VALUES, *TABLE_2_VALUES)] == [entry.key for entry in (*TABLE_1, *TABLE_2)]
    late, early = replace(SETTING, turn=2), replace(SETTING, turn=5)
    assert row("momentum-static").bound(late).value == pytest.approx(0.01 * (1 + LOG))
    assert row("momentum-static").bound(early).value == pytest.approx(0.01)
    assert row("momentum-dynamic").bound(early).value == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("key", "variance", "bound", "steps"),
    [*((*entry, LOG) for entry in TABLE_1_VALUES), *((key, None, bound, steps) for key, bound, steps in TABLE_2_VALUES)],
)
def test_the_tables_at_one_point(key: str, variance: float | None, bound: float, steps: float) -> None:
    assert row(key).bound(SETTING).value == pytest.approx(bound, rel=1e-12)
    assert row(key).steps(SETTING).value == pytest.approx(steps, rel=1e-12)
    if variance is not None:
        assert row(key).variance(SETTING, 3).value == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("entry", [*TABLE_1, *TABLE_2], ids=lambda entry: entry.key)
def test_every_number_carries_the_mark_and_is_no_float(entry: Row) -> None:
    claims = [entry.bound(SETTING), entry.steps(SETTING)]
    claims += [entry.variance(SETTING, 2.0)] if entry.variance_formula else []
    for claim in claims:
        assert claim.standing is ORDER
        assert not claim.standing.usable
        assert str(claim).endswith("(order, constant 1, not a guarantee)")
        assert claim.formula
        with pytest.raises(TypeError):
            float(claim)  # pyright: ignore[reportArgumentType]


def test_the_orders_in_kappa_and_alpha_at_one_point() -> None:
    """kappa = 4, alpha = 1/4: kappa alpha = 1. eta0 = 1, gamma = 1/2, so ln 2 / ln 2 = 1 step, and two for the dynamic schedule."""
    assert uniform_order(4.0, 0.25).value == pytest.approx(2 * math.log(2))
    assert dynamic_order(4.0, 0.25).value == pytest.approx(0.8)
    common = {"relative_step": 1.0, "gamma": 0.5}
    assert momentum_uniform_order(4.0, 0.25, **common, turn=2).value == pytest.approx(2.0)
    assert momentum_uniform_order(4.0, 0.05, **common, turn=2).value == pytest.approx(16 / 24 * 0.5 * math.log(6))
    assert momentum_dynamic_order(4.0, 0.25, **common, turn=3).value == pytest.approx(0.25)
    assert momentum_dynamic_order(4.0, 0.25, **common, turn=1).value == pytest.approx(0.5)
    for claim in (uniform_order(4.0, 0.25), dynamic_order(4.0, 0.25), momentum_dynamic_order(4.0, 0.25, **common, turn=1)):
        assert claim.standing is ORDER


RUN = ClippedDescent(dimension=4, records=1000, batch_size=100, steps=400, step_size=0.01, clip_norm=2.0, smoothness=4.0, gradient_std=3.0)


def test_lemma_3_7_and_theorem_3_9_at_one_point() -> None:
    """eta T = 4, eta L = .04, d L eta = .16, sigma = .5; sqrt L = 2, D = 3, mu = 1: L^(3/4) = 2 sqrt 2."""
    expected = 1 / 8 + 1 / 2 + min(3.0, 4.5) + 0.2 * 3 / 10 + 0.16 / 2 * 0.25 + 0.4 * 0.5
    assert gradient_norm_rate(RUN, noise_std=0.5).value == pytest.approx(expected, rel=1e-12)
    expected = 2 * 9 / 8 + 3 / 2 + min(2 * math.sqrt(2) * 3, math.sqrt(27 / 2)) + 0.1 * 3 / 10 + 0.04 * 2 / 2 * 0.25 + 0.2 * 0.5
    assert root_gap_rate(RUN, noise_std=0.5, diameter=3.0, strong_convexity=1.0).value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("restricted", "divisor"), [(False, 1000 * 100), (True, 1000**2)])
def test_corollaries_3_11_and_3_12_insert_the_noise(restricted: bool, divisor: int) -> None:
    """alpha = 8, eps = 2. The last two terms as printed, with the noise written out."""
    free = gradient_norm_rate(RUN, noise_std=0.0).value
    printed = 4 * 8 * 2.0 * 4.0 * 0.01 * 400 / (2 * divisor) + math.sqrt(4 * 8 * 4.0 * 0.01 * 400) * 2.0 / math.sqrt(2 * divisor)
    claim = private_gradient_norm_rate(RUN, order_alpha=8.0, epsilon=2.0, restricted=restricted)
    assert claim.value == pytest.approx(free + printed, rel=1e-12)
    free = root_gap_rate(RUN, noise_std=0.0, diameter=3.0, strong_convexity=1.0).value
    noise = 1.04**2 * 9 / 0.01**2 + 4 / divisor
    printed = 4 * 8 * 0.01 * 2 / (2 * 2) * noise + math.sqrt(4 * 8 * 0.01 / 2 * noise)
    claim = private_root_gap_rate(RUN, order_alpha=8.0, epsilon=2.0, restricted=restricted, diameter=3.0, strong_convexity=1.0)
    assert claim.value == pytest.approx(free + printed, rel=1e-12)
    assert claim.standing is ORDER
    assert "not a guarantee" in str(claim)


def test_a_clipped_mean_moves_no_more_than_stated() -> None:
    random = np.random.default_rng(5)
    for size in (0.1, 1.0, 10.0):
        first, second = size * random.standard_normal((2, 6))
        clipped = [[torch.tensor(vector[:2]), torch.tensor(vector[2:])] for vector in (first, second)]
        for parts in clipped:
            clip_mean(parts, 0.8)
        one, two = (torch.cat(parts).numpy() for parts in clipped)
        assert np.linalg.norm(one) <= 0.8
        assert np.linalg.norm(one - two) <= min(np.linalg.norm(first - second), 1.6) * (1 + 1e-12)


def test_a_twice_clipped_step_can_leave_the_constant_of_a_once_clipped_one() -> None:
    """Why clip_mean is certified by composition only: two projections before the Hessians beat the constant of one."""
    worst, smoothness, step_size = 0.0, 1.0, 1.5
    units = [np.array([np.cos(angle), np.sin(angle)]) for angle in np.linspace(0, np.pi, 31)]
    for first, second in itertools.product(units, units):
        step = np.eye(2) - step_size * np.outer(first, first) @ np.outer(second, second) @ np.diag([smoothness, 0.0])
        worst = max(worst, float(np.linalg.norm(step, 2)))
    assert worst > clipped_step(step_size, 0.0, smoothness) * 1.01
