"""`certify(model.run_)` proves of the run alone what the estimator claims, and takes nobody's word for what the loss is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import LINEAR_LOSSES
from private_cases import build, three_blobs, two_blobs

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.estimators import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    Ridge,
    SoftmaxRegression,
)
from lethe.estimators.choice.runs import RUNS, enforced, zero_start_precision
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses.linear import LinearLoss
from lethe.train.core.iterates import radius_of
from lethe.train.linear.gradients import gradient_rounding

# What happens after the last step, or beside the run, no run can know: its own code says so in the certificate.
AFTERWARDS = {"release", "secrecy", "arithmetic"}
NAMES = [run.name for run in RUNS]
BINARY, TERNARY = two_blobs(120), three_blobs(120)
VALUES = BINARY[0], BINARY[0] @ np.array([0.5, -0.2, 0.1])
CLASSIFIERS: dict[str, tuple[type[Any], Any]] = {
    "logistic": (LogisticRegression, BINARY),
    "multinomial": (LogisticRegression, TERNARY),
    "softmax of two": (SoftmaxRegression, BINARY),
    "hinge": (LinearSVC, BINARY),
    "hinges": (LinearSVC, TERNARY),
}
REGRESSORS: dict[str, tuple[type[Any], Any]] = {
    "least squares": (LinearRegression, VALUES),
    "ridge": (Ridge, VALUES),
    "lasso": (Lasso, VALUES),
    "elastic net": (ElasticNet, VALUES),
    "Huber": (HuberRegressor, VALUES),
}


@pytest.mark.sampled(36)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [*CLASSIFIERS, *REGRESSORS])
def test_the_run_alone_proves_what_the_model_claims(kind: str, name: str) -> None:
    model, data = (CLASSIFIERS | REGRESSORS)[kind]
    bound = {"target_bound": 4.0} if kind in REGRESSORS else {}
    fitted = model(feature_norm=4.0, options=EstimatorOptions(mechanism=name, passes=2), epsilon=2.0, delta=1e-4, **bound).fit(*data)
    assert fitted.mechanism_ == name
    alone = certify(fitted.run_, 1e-4)
    assert alone.epsilon == fitted.epsilon_ == fitted.certificate_.epsilon
    assert {finding.name for finding in alone.findings if finding.evidence == "declared" and not finding.said} <= AFTERWARDS
    assert {finding.name for finding in alone.findings if finding.said} <= {"gradient bound", "curvature"}  # the run's own word
    assert all(finding.evidence != "declared" for finding in fitted.certificate_.findings)
    recheck(fitted.certificate_)


@pytest.mark.parametrize("loss", LINEAR_LOSSES, ids=repr)
def test_the_facts_of_the_recorded_loss_are_those_of_the_loss_and_no_smaller_ones_would_do(loss: LinearLoss) -> None:
    """Gradients and curvatures in the weights, by differences of values: below the bounds everywhere, and near them somewhere."""
    rng, norm, step = np.random.default_rng(0), 1.7, 1e-4
    recorded = loss.on_rows(norm).as_recorded()
    assert recorded.evidence == "enforced"
    assert recorded.scalar == (loss.outputs == 1)
    outputs, count = loss.outputs, 400
    rows = rng.standard_normal((count, 2))
    rows *= norm / np.linalg.norm(rows, axis=1, keepdims=True)
    targets = rng.integers(max(outputs, 2), size=count).astype(float)
    # Small scores, large ones, and those where the classes are level or all are wrong.
    weights = rng.choice([0.0, 0.3, 2.0, 20.0], size=(count, 1, 1)) * rng.standard_normal((count, 2, outputs))
    wrong = np.where(np.arange(outputs)[None, :] == targets[:, None], -1.0, 1.0) if outputs > 1 else 1.0 - 2.0 * targets[:, None]
    level = rng.choice([0.0, 1.0, 6.0], size=(count, 1)) * wrong
    weights += rng.integers(2, size=(count, 1, 1)) * rows[:, :, None] * level[:, None, :] / norm**2

    def value(at: np.ndarray) -> np.ndarray:
        return loss.values(np.einsum("nd,ndk->nk", rows, at), targets)

    entries = 2 * outputs
    unit = step * np.eye(entries).reshape(entries, 2, outputs)
    gradients = np.stack([(value(weights + way) - value(weights - way)) / (2.0 * step) for way in unit], axis=1)
    bends = np.stack(
        [
            np.stack(
                [
                    (value(weights + a + b) - value(weights + a - b) - value(weights - a + b) + value(weights - a - b)) / (4.0 * step**2)
                    for b in unit
                ],
                axis=1,
            )
            for a in unit
        ],
        axis=1,
    )
    eigenvalues = np.linalg.eigvalsh((bends + bends.transpose(0, 2, 1)) / 2.0)
    bound, (weak, smooth) = recorded.known_gradient_bound, recorded.curvature or (np.inf, np.inf)
    assert bound is not None
    lengths = np.linalg.norm(gradients, axis=1)
    noise = 1e-5 * max(1.0, smooth)  # of second differences
    assert weak == 0.0
    assert eigenvalues.min() >= -noise
    # Cut below a half, a loss is a little less curved than the lemma has it.
    assert (0.9 if getattr(loss, "cut", 1.0) >= 0.5 else 0.7) * smooth <= eigenvalues.max() <= smooth + noise
    assert 0.9 * bound <= lengths.max() <= bound * (1.0 + 1e-6)


@pytest.mark.parametrize("mechanism", ["cyclic", "pass_ends"])
def test_hidden_iterates_are_planned_and_recorded_with_their_rounding(mechanism: str) -> None:
    """Scores are added up in one go, so that of 300 columns a score counts with 300 roundings."""
    generator = np.random.default_rng(0)
    features, targets = generator.normal(size=(120, 300)), generator.integers(0, 2, 120)
    asked = {"epsilon": 1.0, "delta": 1e-4, "feature_norm": 20.0, "random_state": 0, "mechanism": mechanism}
    run = build(LogisticRegression, **asked).fit(features, targets).run_
    assert isinstance(run.loss, LinearLoss)
    exact = run.replace(precision=None)
    assert run.release == "last"
    assert run.precision == zero_start_precision(exact, run.loss, 301)
    bound = gradient_rounding(exact, run.loss, 301, radius_of(run.precision), in_blocks=False)
    assert run.precision.gradient_error == pytest.approx(bound, rel=1e-5, abs=0.0)
    assert "arithmetic" in enforced(run)
    assert "arithmetic" not in enforced(exact.replace(release="all"))
