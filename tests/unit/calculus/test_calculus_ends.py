"""At both ends of the floats: what underflows is not 0, what overflows is no bound, nan proves nothing, and rounding is outward."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lethe
from lethe.calculus import conversions, rounding
from lethe.calculus.any_guarantee import noise_scaled, together
from lethe.calculus.composition import compose_gdp, compose_gdp_columns, compose_zcdp, concentrated_rho, renyi_curve
from lethe.calculus.crossing import crossing, log_gap
from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, GDPMixture, RDPCurve
from lethe.calculus.noise_generators import fresh_numpy_generator, noise_generator
from lethe.calculus.sampled.gaussian import SampledGaussian, merged_levels
from lethe.calculus.sampled.windowed_gaussian import WindowedGaussian
from lethe.calculus.upward_formatting import shown, shown_down
from lethe.errors import InputError
from lethe.mechanisms.bounded_range import guarantee_for
from lethe.theorems.lipschitz import clipped_step, plain_step, ridge_contraction
from lethe.theorems.shift.engine import solve


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_gdp_sum_is_the_root_of_squares_from_above(mus: list[float]) -> None:
    exact = math.hypot(*mus)  # neither overflows nor underflows on the way
    assert exact * (1 - 4e-16) <= compose_gdp(mus) <= exact * (1 + 3e-15) + 5e-324 * len(mus)  # rounded up by 1e-15


def test_sums_at_their_edges() -> None:
    assert compose_gdp([0.0, 0.7, 0.0]) == 0.7
    assert compose_gdp([0.0]) == compose_zcdp([0.0, 0.0]) == 0.0
    assert compose_gdp([1.0, math.inf]) == compose_zcdp([1.0, math.inf]) == math.inf
    assert compose_zcdp([1e308, 1e308]) == math.inf
    assert compose_zcdp([0.1] * 10) >= 1.0
    for scale in (1e-200, 1e200):
        assert compose_gdp([3 * scale, 4 * scale]) == pytest.approx(5 * scale, rel=3e-15)  # rounding up by 1e-15


TINY = 1e-170  # its square underflows


def test_a_tiny_mu_is_no_perfect_privacy() -> None:
    curve = renyi_curve({GDP(TINY): 1})
    assert curve is not None
    assert min(curve.values) > 0.0
    assert curve.delta(0.0) > 0.0
    assert concentrated_rho(GDP(TINY)) > 0.0
    assert conversions.gdp_rho(0.0) == 0.0
    assert conversions.gdp_rho(math.inf) == math.inf
    assert 0.045 <= conversions.gdp_rho(0.3) <= 0.045 * (1.0 + 1e-12)
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


NOT_BOUNDS = (math.nan, -1.0, -5e-324, -math.inf)
NUMBERS = (5e-324, 1e-310, 1e-200, 1e-3, 1.0, 1 + 2**-52, 3.7, 1e200, 1.7976931348623157e308)


def test_rounding_moves_outward_and_keeps_what_is_exact() -> None:
    assert rounding.round_up(1.0) > 1.0 > rounding.round_down(1.0)
    assert rounding.round_up(-1.0) > -1.0
    assert rounding.round_up(0.0) == rounding.round_down(0.0) == 0.0
    assert rounding.round_up(math.inf) == math.inf
    assert rounding.round_up(1.0, 1e-3) >= 1.001


def test_an_upper_bound_that_is_no_number_is_infinite() -> None:
    assert rounding.round_up(math.nan) == math.inf
    assert rounding.round_down(math.nan) == -math.inf
    for rule in (rounding.above, rounding.raised, rounding.root_above):
        assert np.isposinf(rule(np.array(NOT_BOUNDS), 1e-15)).all()
        assert np.isposinf(rule(math.inf))
    assert rounding.exp_above(math.nan) == rounding.exp_above(math.inf) == rounding.exp_above(1e9) == math.inf


def test_arrays_move_outward_too() -> None:
    values = np.array(NUMBERS)
    for relative in (0.0, 1e-12):
        assert (rounding.above(values, relative) > values).all()
        assert (rounding.raised(values, relative) > values).all()
        assert (rounding.root_above(values, relative) >= np.sqrt(values)).all()
        roots = rounding.root_above(values).tolist()
        assert all(Fraction(root) ** 2 >= Fraction(value) for root, value in zip(roots, NUMBERS, strict=True))
    assert rounding.above(0.0) == 5e-324
    assert rounding.raised(0.0) == rounding.root_above(0.0) == rounding.exp_above(-math.inf) == 0.0
    assert rounding.exp_above(-800.0) == 5e-324


def test_a_count_is_never_below_its_quotient() -> None:
    most = rounding.MOST_COUNT
    quotients = [0.0, 0.1, 1.0, 1.5, 2.0**53, 2.0**60 + 512, 2.0**61, 1e19, 1e300, math.inf, math.nan, -1.0, -math.inf]
    counted = rounding.count_above(np.array(quotients), most).tolist()
    assert counted == [0, 1, 1, 2, 2**53, 2**60 + 512, *[most] * 7]
    assert rounding.count_above(math.nan, 0) == 0


@given(st.floats(min_value=1e-300, max_value=1e300), st.integers(1, 8))
def test_what_is_shown_is_never_less_and_what_is_shown_down_never_more(value: float, digits: int) -> None:
    assert value <= float(shown(value, digits)) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)
    assert value >= float(shown_down(value, digits)) >= value * (1 - 10.0 ** (1 - digits)) * (1 - 1e-12)


def test_what_is_shown_of_ends() -> None:
    assert [shown(value) for value in (0.0, 1.0, 3.8490001, 1e-5, math.inf)] == ["0", "1", "3.85", "1e-05", "infinity"]


def test_fresh_generators_differ() -> None:
    assert fresh_numpy_generator().random() != fresh_numpy_generator().random()
    assert noise_generator(None).random() != noise_generator(None).random()


def test_a_given_one_is_used_and_a_seed_is_refused() -> None:
    given = np.random.default_rng(1)
    assert noise_generator(given) is given
    for bad in (3, np.random.RandomState(1), "seed"):
        with pytest.raises(InputError, match=r"numpy\.random\.Generator"):
            noise_generator(bad)  # pyright: ignore[reportArgumentType]
