"""Linear models: the loop against the recursion in NumPy, what one record moves, and what is reported."""

from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import DESIGNS
from problems import COLUMNS, RECORDS, make_loss, make_problem, make_run
from scipy import stats

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.linear.models import LinearPredictor

KINDS = ("softmax_regression", "logistic_regression", "least_squares")


def fit(run: Run, **options: Any) -> Fitted[LinearPredictor]:
    problem = make_problem(run.loss.kind)
    return fit_linear(run, problem.features, problem.targets, **{"classes": problem.classes, "seed": 0, **options})


def plain_descent(run: Run, features: np.ndarray, targets: np.ndarray, outputs: int) -> np.ndarray:
    """The noiseless cyclic recursion in NumPy, record by record, with ridge and ball: slow and independent of lethe.train."""
    rows = features * np.minimum(1.0, 1.5 / np.linalg.norm(features, axis=1, keepdims=True))
    rows = np.hstack([rows, np.ones((len(rows), 1))])
    x = np.zeros((rows.shape[1], outputs))
    for step in range(run.total_steps):
        total = np.zeros_like(x)
        for record in range(5 * (step % 4), 5 * (step % 4) + 5):
            scores = rows[record] @ x
            if run.loss.kind == "softmax_regression":
                residual = np.exp(scores) / np.exp(scores).sum() - np.eye(outputs)[targets[record]]
            elif run.loss.kind == "logistic_regression":
                residual = 1 / (1 + np.exp(-scores)) - targets[record]
            else:
                residual = np.clip(scores - targets[record], -0.8, 0.8)
            gradient = np.outer(rows[record], residual)
            total += gradient * min(1.0, 0.6 / np.linalg.norm(gradient))
        x = x - 0.4 * total / 5
        x = x / (1 + 0.4 * 0.3)
        x = x * min(1.0, 0.05 / np.linalg.norm(x)) if np.linalg.norm(x) > 0 else x
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_it_is_the_plain_recursion(kind: str) -> None:
    regulariser = [{"kind": "ridge", "strength": 0.3}, {"kind": "ball", "radius": 0.05}]
    run = make_run(kind, noise_multiplier=0.0, regulariser=regulariser, loss=make_loss(kind, intercept=True))
    problem = make_problem(kind)
    expected = plain_descent(run, problem.features, problem.targets, 3 if kind == "softmax_regression" else 1)
    trained = fit(run)
    got = np.vstack([trained.model.weights, trained.model.intercept])
    assert got == pytest.approx(expected, rel=1e-11, abs=1e-13)  # twelve contracting steps of rounding
    assert np.linalg.norm(got) == pytest.approx(0.05, rel=1e-12)  # the ball acts, so the test sees it


