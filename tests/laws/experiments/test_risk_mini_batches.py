"""What drawn batches add to the risk, against exact descent on a mean of quadratics."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noisy_quadratics import exact_risk

from lethe_experiments.risk.gradient_descent import decay
from lethe_experiments.risk.mini_batches import batch_term, printed_batch_size


@pytest.mark.slow
@given(
    convexity=st.floats(0.05, 1.0), spread=st.floats(0.0, 5.0), batch=st.integers(1, 20), extra=st.integers(0, 30), steps=st.integers(1, 80)
)
def test_the_term_covers_batches_of_shifted_quadratics(convexity: float, spread: float, batch: int, extra: int, steps: int) -> None:
    """f_i = lam (theta - x_i)^2 / 2 in each of two modes: the batch noise has one variance everywhere, (N - b) / (N - 1) / b of it."""
    records = batch + extra + 1
    eigenvalues, start = np.array([convexity, 1.0]), np.array([2.0, -1.0])
    gap = exact_risk(eigenvalues, start, [], [])
    remaining = (records - batch) / (records - 1) / batch
    # One coordinate at a time: the noise of mode i is lam_i times that of the records.
    risk = sum(
        exact_risk([lam], [x], np.ones(steps), np.full(steps, lam * spread * math.sqrt(remaining)))
        for lam, x in zip(eigenvalues, start, strict=True)
    )
    variance = float(np.sum(eigenvalues**2)) * spread**2
    added = batch_term(gradient_variance=variance, pl_constant=convexity, batch_size=batch, initial_gap=gap)
    assert risk / gap <= math.exp(-decay(1.0 / convexity) * steps) + added + 1e-9


def test_the_term_at_a_worked_point() -> None:
    assert batch_term(gradient_variance=3.0, pl_constant=0.5, batch_size=20, initial_gap=2.0) == pytest.approx(0.075)


def test_the_printed_batch_size_is_most_of_the_data() -> None:
    assert printed_batch_size(records=1000, budget=0.392704) == 627
    assert printed_batch_size(records=1000, budget=4.0) == 2000  # more than there are
    assert printed_batch_size(records=1, budget=1e-9) == 1
