"""The exact number of steps, against brute force; the printed ones, against the exact."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe_experiments.risk.best_steps import (
    best_steps_dynamic,
    best_steps_uniform,
    t_dyn_exact,
    t_dyn_stated,
    t_uni_exact,
    t_uni_printed,
    t_uni_stated,
)
from lethe_experiments.risk.gradient_descent import decay, erub_dyn, erub_dyn_min, erub_uni


def test_the_exact_minimisers_at_worked_points() -> None:
    assert t_uni_exact(10.0, 1e-3) == pytest.approx(21.171122, abs=5e-7)
    assert t_uni_printed(10.0, 1e-3) == pytest.approx(44.293960, abs=5e-7)
    assert t_dyn_exact(10.0, 1e-3) == pytest.approx(24.490577, abs=5e-7)
    assert t_uni_exact(2.0, 1e-4) == pytest.approx(11.755967, abs=5e-7)
    assert t_uni_exact(100.0, 1e-6) == pytest.approx(455.107441, abs=5e-7)
    assert t_dyn_exact(100.0, 1e-6) == pytest.approx(649.316177, abs=5e-7)


@pytest.mark.slow
@given(kappa=st.floats(1.0, 300.0), exponent=st.floats(-6.0, 1.0))
def test_the_whole_minimiser_is_the_one_brute_force_finds(kappa: float, exponent: float) -> None:
    alpha = 10.0**exponent
    for best, bound in ((best_steps_uniform(kappa, alpha), erub_uni), (best_steps_dynamic(kappa, alpha), erub_dyn)):
        horizon = 3 * best.steps + 40
        found = min(range(horizon), key=lambda steps, bound=bound: bound(steps, kappa, alpha))
        assert best.value == bound(best.steps, kappa, alpha) <= bound(found, kappa, alpha)
        assert best.steps == found or bound(found, kappa, alpha) == best.value


@pytest.mark.slow
@given(kappa=st.floats(1.001, 1e6), exponent=st.floats(-12.0, 2.0))
def test_the_real_minimisers_are_minima(kappa: float, exponent: float) -> None:
    alpha = 10.0**exponent
    for time, bound in ((t_uni_exact(kappa, alpha), erub_uni), (t_dyn_exact(kappa, alpha), erub_dyn)):
        least = bound(time, kappa, alpha)
        for factor in (0.9, 0.99, 1.01, 1.1):
            assert least <= bound(time * factor, kappa, alpha) * (1 + 1e-9)
    assert erub_dyn(t_dyn_exact(kappa, alpha), kappa, alpha) == pytest.approx(erub_dyn_min(kappa, alpha), rel=1e-7)


def test_at_kappa_1_it_is_one_step_or_none() -> None:
    assert best_steps_dynamic(1.0, 0.01).steps == best_steps_uniform(1.0, 0.01).steps == 1
    assert best_steps_dynamic(1.0, 0.01).value == best_steps_uniform(1.0, 0.01).value == 0.01
    assert best_steps_dynamic(1.0, 1.0).steps == best_steps_uniform(1.0, 2.0).steps == 0
    for printed in (t_uni_printed, t_uni_stated, t_dyn_stated):
        with pytest.raises(InputError, match="kappa > 1"):
            printed(1.0, 0.1)


def test_extreme_numbers() -> None:
    assert best_steps_uniform(1.0 + 2.0**-52, 1e-300).steps > 0
    tiny = best_steps_uniform(1e18, 1e-40)
    assert 0 < tiny.value < 1
    assert tiny.steps == pytest.approx(tiny.continuous, rel=1e-12)
    with pytest.raises(InputError, match="too small"):
        t_uni_exact(2.0, 5e-324)


@pytest.mark.parametrize(
    ("kappa", "alpha", "steps", "printed", "value", "printed_value"),
    [(10.0, 1e-4, 44, 66.1, 0.0533, 0.0678), (100.0, 1e-6, 455, 917, 0.0554, 0.0918), (10.0, 1e-2, 4, 23.2, 0.794, 2.29)],
)
def test_how_far_the_printed_uniform_steps_are(
    kappa: float, alpha: float, steps: int, printed: float, value: float, printed_value: float
) -> None:
    """A run takes whole steps, so the printed number is rounded up."""
    best = best_steps_uniform(kappa, alpha)
    assert best.steps == steps
    assert best.value == pytest.approx(value, rel=2e-3)
    assert t_uni_printed(kappa, alpha) == pytest.approx(printed, rel=2e-3)
    assert erub_uni(math.ceil(t_uni_printed(kappa, alpha)), kappa, alpha) == pytest.approx(printed_value, rel=2e-3)


@pytest.mark.parametrize(
    ("kappa", "alpha", "steps", "stated", "value", "stated_value"),
    [(10.0, 1e-4, 63, 139, 0.0366, 0.0379), (10.0, 1e-2, 4, 48, 0.793, 3.22), (100.0, 1e-2, 0, 139, 1.0, 100.8)],
)
def test_how_far_the_stated_dynamic_steps_are(
    kappa: float, alpha: float, steps: int, stated: int, value: float, stated_value: float
) -> None:
    best = best_steps_dynamic(kappa, alpha)
    assert best.steps == steps
    assert best.value == pytest.approx(value, rel=2e-3)
    assert t_dyn_stated(kappa, alpha) == stated
    assert erub_dyn(t_dyn_stated(kappa, alpha), kappa, alpha) == pytest.approx(stated_value, rel=2e-3)
    assert abs(t_dyn_exact(kappa, alpha) - steps) < 1.0  # the formula of the proof is the minimiser
    assert t_uni_stated(kappa, alpha) == math.ceil(kappa * math.log1p(1 / (kappa * alpha)))


def test_the_printed_value_is_the_bound_at_the_printed_steps() -> None:
    """Eq. (25): (1 + kappa ln(1 + x)) / (1 + x), x = g / alpha."""
    kappa, alpha = 30.0, 1e-3
    x = decay(kappa) / alpha
    assert erub_uni(t_uni_printed(kappa, alpha), kappa, alpha) == pytest.approx((1 + kappa * math.log1p(x)) / (1 + x), rel=1e-12)
