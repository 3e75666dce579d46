"""Constants of one step: printed values, exact maxima of the 2x2 blocks, rounding, bad input."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lethe.theorems.lipschitz import clipped_step, generalised_linear_step, plain_step, ridge_contraction

# (a, h, L) as printed in theory.md section 4, six decimals.
PRINTED = [
    (0, 0.01, 1.001252),
    (0, 0.1, 1.012739),
    (0, 0.5, 1.069045),
    (0, 1.0, 1.154701),
    (0, 1.5, 1.264911),
    (0, 2.0, 1.414214),
    (0.01, 0.1, 1.017047),
    (0.1, 0.5, 1.118034),
    (0.25, 1, 1.281025),
    (0.1, 0.1, 1.1),
    (0.25, 0.25, 1.25),
]


@pytest.mark.parametrize(("a", "h", "expected"), PRINTED)
def test_printed_values_of_the_clipped_step(a: float, h: float, expected: float) -> None:
    assert clipped_step(1.0, a, h) == pytest.approx(expected, abs=5.1e-7)
    assert clipped_step(0.5, 2 * a, 2 * h) == pytest.approx(expected, abs=5.1e-7)


@pytest.mark.parametrize("h", [1e-9, 0.01, 0.3, 1.0, 1.9, 2.0])
def test_convex_losses_have_the_closed_form(h: float) -> None:
    assert clipped_step(1.0, 0.0, h) == pytest.approx(1 / sqrt(1 - h / 4), rel=1e-13)  # theory.md 4.2


def largest_block(a: float, h: float, y: np.ndarray) -> float:
    """The largest norm of I + aP - (a+h)PQ over the angles y, from its trace and determinant, and of the 1x1 blocks."""
    total, corner = a + h, 1 + a - (a + h) * y
    frobenius = 1 + corner**2 + total**2 * y * (1 - y)
    largest = (frobenius + np.sqrt(np.maximum(frobenius**2 - 4 * corner**2, 0))) / 2
    return max(float(np.sqrt(largest.max())), 1.0, abs(1 + a), abs(1 - h))


@pytest.mark.slow
def test_the_clipped_step_is_the_maximum_over_all_angles() -> None:
    y = np.linspace(0, 1, 4001)
    for a in np.linspace(-3, 3, 49):
        for h in np.linspace(max(0.0, -a), 6, 41):
            brute = largest_block(a, h, y)
            constant = clipped_step(1.0, a, h)
            # The grid misses the maximum by its spacing squared at most; the oracle rounds a few times.
            assert brute * (1 - 4e-15) <= constant <= brute * (1 + 1e-6), (a, h)


@pytest.mark.slow
@given(st.floats(0, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_the_plain_step_is_rounded_up_by_no_more_than_two_units(step: float, weak: float, smooth: float) -> None:
    weak = max(weak, -smooth)
    exact = max(abs(1 + Fraction(step) * Fraction(weak)), abs(1 - Fraction(step) * Fraction(smooth)))
    constant = Fraction(plain_step(step, weak, smooth))
    # Where the exact value is nearly 0, a denormal is left of it.
    assert exact <= constant <= exact * (1 + Fraction(2) ** -50) + Fraction(1e-300)


@pytest.mark.slow
@given(st.floats(1e-6, 10), st.floats(-3, 3), st.floats(0, 6))
@example(0.5, 0.0, 5e-324)
def test_the_clipped_step_is_rounded_up(step: float, weak: float, smooth: float) -> None:
    weak = max(weak, -smooth)
    a, h = Fraction(step) * Fraction(weak), Fraction(step) * Fraction(smooth)
    g, total = h - a, a + h
    constant = Fraction(clipped_step(step, weak, smooth))
    assert constant >= max(abs(1 + a), abs(1 - h), 1)
    if 0 < g < 4 and abs((2 - g) * total) < g * (4 - g):
        squared = 1 + total**2 / (g * (4 - g))
        assert squared <= constant**2
        # The excess: a few eps, times the cancellation in g and in 4 - g.
        loss = 1 + (abs(a) + h + 4) * (1 / g + 1 / (4 - g))
        assert constant**2 <= squared + (squared * 8 + (squared - 1) * 16 * loss) * Fraction(2) ** -52


def test_exact_where_nothing_rounds() -> None:
    assert plain_step(4.0, 0.0, 0.5) == 1.0  # softmax regression with features of norm 1 at its largest step, 4 / R^2
    assert plain_step(1.0, 0.0, 2.0) == 1.0
    assert plain_step(0.3, 0.0, 1.0) == 1.0
    assert generalised_linear_step(4.0, 0.0, 0.5) == 1.0
    assert plain_step(0.5, -1.0, 1.0) == 0.5
    assert clipped_step(0.0, 1.0, 1.0) == clipped_step(1.0, 0.0, 0.0) == clipped_step(1.0, -0.5, 0.5) == 1.0
    assert ridge_contraction(0.0, 1.0) == ridge_contraction(1.0, 0.0) == 1.0


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_ridge_contraction_is_rounded_up(step: float, strength: float) -> None:
    exact = 1 / (1 + Fraction(step) * Fraction(strength))
    assert exact <= Fraction(ridge_contraction(step, strength)) <= exact * (1 + Fraction(2) ** -49)


def test_never_worse_than_the_published_constant() -> None:
    # L_lambda = sqrt(1 + 2 lambda m (1 + m / (2 (M + m)))), lambda <= 1 / (M + m): theory.md 4.1.
    for m in (0.01, 0.5, 1.0):
        for step in np.linspace(0, 1 / (1 + m), 20):
            assert plain_step(step, m, 1.0) <= sqrt(1 + 2 * step * m * (1 + m / (2 * (1 + m)))) * (1 + 1e-15)
