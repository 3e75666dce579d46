"""Moments, the bias of clipping, and what a problem refuses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.heavy_tailed import Moments
from lethe.heavy_tailed.moments import clipping_bias, printed_clipping_bias
from lethe.heavy_tailed.oracles import clip_rows


@pytest.mark.parametrize(
    ("shape", "order", "clip", "exact", "printed", "sharp"),
    [(3.0, 2, 4.0, 0.031250, 0.750000, 0.187500), (5.0, 4, 3.0, 0.00308642, 0.0617284, 0.0195313), (2.5, 2, 10.0, 0.0210819, 0.5, 0.125)],
)
def test_the_bias_of_clipping_pareto_numbers(shape: float, order: int, clip: float, exact: float, printed: float, sharp: float) -> None:
    """P(X > x) = x^-a from 1 on: E(X - C)_+ = C^(1-a)/(a - 1), E X^k = a/(a - k)."""
    bound = (shape / (shape - order)) ** (1 / order)
    assert clip ** (1 - shape) / (shape - 1) == pytest.approx(exact, rel=1e-5)
    assert clipping_bias(order, bound, clip) == pytest.approx(sharp, rel=1e-5)
    assert printed_clipping_bias(order, bound, clip) == pytest.approx(printed, rel=1e-5)
    rows = np.random.default_rng(0).pareto(shape, size=(1_000_000, 1)) + 1.0
    lost = rows - clip_rows(rows, clip)
    assert lost.mean() == pytest.approx(exact, abs=6 * lost.std() / 1000)


def test_two_points_attain_the_sharp_bias() -> None:
    """Mass 0.1 at 3, clipped at 2: the mean falls by 0.1."""
    assert clipping_bias(3, (0.1 * 27) ** (1 / 3), 2.0) == pytest.approx(0.1, rel=1e-12)


@pytest.mark.slow
def test_the_bias_of_clipping_vectors() -> None:
    """z = 2 e_1 + noise of 3 degrees of freedom in 5 dimensions: E|z|^2 = 4 + 5 * 3 = 19."""
    rng = np.random.default_rng(0)
    rows = rng.standard_t(3, size=(250_000, 5))
    rows[:, 0] += 2.0
    norms = np.linalg.norm(rows, axis=1)
    # Differences from the unclipped rows, whose mean is known, have the smaller variance.
    shift = ((np.minimum(1.0, 5.0 / norms) - 1.0)[:, None] * rows).mean(axis=0)
    assert np.linalg.norm(shift) == pytest.approx(0.1110, abs=0.016)
    assert clipping_bias(2, math.sqrt(19), 5.0) == pytest.approx(0.95)
    assert printed_clipping_bias(2, math.sqrt(19), 5.0) == pytest.approx(3.8)


@given(order=st.floats(2.0, 40.0), clip=st.floats(0.01, 100.0), u=st.floats(0.0, 1e3))
def test_the_constant_is_a_bound_and_sharp(order: float, clip: float, u: float) -> None:
    constant = clipping_bias(order, 1.0, 1.0)
    assert max(u - clip, 0.0) <= constant * u * (u / clip) ** (order - 1) * (1 + 1e-9)
    worst = order * clip / (order - 1)
    assert worst - clip == pytest.approx(constant * worst * (worst / clip) ** (order - 1), rel=1e-9)
    assert 0.25 <= constant * (order - 1) <= 1 / math.e * (1 + 1e-9) or order == 2


def test_no_clipping_has_no_bias_and_extremes_do_not_overflow() -> None:
    assert clipping_bias(2, 1.0, math.inf) == 0.0
    assert clipping_bias(1000, 1e10, 1e-10) == math.inf
    assert clipping_bias(8, 1e100, 1e120) == pytest.approx(clipping_bias(8, 1.0, 1.0) * 1e-40)


def test_moments_of_the_three_kinds() -> None:
    """Central ones: |g| <= |g - Eg| + |Eg| and Minkowski give 2 sqrt(d) gamma^(1/k), half of the printed 4."""
    assert Moments(order=4, bound=3.0, second=2.0).raw(7) == 3.0
    assert Moments(order=4, bound=3.0, second=2.0).raw_second(7) == 2.0
    assert Moments(order=2, bound=3.0, kind="central").raw(4) == 12.0
    rng = np.random.default_rng(2)
    central = rng.standard_t(9, size=(100_000, 6)) * 0.7
    gamma = (np.abs(central) ** 4).mean(axis=0).max()
    mean = np.full(6, gamma**0.25)  # of the largest norm allowed
    raw = (np.linalg.norm(central + mean, axis=1) ** 4).mean() ** 0.25
    assert raw <= Moments(order=4, bound=gamma**0.25, kind="central").raw(6)


def test_example_one() -> None:
    """Squared-loss gradients (w x - y) x on [-1, 1], worst at |w| = 1: E sup_w |.|^k = E (|x|(|x| + |y|))^k, x and y normal."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    x, mass = 7.0 * nodes + 7.0, 7.0 * weights  # from 0 to 14, where the normal density is 1e-43
    density = 2.0 * mass * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    sizes = x[:, None] * (x[:, None] + x[None])
    for order, expected in ((2, 2.558609), (4, 4.376823), (8, 7.962721)):
        assert (density @ sizes**order @ density) ** (1 / order) == pytest.approx(expected, rel=1e-6)
