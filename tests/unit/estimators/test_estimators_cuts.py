"""What a cut loss promises of records holds for every record, the constant feature included, and is no looser than it must be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.linear_model import LogisticRegression as PlainLogisticRegression

from lethe.estimators import LogisticRegression
from lethe.estimators.budget import PrivacyBudget
from lethe.estimators.choice.choose import MECHANISMS
from lethe.estimators.choice.cuts import cut_losses
from lethe.estimators.inputs.facts import CONSTANT, PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import LeastSquares, Logistic, SmoothedHinge, Softmax
from lethe.run.losses.linear import LinearLoss

FACTS = (
    PublicFacts(records=100, columns=4, loss=Logistic(feature_norm=1.0)),
    PublicFacts(records=100, columns=4, loss=Softmax(feature_norm=1.0, classes=3)),
    PublicFacts(records=100, columns=4, loss=LeastSquares(feature_norm=1.0, residual_bound=2.0), target_bound=2.0),
    PublicFacts(records=100, columns=4, loss=Softmax(feature_norm=1.0, classes=3), intercept=False),
)
CUT = [one for facts in FACTS for one, _ in cut_losses(facts)]


def _records(facts: PublicFacts, rng: np.random.Generator) -> Records:
    rows = rng.standard_normal((30, 4)) * rng.lognormal(sigma=3.0, size=(30, 1))
    targets = (
        rng.uniform(-2, 2, 30) if isinstance(facts.loss, LeastSquares) else rng.integers(max(facts.loss.outputs, 2), size=30).astype(float)
    )
    return Records(rows, targets, loss=facts.loss, feature_norm=1.5, intercept=facts.intercept)


@pytest.mark.sampled(3)
@pytest.mark.slow
@given(seed=st.integers(0, 10**6), size=st.floats(0.01, 1000.0))
@pytest.mark.parametrize("facts", CUT, ids=lambda facts: repr(facts.loss))
def test_no_record_has_a_longer_gradient_than_the_facts_say(facts: PublicFacts, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    records = _records(facts, rng)
    weights = size * rng.standard_normal((facts.rows, facts.loss.outputs))
    lengths = [np.linalg.norm(records.gradient_sum(weights, slice(place, place + 1))) for place in range(30)]
    assert max(lengths) <= facts.gradient_bound
    assert np.linalg.norm(records.dense(), axis=1).max() <= facts.norm


def test_the_bound_is_reached_with_the_constant() -> None:
    facts = cut_losses(FACTS[0])[1][0]
    records = Records(np.array([[1e6, 0.0]]), np.ones(1), loss=facts.loss, feature_norm=1.0, intercept=True)
    found = records.gradient_sum(np.array([[-50.0], [0.0], [0.0]]), slice(0, 1))
    assert np.linalg.norm(found) == pytest.approx(facts.gradient_bound, rel=1e-12)
    assert found[-1, 0] / found[0, 0] == pytest.approx(CONSTANT)


@pytest.mark.parametrize("loss", [SmoothedHinge(feature_norm=1.0, width=0.5), LeastSquares(feature_norm=1.0, residual_bound=1.0)])
def test_a_loss_that_was_asked_for_is_not_cut(loss: LinearLoss) -> None:
    """A hinge, and a Huber loss whose bound is well inside that of the targets."""
    facts = PublicFacts(records=100, columns=4, loss=loss, target_bound=5.0 if isinstance(loss, LeastSquares) else None)
    assert cut_losses(facts) == [(facts, 0.0)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pass_ends", "objective_perturbation", "output_perturbation"])
def test_slopes_are_cut_where_noise_is_large_and_not_where_it_is_small(name: str) -> None:
    (mechanism,) = (one for one in MECHANISMS if one.name == name)
    scarce, rich = (PublicFacts(records=records, columns=4, loss=Logistic(feature_norm=1.0)) for records in (1_000, 100_000))
    bounded = "envelope" if name == "pass_ends" else "truncated"
    assert bounded in mechanism.plan(scarce, PrivacyBudget(epsilon=0.5, delta=1e-5)).summary
    assert bounded not in mechanism.plan(rich, PrivacyBudget(epsilon=100.0, delta=1e-5)).summary


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["pass_ends", "objective_perturbation"])
def test_an_intercept_is_learned_where_classes_are_unequal(name: str) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 3))
    labels = (rows[:, 0] + rng.logistic(size=20_000) > 2.0).astype(int)
    plain = PlainLogisticRegression().fit(rows, labels)
    model = LogisticRegression(
        epsilon=8.0, feature_norm=3.0, options=EstimatorOptions(mechanism=name), random_state=0, seed_noise=True
    ).fit(rows, labels)
    assert model.score(rows, labels) > plain.score(rows, labels) - 0.01
    assert abs(model.predict_proba(rows)[:, 1].mean() - labels.mean()) < 0.05


@pytest.mark.slow
def test_long_rows_are_projected_in_prediction_as_in_training() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2_000, 3))
    model = LogisticRegression(feature_norm=1.5, options=EstimatorOptions(mechanism="pass_ends")).fit(rows, (rows[:, 0] > 0).astype(int))
    projected = rows * np.minimum(1.0, 1.5 / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(model.decision_function(rows), projected @ model.coef_[0] + model.intercept_[0], atol=1e-12)
    np.testing.assert_allclose(model.decision_function(sparse.csr_array(rows)), model.decision_function(rows), atol=1e-12)
    np.testing.assert_allclose(model.decision_function(np.zeros((1, 3))), model.intercept_)
