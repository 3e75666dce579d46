"""The private linear SVM: its objective without noise, certificates for two classes and more, bounds, refusals, scikit-learn's checks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from excused_checks import EXCUSED, SEEDED
from private_cases import three_blobs, two_blobs
from scipy.optimize import minimize
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.accounting.certify import certify
from lethe.estimators import LinearSVC
from lethe.estimators.choice.choose import NAMES as MECHANISMS
from lethe.estimators.inputs.facts import CONSTANT
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import OneVersusRest, SmoothedHinge

NAMES = [name for name in MECHANISMS if name not in ("auto", "sgd", "adassp", "poisson")]
skips = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.EstimatorCheckFailedWarning")


@pytest.mark.sampled(12)
@skips
@parametrize_with_checks([LinearSVC(**SEEDED)], expected_failed_checks=lambda estimator: EXCUSED)
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "objective_perturbation"])
def test_three_classes_meet_the_target_and_declare_nothing(name: str) -> None:
    model = LinearSVC(options=EstimatorOptions(mechanism=name), epsilon=0.8, delta=1e-4, feature_norm=4.0).fit(*three_blobs())
    assert 0.79 < model.epsilon_ <= 0.8
    assert {finding.evidence for finding in model.certificate_.findings} <= {"checked", "enforced"}
    assert model.coef_.shape == (3, 4)
    if model.run_ is not None:
        assert model.run_.loss.kind == "one_versus_rest_hinge"
        # sqrt(K) times the norm of a row with its constant
        assert model.run_.loss.known_gradient_bound == pytest.approx(math.sqrt(3.0 * (1.0 + CONSTANT**2)))
        assert certify(model.run_, 1e-4).epsilon == model.epsilon_


@pytest.mark.parametrize(
    "loss", [SmoothedHinge(feature_norm=1.0, width=0.5), OneVersusRest(feature_norm=1.0, classes=3, width=0.5)], ids=["two", "three"]
)
def test_no_record_has_a_longer_gradient_than_the_run_says(loss: Any) -> None:
    rng = np.random.default_rng(0)
    table, targets = 10.0 * rng.standard_normal((50, 3)), rng.integers(0, loss.outputs + (loss.outputs == 1), 50).astype(float)
    records = Records(table, targets, loss=loss, feature_norm=2.0, intercept=True)
    bound = loss.on_rows(math.sqrt(1.0 + CONSTANT**2)).row_gradient_bound
    longest = 0.0
    for scale in (0.0, 1.0, 100.0):
        weights = scale * rng.standard_normal((4, loss.outputs))
        for record in range(50):
            longest = max(longest, float(np.linalg.norm(records.gradient_sum(weights, slice(record, record + 1)))))
    assert 0.99 * bound < longest <= bound


def test_without_noise_it_is_its_objective() -> None:
    X, y = two_blobs(records=100)
    quiet = {"epsilon": 1e6, "delta": 1e-5, "feature_norm": 100.0, "random_state": 0, "seed_noise": True}
    model = LinearSVC(C=0.02, width=0.3, fit_intercept=False, options=EstimatorOptions(mechanism="output_perturbation"), **quiet)
    model.set_params(epsilon=1e12).fit(X, y)

    def objective(w: np.ndarray) -> float:
        short = 1.0 - (2 * y - 1) * (X @ w)
        rounded = np.where(np.abs(short) <= 0.3, (short + 0.3) ** 2 / 1.2, np.maximum(short, 0.0))
        return float(rounded.sum() + 0.5 / 0.02 * w @ w)

    np.testing.assert_allclose(model.coef_[0], minimize(objective, np.zeros(3), tol=1e-12).x, atol=0.01)
