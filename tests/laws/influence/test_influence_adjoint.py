"""The adjoint against exact quadratics, autograd through a loop of its own, and retraining; and of which losses it knows the curvature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from how_many import by_night
from influence_problems import laplacian_influence, least_squares_influence, make_data, make_run

import lethe
from lethe.influence import SyntheticData, adjoint, adjoint_influence, quadratic_influence, retraining, retraining_influence


def deviations(first: Any, expected: np.ndarray, errors: np.ndarray | float = 0.0) -> np.ndarray:
    return np.abs(first.weights - expected) / np.hypot(first.errors, errors)


@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_on_a_quadratic_it_is_exact_in_expectation(ridge: float) -> None:
    run = make_run(regulariser={"kind": "ridge", "strength": ridge} if ridge else None)
    exact = quadratic_influence(run, make_data()).weights
    estimate = adjoint_influence(run, make_data(), repeats=30, seed=3, directions=200)
    assert deviations(estimate, exact).max() < 3
    assert (estimate.errors < 0.02 * exact).all()
    assert np.abs(estimate.weights[1:] / exact[:-1] - 1).min() > 0.08  # the weights of neighbouring steps are further apart than that
    assert estimate.influence.basis == "public"


def test_small_batches_have_their_own_jacobians() -> None:
    run = make_run(batches=lethe.batches.Cyclic(6), passes=2, noise_at="pass_ends")
    rows = make_data().records(run).features
    exact = least_squares_influence(rows, [slice(first, first + 6) for first in (0, 6, 12, 18)] * 2, run.step_sizes)
    estimate = adjoint_influence(run, make_data(), repeats=20, seed=3, directions=200)
    assert deviations(estimate, exact).max() < 3
    assert (estimate.errors < 0.03 * exact).all()


def test_an_l1_threshold_stops_noise() -> None:
    """Parameters held at 0 pass nothing on: no influence before the last step's own threshold, and none there."""
    run = make_run(regulariser={"kind": "l1", "strength": 100.0}, noise_multiplier=0.0)
    assert adjoint_influence(run, make_data(), repeats=2, seed=0).weights == pytest.approx(np.zeros(6), abs=0)


def softmax_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(scores, targets.long(), reduction="none")


def logistic_loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(scores.squeeze(1), targets, reduction="none")


@pytest.mark.parametrize(
    ("kind", "step_size", "clip_norm", "outputs", "record_loss"),
    [
        ("softmax_regression", 2.0, None, 3, softmax_loss),
        pytest.param("logistic_regression", 4.0, None, 1, logistic_loss, marks=pytest.mark.nightly),
        # A clipped gradient of a scalar model has constant length: no curvature is left out there, and some records are clipped.
        ("logistic_regression", 4.0, 0.35, 1, logistic_loss),
    ],
)
def test_it_is_the_second_derivative_by_autograd(
    kind: str, step_size: float, clip_norm: float | None, outputs: int, record_loss: Any
) -> None:
    """Around the noiseless path, gradient term included; 4 standard errors, by night of about one percent."""
    run = make_run(kind, step_size=step_size, clip_norm=clip_norm, noise_multiplier=0.0)
    exact = laplacian_influence(run, make_data(kind), record_loss, outputs)
    repeats, directions, spread = (20, 1000, 0.015) if by_night() else (8, 400, 0.04)
    estimate = adjoint_influence(run, make_data(kind), repeats=repeats, seed=8, directions=directions)
    assert deviations(estimate, exact).max() < 4
    assert (estimate.errors < spread * exact).all()


