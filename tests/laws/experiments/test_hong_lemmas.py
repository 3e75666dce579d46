"""Hong et al. 2022, Lemma C.5 against gradients by hand, and Theorem 4.10, corrected, against batches that are drawn."""

import math

import numpy as np
import pytest

from lethe.errors import HypothesisError, InputError
from lethe_experiments.hong.squared_loss import gradient_sensitivity, largest_sensitivity, printed_sensitivity
from lethe_experiments.risk.mini_batches import batch_term, momentum_batch_term
from lethe_experiments.risk.momentum_risk import erub_momentum, largest_relative_step


def _mean_gradient(rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
    return np.mean((rows @ theta - 1.0)[:, None] * rows, axis=0)


@pytest.mark.parametrize("seed", range(20))
def test_the_sensitivity_is_what_zeroing_a_record_does_and_the_bound_is_reached(seed: int) -> None:
    random = np.random.default_rng(seed)
    count, size = int(random.integers(1, 9)), int(random.integers(1, 6))
    rows, theta = random.normal(size=(count, size)), random.normal(size=size) * 3.0
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    moved = [
        np.linalg.norm(_mean_gradient(rows, theta) - _mean_gradient(rows * (np.arange(count) != i)[:, None], theta)) for i in range(count)
    ]
    assert gradient_sensitivity(rows, theta) == pytest.approx(max(moved), rel=1e-12)
    norm = float(np.linalg.norm(theta))
    bound = largest_sensitivity(parameter_norm=norm, records=count)
    assert gradient_sensitivity(rows, theta) <= bound * (1 + 1e-12)
    assert gradient_sensitivity(np.tile(-theta / norm, (count, 1)), theta) == pytest.approx(bound, rel=1e-12)
    longer = largest_sensitivity(parameter_norm=norm, records=count, feature_norm=2.5)
    assert gradient_sensitivity(np.tile(-2.5 * theta / norm, (count, 1)), theta) == pytest.approx(longer, rel=1e-12)


def test_the_inequality_as_printed_is_false() -> None:
    """Two centred records of norm 1, whose mean loss has the second derivative 1."""
    rows, theta = np.array([[1.0], [-1.0]]), np.array([-0.5])
    printed = printed_sensitivity(dimension=1, smoothness=1.0, parameter_norm=0.5)
    assert gradient_sensitivity(rows, theta) == largest_sensitivity(parameter_norm=0.5, records=2) == 0.75
    assert printed.value == 0.625
    assert not printed.standing.usable
    for bad in (np.ones(3), np.ones((0, 1)), np.ones((2, 2)), np.array([[math.nan]])):
        with pytest.raises(InputError, match="features"):
            gradient_sensitivity(bad, theta)


BETA, KAPPA, STEPS, BATCH = 0.7, 3.0, 12, 4


def test_the_term_of_batches_with_momentum_is_that_of_drawn_batches() -> None:
    r"""What 40 000 runs' debiased averages of drawn records have as second moment, through the proof's $\eta\sum\gamma_c^{T-t}$."""
    random = np.random.default_rng(0)
    records = random.normal(size=(30, 2))
    records -= records.mean(axis=0)
    variance = float(np.mean(np.sum(records**2, axis=1)))
    relative_step = largest_relative_step(kappa=KAPPA, beta=BETA)
    gamma, smoothness, gap = 1.0 - relative_step / (2.0 * KAPPA), 1.5, 0.8
    average, risk = np.zeros((40_000, 2)), 0.0
    for step in range(1, STEPS + 1):
        errors = records[random.integers(30, size=(40_000, BATCH))].mean(axis=1)  # drawn with replacement: the worst allowed
        average = BETA * average + (1.0 - BETA) * errors
        moment = float(np.mean(np.sum((average / (1.0 - BETA**step)) ** 2, axis=1)))
        risk += relative_step / (2.0 * smoothness) * gamma ** (STEPS - step) * moment
    shared = {"gradient_variance": variance, "pl_constant": smoothness / KAPPA, "batch_size": BATCH, "initial_gap": gap}
    term = momentum_batch_term(**shared, kappa=KAPPA, beta=BETA, relative_step=relative_step, steps=STEPS)
    assert term == pytest.approx(risk / gap, rel=6e-3)  # four deviations of the mean of so many
    longer = momentum_batch_term(**shared, kappa=KAPPA, beta=BETA, relative_step=relative_step, steps=4000)
    assert term < longer <= 2.0 * batch_term(**shared)
    # Privacy noise of the same second moment does the same: D G^2 sigma^2 / N^2 = s^2 / b, with D = 2, G = 1, N = 100.
    alpha, sigma2 = 2.0 / (2.0 * smoothness * 100.0**2 * gap), variance / BATCH * 100.0**2 / 2.0
    noisy, quiet = (
        erub_momentum(kappa=KAPPA, beta=BETA, relative_step=relative_step, alpha=alpha, budget=1.0, variances=np.full(STEPS, size))
        for size in (sigma2, 0.0)
    )
    assert term == pytest.approx(noisy - quiet, rel=1e-9)
    with pytest.raises(HypothesisError, match="relative_step"):
        momentum_batch_term(**shared, kappa=KAPPA, beta=BETA, relative_step=1.9, steps=STEPS)
