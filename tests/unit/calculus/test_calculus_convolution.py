"""Sums of independent laws on a grid: where they lie, against brute force and dp_accounting; tails against 60 digits."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import common
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.calculus.privacy_losses.convolution import Law, steepness, sum_ends, summed, tilted
from lethe.calculus.sampled.profiles import poisson_losses

WEIGHTS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).filter(lambda one: sum(one) > 1e-3)


def brute_force(laws: list[Law]) -> np.ndarray:
    found = np.ones(1)
    for law in laws:
        for _ in range(law.copies):
            found = np.convolve(found, law.masses)
    return found


@settings(max_examples=examples(60))
@given(WEIGHTS, WEIGHTS, st.integers(1, 25), st.integers(1, 25), st.floats(1e-12, 0.5))
def test_beside_the_ends_there_is_no_more_than_the_tail(one: list[float], other: list[float], count: int, times: int, tail: float) -> None:
    laws = [Law(0, np.array(one) / math.fsum(one), count), Law(-3, np.array(other) / math.fsum(other), times)]
    first, last = sum_ends(tilted(laws, 0.0), tail)
    whole = brute_force(laws)
    assert 0 <= first <= last <= whole.size - 1
    assert whole[:first].sum() <= tail / 2 + 1e-13
    assert whole[last + 1 :].sum() <= tail / 2 + 1e-13
    assert summed(laws, 0, whole.size) == pytest.approx(whole, abs=1e-14)


@pytest.mark.parametrize(("probability", "noise", "count"), [(0.1, 1.0, 10), (0.01, 0.8, 1000), (0.5, 3.0, 3), (1e-3, 0.6, 20_000)])
def test_the_ends_are_no_wider_than_those_of_dp_accounting_at_the_best_of_its_orders(probability: float, noise: float, count: int) -> None:
    for one in poisson_losses(probability, noise, "zero_out", 1e-3, 1e-23):
        masses = one.masses / one.masses.sum()
        places = np.arange(masses.size)
        variance = masses @ np.square(places - masses @ places)
        orders = math.sqrt(2 * math.log(2e15) / (count * variance)) * np.geomspace(1 / 128, 2, 15)
        bounds: Any = common.compute_self_convolve_bounds
        theirs = bounds(masses, count, 1e-15, [*(-orders).tolist(), *orders.tolist()])
        first, last = sum_ends(tilted([Law(0, masses, count)], 0.0), 1e-15)
        assert theirs[0] - 1 <= first < last <= theirs[1] + 1
        # More orders are tried here.
        assert last - first >= 0.95 * (theirs[1] - theirs[0])


def test_ends_of_heavy_tails_are_where_the_law_ends_at_the_latest() -> None:
    # One in a million is a thousand times as large as all else: the best order is far below that of a normal law.
    masses = np.zeros(100_001)
    masses[[0, -1]] = 1 - 1e-6, 1e-6
    _, last = sum_ends(tilted([Law(0, masses, 1000)], 0.0), 1e-15)
    assert 100_000 * 3 <= last <= 100_000 * 8  # the third hit has probability 2e-10, the sixth 1e-21


def test_mass_that_rounding_made_negative_counts_as_none() -> None:
    masses = np.array([0.5, -1e-18, 0.25, 0.25])
    other = tilted([Law(0, np.maximum(masses, 0.0), 30)], 0.3)
    assert all((one == two).all() for one, two in zip(tilted([Law(0, masses, 30)], 0.3).laws[0][1:2], other.laws[0][1:2], strict=True))


@pytest.mark.parametrize(("chance", "count", "exponent"), [(0.3, 50, 5.0), (0.3, 50, 30.0), (1e-3, 10**4, 72.0), (1e-6, 10**7, 200.0)])
def test_tails_keep_their_digits(chance: float, count: int, exponent: float) -> None:
    laws = [Law(-1, np.array([1.0 - chance, 0.0, 0.0, chance]), count)]
    slope = steepness(laws, exponent)
    parts = tilted(laws, slope)
    first, last = sum_ends(parts, 1e-13)
    masses = summed(parts.laws, first, last - first + 1)
    middle = int(np.argmax(masses))
    with mpmath.workdps(60):
        yes, rest = mpmath.mpf(chance), 1 - mpmath.mpf(1.0 - chance)
        assert rest == pytest.approx(chance)
        for place in range(middle - 6, middle + 7):
            hits, odd = divmod(place + first, 3)
            exact = mpmath.binomial(count, hits) * yes**hits * mpmath.mpf(1.0 - chance) ** (count - hits) if odd == 0 else mpmath.mpf(0)
            # Tilted back: what is lost is a share of the whole tilted law.
            back = mpmath.exp(mpmath.mpf(parts.log_scale) - mpmath.mpf(slope) * (place + first - count))
            off = float(mpmath.mpf(float(masses[place])) - exact / back)
            assert -1e-13 - 2e-15 * count <= off <= 2e-13 * count * masses[place] + 1e-13 + 2e-15 * count
        # And the middle is about as rare as was wanted.
        tail = -float(mpmath.log(mpmath.exp(mpmath.mpf(parts.log_scale) - mpmath.mpf(slope) * (middle + first - count))))
        assert tail == pytest.approx(exponent, rel=0.15)


def test_a_law_that_is_nowhere_that_rare_is_tilted_as_far_as_it_goes() -> None:
    assert steepness([Law(0, np.array([0.5, 0.5]), 1)], 13.0) == 30.0
    assert steepness([Law(0, np.array([1.0]), 7)], 13.0) == 30.0
