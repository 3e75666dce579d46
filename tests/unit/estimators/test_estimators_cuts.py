"""What a cut loss promises of records holds for every record, the constant feature included, and is no looser than it must be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from lethe.estimators import LogisticRegression
from lethe.estimators.choice.risk import cut_losses
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
def test_long_rows_are_projected_in_prediction_as_in_training() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2_000, 3))
    model = LogisticRegression(feature_norm=1.5, options=EstimatorOptions(mechanism="pass_ends")).fit(rows, (rows[:, 0] > 0).astype(int))
    projected = rows * np.minimum(1.0, 1.5 / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(model.decision_function(rows), projected @ model.coef_[0] + model.intercept_[0], atol=1e-12)
    np.testing.assert_allclose(model.decision_function(sparse.csr_array(rows)), model.decision_function(rows), atol=1e-12)
    np.testing.assert_allclose(model.decision_function(np.zeros((1, 3))), model.intercept_)
