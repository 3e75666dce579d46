"""At both ends of the floats: what underflows is not 0, what overflows is no bound, what is no number proves nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lethe
from lethe.calculus import conversions
from lethe.calculus.any_guarantee import noise_scaled, together
from lethe.calculus.composition import compose_gdp_columns, concentrated_rho, renyi_curve
from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, RDPCurve
from lethe.calculus.sampled.gaussian import SampledGaussian, merged_levels
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.mechanisms.bounded_range import guarantee_for
from lethe.theorems.lipschitz import clipped_step, plain_step, ridge_contraction
from lethe.theorems.shift.engine import solve

TINY = 1e-170  # its square underflows


def test_a_tiny_mu_is_no_perfect_privacy() -> None:
    curve = renyi_curve({GDP(TINY): 1})
    assert curve is not None
    assert min(curve.values) > 0.0
    assert curve.delta(0.0) > 0.0
    assert concentrated_rho(GDP(TINY)) > 0.0
    assert conversions.gdp_rho(0.0) == 0.0
    assert conversions.gdp_rho(math.inf) == math.inf
    composed = together([(GDP(TINY), 2), (ZCDP(1e-310), 1)])
    assert composed.delta(0.0) > 0.0
    assert together([(GDPMixture((TINY, 0.0), (0.5, 0.5)), 3)]).delta(0.0) > 0.0
    pure = guarantee_for(TINY, ZCDP(1.0))
    assert isinstance(pure, ZCDP)
    assert pure.rho > 0.0


def test_pure_privacy_of_any_size_has_a_curve() -> None:
    curve = renyi_curve({ApproxDP(1e200, 0.0): 1})
    assert curve is not None
    assert max(curve.values) == pytest.approx(1e200)


def test_columns_compose_as_their_entries_do() -> None:
    columns = np.array([[3.0, 1e-200, 0.0, math.inf, 1e200], [4.0, 1e-200, 0.0, 0.0, 1e200]])
    found = compose_gdp_columns(columns)
    assert found == pytest.approx([5.0, 1e-200 * math.sqrt(2), 0.0, math.inf, 1e200 * math.sqrt(2)], rel=1e-14)
    assert found[0] >= 5.0
    assert found[2] == 0.0


def test_scaling_by_much_noise_leaves_something_to_hide() -> None:
    for guarantee in (GDP(1e-200), GDPMixture((1e-200, 0.0), (0.5, 0.5))):
        assert noise_scaled(guarantee, 1e200).delta(0.0) > 0.0
    assert noise_scaled(GDP(0.0), 1e200) == GDP(0.0)


def test_more_steps_than_64_bits_can_count_are_not_lost() -> None:
    levels, counts = merged_levels(np.array([1.0, 2.0]), (10**25, 3))
    assert levels == (1.0, 2.0)
    assert counts == (10**25, 3)
    many = SampledGaussian(sampling_probability=0.5, noise=(1e3,), counts=(10**25,), relation="zero_out", design="poisson")
    scaled = noise_scaled(many, 2.0)
    assert isinstance(scaled, SampledGaussian)
    assert [float(count) for count in scaled.counts] == [1e25]
    assert scaled.epsilon(1e-5) > 1e10


def test_epsilons_and_deltas_are_numbers_everywhere() -> None:
    far = RDPCurve((1.5, 1e5), (1.0, 1.0))
    for level in (0.0, 1.0, 1e300, 1e305, 1.7e308, math.inf):
        for guarantee in (far, RDPCurve((2.0,), (math.inf,)), ZCDP(1e-320), ZCDP(1.7e308), GDP(1e-320), GDP(1e200)):
            assert 0.0 <= guarantee.delta(level) <= 1.0
    for delta in (0.0, 5e-324, 1e-300, 1e-5, 0.5, 1 - 1e-16):
        for guarantee in (far, ZCDP(5e-324), ZCDP(1.7e308), GDP(5e-324), GDP(1e-310), GDP(1e150), GDP(1e200)):
            assert guarantee.epsilon(delta) >= 0.0


def test_what_is_no_delta_passes_no_target() -> None:
    for broken in (math.nan, -1e-3, math.inf):
        assert log_gap(broken, 0.5) == math.inf
    assert conversions.profile_epsilon(lambda epsilon: math.nan, 0.5) == math.inf
    assert conversions.profile_epsilon(lambda epsilon: -1.0, 0.5) == math.inf
    assert crossing(lambda x: x - 1e-322, 1e-300, 0.0, resolution=0.0) <= 1e-322


def test_the_window_of_a_huge_exponent_is_not_chosen_for_being_no_number() -> None:
    """Its estimate of the spread met infinity less infinity, and what is no number counted as the smallest."""
    fields = {"sampling_probability": 0.5, "counts": ((1, 0), (1, 1)), "shift_mus": (0.5, 0.1), "relation": "zero_out"}
    window = WindowedGaussian(noise=(0.02, 3.0), design="without_replacement", **fields)  # pyright: ignore[reportArgumentType]
    assert window.epsilon(1e-5) > 0.0
    assert 0.0 < window.delta(1.0) <= 1.0


def test_constants_of_steps_at_the_ends() -> None:
    assert ridge_contraction(1e200, 1e200) > 0.0
    assert plain_step(1e154, 0.0, 1e154) == pytest.approx(1e308)
    assert clipped_step(1e154, 1e153, 1e154) == pytest.approx(1e308)
    assert clipped_step(1e154, 1e154, 1e154) == pytest.approx(1e308)
    assert clipped_step(1.0, 0.0, 5e-324) > 1.0


def test_the_engine_says_infinity_where_it_cannot_say_a_number() -> None:
    assert solve([1.0, 1.0], [1e280, 1e280], [0.0, 1e-280]).mu == math.inf
    assert solve([1.0, 1.0], [1.0, 0.0], [1e280, 0.0]).mu >= 1e-280
    assert solve([1.0, 1.0], [1e-280, 0.0], [1e280, 1e280]).mu > 0.0
    assert lethe.guarantees.GDP(solve([1.0], [1e-280], [1e280]).mu).delta(0.0) > 0.0