@pytest.mark.nightly(by_day="test_it_is_the_second_derivative_by_autograd")
@pytest.mark.parametrize(
    ("kind", "step_size", "curvature"), [("softmax_regression", 2.0, "_softmax"), ("logistic_regression", 4.0, "_logistic")]
)
def test_the_term_of_the_gradient_is_needed_for_that(kind: str, step_size: float, curvature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the same probes are well over 4 standard errors off."""
    run = make_run(kind, step_size=step_size, noise_multiplier=0.0)
    softmax = kind == "softmax_regression"
    exact = laplacian_influence(run, make_data(kind), softmax_loss if softmax else logistic_loss, 3 if softmax else 1)
    inner = getattr(adjoint, curvature)
    monkeypatch.setattr(adjoint, curvature, lambda chances: replace(inner(chances), bend_roots=None))
    assert deviations(adjoint_influence(run, make_data(kind), repeats=20, seed=8, directions=1000), exact).max() > 6


@pytest.mark.nightly(by_day="test_it_is_the_second_derivative_by_autograd")
def test_it_agrees_with_retraining_under_the_planned_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax regression with noise large enough to matter: the mean over noisy paths is the derivative itself."""
    run, data = make_run("softmax_regression", noise_multiplier=6.0, step_size=0.8), make_data("softmax_regression")
    monkeypatch.setattr(retraining, "_RISE", 0.2)
    retrained = retraining_influence(run, data, repeats=200, seed=1)
    estimate = adjoint_influence(run, data, repeats=120, seed=2, directions=8)
    assert deviations(estimate, retrained.weights, retrained.errors).max() < 3
    assert (np.hypot(estimate.errors, retrained.errors) < 0.06 * estimate.weights).all()
    noiseless = adjoint_influence(run.replace(noise_multiplier=0.0), data, repeats=10, seed=2, directions=200)
    assert deviations(estimate, noiseless.weights, noiseless.errors).max() > 4  # so the noise does matter


@pytest.mark.nightly(by_day="test_it_is_the_second_derivative_by_autograd")
def test_clipped_runs_are_estimated_too() -> None:
    """Softmax with many records clipped: what is left out is small beside what clipping changes."""
    run, data = make_run("softmax_regression", step_size=1.5, clip_norm=0.4, noise_multiplier=0.0), make_data("softmax_regression")
    estimate = adjoint_influence(run, data, repeats=10, seed=2, directions=1000)
    assert estimate.weights == pytest.approx(laplacian_influence(run, data, softmax_loss, 3), rel=0.03)
    unclipped = adjoint_influence(run.replace(clip_norm=None), data, repeats=10, seed=2, directions=1000)
    assert estimate.weights[0] > 2 * unclipped.weights[0]


WIDE: dict[str, Any] = {"kind": "smoothed_hinge", "feature_norm": 1.5, "width": 8.0}


def of_two_classes(loss: dict[str, Any], **changes: Any) -> Any:
    return make_run(loss=loss, step_size=2.0, noise_multiplier=0.02, **changes)


def test_a_hinge_that_never_leaves_its_corner_is_a_quadratic() -> None:
    """Curvature 1/(2h) = 1/16 everywhere on the path: the exact influence of the quadratic, found by differentiating the loss."""
    run, data = of_two_classes(WIDE), make_data("logistic_regression")
    exact = quadratic_influence(run, data).weights
    estimate = adjoint_influence(run, data, repeats=20, seed=3, directions=200)
    assert (np.abs(estimate.weights - exact) / estimate.errors).max() < 3
    assert (estimate.errors < 0.02 * exact).all()
    doubled = quadratic_influence(of_two_classes({**WIDE, "width": 4.0}), data).weights
    assert doubled[-1] == pytest.approx(2.0 * exact[-1])


def test_each_of_k_hinges_is_one() -> None:
    data = make_data("softmax_regression")
    several = {"kind": "one_versus_rest_hinge", "feature_norm": 1.5, "width": 8.0, "classes": 3}
    two = quadratic_influence(of_two_classes(WIDE), make_data("logistic_regression")).weights
    assert quadratic_influence(of_two_classes(several), data).weights == pytest.approx(3.0 * two)
    estimate = adjoint_influence(of_two_classes(several), data, repeats=20, seed=3, directions=100)
    assert (np.abs(estimate.weights - 3.0 * two) / estimate.errors).max() < 3


@pytest.mark.parametrize("loss", [{"kind": "truncated_logistic_regression", "feature_norm": 1.5, "cut": 0.5}, WIDE | {"width": 0.5}])
def test_synthetic_data_and_retraining_serve_every_loss(loss: dict[str, Any]) -> None:
    estimate = retraining_influence(of_two_classes(loss), SyntheticData(columns=2, seed=1), repeats=3, seed=0)
    assert np.isfinite(estimate.weights).all()
