"""Convolutions on a grid: where a power lies, against brute force and dp_accounting; a product and what is cut off it."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import common
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from lethe.calculus.privacy_losses.convolution import joined, power_ends
from lethe.calculus.sampled.poisson_profile import poisson_losses


def power(masses: np.ndarray, count: int) -> np.ndarray:
    found = np.ones(1)
    for _ in range(count):
        found = np.convolve(found, masses)
    return found


@settings(max_examples=examples(60))
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).filter(lambda one: sum(one) > 1e-3), st.integers(2, 40), st.floats(1e-12, 0.5)
)
def test_beside_the_ends_there_is_no_more_than_the_tail(weights: list[float], count: int, tail: float) -> None:
    masses = np.array(weights) / math.fsum(weights)
    first, last = power_ends(masses, count, tail)
    whole = power(masses, count)
    assert 0 <= first <= last <= whole.size - 1
    assert whole[:first].sum() <= tail / 2 + 1e-13
    assert whole[last + 1 :].sum() <= tail / 2 + 1e-13


@pytest.mark.parametrize(("probability", "noise", "count"), [(0.1, 1.0, 10), (0.01, 0.8, 1000), (0.5, 3.0, 3), (1e-3, 0.6, 20_000)])
def test_the_ends_are_those_of_dp_accounting_at_the_best_of_all_orders(probability: float, noise: float, count: int) -> None:
    for one in poisson_losses(probability, noise, 1e-3, "zero_out"):
        places = np.arange(one.masses.size)
        mean = one.masses @ places / one.masses.sum()
        variance = one.masses @ np.square(places - mean) / one.masses.sum()
        orders = math.sqrt(2 * math.log(2e15) / (count * variance)) * np.geomspace(1 / 128, 2, 15)
        bounds: Any = common.compute_self_convolve_bounds
        theirs = bounds(one.masses, count, 1e-15, [*(-orders).tolist(), *orders.tolist()])
        assert power_ends(one.masses, count, 1e-15) == theirs


def test_mass_that_rounding_made_negative_counts_as_none() -> None:
    masses = np.array([0.5, -1e-18, 0.25, 0.25])
    assert power_ends(masses, 30, 1e-9) == power_ends(np.maximum(masses, 0.0), 30, 1e-9)


@pytest.mark.parametrize("tail", [1e-15, 1e-6, 0.1])
def test_what_is_cut_off_a_product_is_moved_up(tail: float) -> None:
    rng = np.random.default_rng(0)
    one, other = rng.dirichlet(np.geomspace(1e-2, 5.0, 30)), rng.dirichlet(np.geomspace(3.0, 1e-2, 50))
    whole = signal.fftconvolve(one, other)
    product = joined(one, other, tail)
    assert product.masses.sum() + product.beyond == pytest.approx(1.0, rel=1e-13)
    assert 0.0 <= product.beyond <= tail / 2
    last = product.offset + product.masses.size
    assert (product.masses[1:] == whole[product.offset + 1 : last]).all()
    below = whole[: product.offset].sum()
    assert below <= tail / 2
    assert product.masses[0] == pytest.approx(below + whole[product.offset], rel=1e-13)
    if tail > 1e-10:
        assert product.offset > 0
        assert last < whole.size
    # No more can be cut off on either side.
    assert below + whole[product.offset] > tail / 2
    assert product.beyond + whole[last - 1] > tail / 2


def test_a_product_of_hardly_any_mass_keeps_its_last_place() -> None:
    product = joined(np.array([1e-30]), np.array([1e-30, 1e-30]), 1e-15)
    assert product.masses.size == 1
    assert product.offset == 1
