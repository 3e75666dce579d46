from fractions import Fraction

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.train.core.iterates import inward, onto_ball

ROWS = arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(-1e300, 1e300))
RADII = st.floats(1e-6, 1e6)


def exact_square(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(entry)) ** 2 for entry in row), Fraction(0))


@pytest.mark.slow
@given(rows=ROWS, radius=RADII, dtype=st.sampled_from([torch.float64, torch.float32]))
def test_no_row_leaves_the_ball_in_exact_arithmetic(rows: np.ndarray, radius: float, dtype: torch.dtype) -> None:
    projected = onto_ball(torch.tensor(rows), radius, dtype=dtype)[0].to(dtype).to(torch.float64).numpy()
    for row in projected:
        assert exact_square(row) <= Fraction(radius) ** 2


@pytest.mark.slow
@given(rows=ROWS, radius=RADII)
def test_rows_keep_their_direction_and_lose_only_rounding(rows: np.ndarray, radius: float) -> None:
    projected, outside = onto_ball(torch.tensor(rows), radius)
    for row, result, out in zip(rows, projected.numpy(), outside.tolist(), strict=True):
        true_norm = float(np.linalg.norm(row / max(1e-300, np.abs(row).max()))) * np.abs(row).max()
        if true_norm < radius * 0.999:
            assert (result == row).all()
            assert not out
        elif true_norm > radius * 1.001:
            assert out
            # (d + 16) eps below the radius and d roundings of the norm: below 1e-13 for d <= 9
            assert np.linalg.norm(result / radius) == pytest.approx(1.0, rel=1e-13)
            scale = np.abs(row).max()
            assert np.allclose(result / np.abs(result).max(), row / scale, rtol=1e-14, atol=1e-300)


def test_rows_of_exactly_the_radius_or_of_zeros_are_not_counted_as_projected() -> None:
    angles = np.linspace(0, 6, 500)
    rows = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], axis=1))  # norm 1 up to rounding
    assert not onto_ball(rows, 1.0)[1].any()
    assert onto_ball(rows * (1 + 1e-12), 1.0)[1].all()
    projected, outside = onto_ball(torch.zeros(2, 3, dtype=torch.float64), 1.0)
    assert (projected == 0).all()
    assert not outside.any()


def test_a_norm_too_uncertain_to_bound_is_refused() -> None:
    with pytest.raises(InputError, match="too uncertain"):
        inward(1.0, 10_000_000, torch.float32)
    assert 0.99 < inward(1.0, 10_000_000, torch.float64) < 1.0