@pytest.mark.parametrize("noise_at", ["every_step", "pass_ends"])
def test_the_noise_of_a_whole_run_is_the_certified_noise(noise_at: str) -> None:
    """Features 0: gradients vanish and the last iterate is the sum of the noises, with variance sum tau_t^2; 200 000 coordinates."""
    columns, records = 1000, 8
    run = Run(
        records=records,
        batches={"design": "cyclic", "size": 2},
        passes=3,
        step_size={"schedule": "exponential", "first": 0.5, "ratio": 0.8},
        noise_multiplier={"schedule": "exponential", "first": 3.0, "ratio": 0.9},
        noise_at=noise_at,
        loss={"kind": "softmax_regression", "feature_norm": 1.0},
        release="last",
        neighbours="replace_one",
    )
    classes = 200
    trained = fit_linear(run, np.zeros((records, columns)), np.zeros(records), classes=classes, seed=4)
    tau = [
        0.5 * 0.8**step * 3.0 * 0.9 ** (step if noise_at == "every_step" else step // 4) * np.sqrt(2) / 2
        for step in range(12)
        if noise_at == "every_step" or step % 4 == 3
    ]
    low, high = stats.chi2.interval(1 - 1e-9, columns * classes)
    statistic = float((trained.model.weights**2).sum()) / sum(t**2 for t in tau)
    assert low < statistic < high
    assert low / (columns * classes) > 0.98  # so a standard deviation 1 % off is caught
    assert high / (columns * classes) < 1.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip_norm", [None, 0.6])
def test_one_touch_moves_the_iterate_by_at_most_the_certified_sensitivity(kind: str, clip_norm: float | None) -> None:
    run = make_run(kind, design="full", steps=1, noise_multiplier=0.0, clip_norm=clip_norm)
    problem = make_problem(kind)
    initial = np.random.default_rng(0).normal(size=(COLUMNS, 3 if kind == "softmax_regression" else 1)) * 20
    reached = []
    for scale in (-1e6, -1.0, 1e-3, 1.0, 1e6):
        for target in (-1e3, 1e3) if kind == "least_squares" else (0, 1):
            features, targets = problem.features.copy(), problem.targets.copy()
            features[7] = scale * initial[:, 0]
            targets[7] = target
            reached.append(fit_linear(run, features, targets, classes=problem.classes, seed=0, initial=initial).model.weights)
    largest = max(float(np.linalg.norm(one - two)) for one in reached for two in reached)
    # 1e-14: the sum of 23 gradients is rounded, which no certificate counts
    assert largest <= run.sensitivities[0] + 1e-14
    assert largest >= 0.5 * run.sensitivities[0]  # the attack is a real one


@pytest.mark.sampled(2)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_same_seed_gives_the_same_weights_and_none_does_not(design: str) -> None:
    run, before = make_run(design=design), torch.get_rng_state()
    first, again, other = (fit(run, seed=seed).model.weights for seed in (7, 7, 8))
    assert (first == again).all()
    assert not np.array_equal(first, other)
    assert not np.array_equal(fit(run, seed=None).model.weights, fit(run, seed=None).model.weights)
    assert torch.equal(before, torch.get_rng_state())  # the global generator is neither used nor moved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
def test_shapes_and_report(kind: str, intercept: bool) -> None:
    problem, own = make_problem(kind), make_problem(kind)
    trained = fit_linear(
        make_run(kind, loss=make_loss(kind, intercept=intercept)), own.features, own.targets, classes=problem.classes, seed=0
    )
    assert np.array_equal(own.features, problem.features)  # the data are not written to
    assert np.array_equal(own.targets, problem.targets)
    outputs = 3 if kind == "softmax_regression" else 1
    assert trained.model.weights.shape == (COLUMNS, outputs)
    assert trained.model.intercept.shape == (outputs,)
    assert trained.model.intercept.any() == intercept
    norms = np.linalg.norm(problem.features, axis=1)
    assert trained.diagnostics.projected == (norms > 1.5).sum() > 0
    assert (trained.diagnostics.records, trained.diagnostics.steps, trained.diagnostics.left_over) == (RECORDS, 12, 3)
    assert [fit(make_run(design=design)).diagnostics.left_over for design in ("full", "shuffled", "poisson", "balls_in_bins")] == [
        0,
        3,
        0,
        0,
    ]


def test_prediction_projects_as_training_did() -> None:
    trained = fit(make_run("least_squares", loss=make_loss("least_squares", intercept=True)))
    row = np.array([[3.0, 0.0, 0.0, 4.0]])  # norm 5, projected to 1.5
    assert trained.model.predict(row) == pytest.approx(
        row[0] * 0.3 @ trained.model.weights + trained.model.intercept, rel=1e-12
    )  # rounding
    with pytest.raises(InputError, match="got 3 columns"):
        trained.model.predict(np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"features\[0, 0\]"):
        trained.model.predict(np.full((1, 4), np.nan))


FEATURES = np.array([[1, 0], [0, 1], [0.6, 0.8], [0.8, -0.6], [0.5, 0.5], [-0.3, 0.9], [0, -0.7], [0.6, 0.8]])
TARGETS = np.array([0.3, -0.5, 0.1, 0.6, -0.2, 0.4, 0.0, 0.998])
SIZE = 4


@pytest.mark.sampled(8)
@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 0.0], [0.2, 0.8], [0.0, 1.0]])
@pytest.mark.parametrize("record", [0, 7])
@pytest.mark.parametrize("step_size", [0.5, {"schedule": "exponential", "first": 2.0, "ratio": 0.6}])
def test_one_record_moves_a_pass_by_at_most_what_is_certified(weights: list[float], record: int, step_size: object) -> None:
    """From many starting points; least squares with features of norm 1, steps at most 2 / smoothness."""
    run = Run(
        records=len(FEATURES), batches={"design": "cyclic", "size": SIZE}, passes=1, step_size=step_size, noise_multiplier=0.0,
        noise_at="pass_ends", pass_weights=weights, release="last", neighbours="replace_one",
        loss={"kind": "least_squares", "feature_norm": 1.0, "residual_bound": 1.0, "evidence": "enforced"},
    )  # fmt: skip
    reached = np.cumsum(weights[::-1])[::-1] / np.sum(weights)  # the part of the average that a touch in batch k reaches
    allowed = (reached * run.sensitivities)[record // SIZE]
    random, largest = np.random.default_rng(0), 0.0
    for start in [np.zeros((2, 1)), *(random.normal(size=(2, 1)) * scale for scale in (0.1, 1.0, 100.0) for _ in range(10))]:
        ends = []
        for sign in (-1.0, 1.0):
            features, values = FEATURES.copy(), TARGETS.copy()
            features[record], values[record] = sign * np.array([0.6, 0.8]), 1e6
            ends.append(fit_linear(run, features, values, seed=0, initial=start).model.weights)
        largest = max(largest, float(np.linalg.norm(ends[1] - ends[0])))
    # 1e-13: iterates of size 100 are rounded, which no certificate counts
    assert 0.5 * allowed <= largest <= allowed + 1e-13  # the attack is a real one
    assert largest <= run.sensitivities.max() + 1e-13
