"""Losses that are cut, noise that wanes, statements that compose, and columns scaled by public ranges."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators import LogisticRegression, PublicScaler
from lethe.estimators.choice.risk import cut_losses
from lethe.estimators.choice.run_shapes import best_shape, waning_kept, waning_variances
from lethe.estimators.choice.runs import RunMechanism
from lethe.estimators.inputs.facts import CONSTANT, PublicFacts
from lethe.estimators.inputs.records import Records
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.run.losses import LeastSquares, Logistic, OneVersusRest, SmoothedHinge, Softmax
from lethe.run.losses.linear import LinearLoss


@pytest.mark.parametrize("passes", [1, 2, 7, 400])
def test_the_variances_pay_together_for_one_and_what_is_kept_is_their_sum(passes: int) -> None:
    noise = waning_variances(passes)
    assert np.sum(1.0 / noise) == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.diff(noise) < 0.0)
    for decay in (0.0, 1e-3, 0.5, 0.97, 0.9999, 1.0):
        summed = np.sum(noise * decay ** (2.0 * np.arange(passes - 1, -1, -1)))
        assert float(waning_kept(np.array([decay]), passes)[0]) == pytest.approx(summed, rel=0.01)


def test_a_run_with_noise_that_is_a_hundredth_too_small_costs_more_than_mu() -> None:
    """Composition over the passes: the certificate is mu, neither less nor more, whatever the shape."""
    facts = PublicFacts(records=2000, columns=5, loss=Logistic(feature_norm=1.0), passes=5, neighbours="zero_out")
    shape = best_shape(facts, "cyclic", "pass_ends", 0.3)
    run = RunMechanism("pass_ends", "cyclic", "pass_ends")._run(shape)  # pyright: ignore[reportPrivateUsage]
    assert run.noise_multipliers[run.noisy_steps] == pytest.approx(np.sqrt(waning_variances(5)))
    exact = run.with_noise_scaled(1.0 / 0.3)
    assert certify(exact, 1e-6).epsilon == pytest.approx(GDP(0.3).epsilon(1e-6), rel=1e-6)
    assert certify(exact.with_noise_scaled(0.99), 1e-6).epsilon > GDP(0.3 * 1.005).epsilon(1e-6)


FACTS = (
    PublicFacts(records=100, columns=4, loss=Logistic(feature_norm=1.0)),
    PublicFacts(records=100, columns=4, loss=Softmax(feature_norm=1.0, classes=3)),
    PublicFacts(records=100, columns=4, loss=LeastSquares(feature_norm=1.0, residual_bound=2.0), target_bound=2.0),
    PublicFacts(records=100, columns=4, loss=Softmax(feature_norm=1.0, classes=3), intercept=False),
    PublicFacts(records=100, columns=4, loss=SmoothedHinge(feature_norm=1.0, width=0.5)),
    PublicFacts(records=100, columns=4, loss=OneVersusRest(feature_norm=1.0, classes=3, width=0.5)),
)
CUT = [one for facts in FACTS for one, _ in cut_losses(facts)]


def _records(facts: PublicFacts, rng: np.random.Generator) -> Records:
    rows = rng.standard_normal((30, 4)) * rng.lognormal(sigma=3.0, size=(30, 1))
    targets = (
        rng.uniform(-2, 2, 30) if isinstance(facts.loss, LeastSquares) else rng.integers(max(facts.loss.outputs, 2), size=30).astype(float)
    )
    return Records(rows, targets, loss=facts.loss, feature_norm=1.5, intercept=facts.intercept)


@pytest.mark.sampled(3)
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


def test_long_rows_are_projected_in_prediction_as_in_training() -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2_000, 3))
    model = LogisticRegression(feature_norm=1.5, options=EstimatorOptions(mechanism="pass_ends")).fit(rows, (rows[:, 0] > 0).astype(int))
    projected = rows * np.minimum(1.0, 1.5 / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(model.decision_function(rows), projected @ model.coef_[0] + model.intercept_[0], atol=1e-12)
    np.testing.assert_allclose(model.decision_function(sparse.csr_array(rows)), model.decision_function(rows), atol=1e-12)
    np.testing.assert_allclose(model.decision_function(np.zeros((1, 3))), model.intercept_)


def part(name: str, mu: float) -> Statement:
    finding = holds("sensitivity", f"of {name}", evidence="enforced")
    return Statement(name=name, guarantee=GDP(mu), neighbours="replace_one", findings=(finding,), citations=())


class Releases(PrivateEstimator):
    """Releases nothing, and says what it is told to."""

    def fit(self, parts: list[Statement], total: Statement | None = None) -> Self:
        budget, chance = self._budget(100), self._randomness(100)
        assert (chance.norm is None) == (not self.seed_noise)
        self._state(parts, budget, 100, why=["a reason"], public=["a fact"], total=total)
        return self


def test_parts_compose_unless_their_total_is_known() -> None:
    parts = [part("one", 0.3), part("two", 0.4)]
    together = Releases(delta=1e-4).fit(parts)
    assert together.certificate_ is together.statement_
    assert (together.statement_.name, together.delta_) == ("one; two", 1e-4)
    assert together.epsilon_ == together.statement_.epsilon(1e-4) == pytest.approx(GDP(0.5).epsilon(1e-4), rel=1e-12)
    assert Releases().fit(parts[:1]).statement_ == parts[0]
    apart = Releases().fit(parts, part("the worse of the two", 0.4))
    assert apart.statement_ == part("the worse of the two", 0.4)
    for line in ("one: epsilon", "two: epsilon", "a reason", "a fact", "100, is public"):
        assert line in apart.privacy_report_
    assert apart.delta_ == 1e-5


def test_seeded_noise_is_no_release() -> None:
    plain, seeded = (Releases(random_state=1, seed_noise=seed).fit([part("one", 0.3)]) for seed in (False, True))
    assert [finding.evidence for finding in plain.statement_.findings] == ["enforced"]
    assert [(finding.name, finding.status) for finding in seeded.statement_.findings] == [
        ("sensitivity", "holds"),
        ("fresh noise", "fails"),
    ]
    assert seeded.epsilon_ == math.inf > seeded.statement_.planned.epsilon(seeded.delta_) == plain.epsilon_
    assert (plain.__sklearn_tags__().non_deterministic, seeded.__sklearn_tags__().non_deterministic) == (True, False)


TABLE = np.array([[0.0, 10.0, -4.0], [50.0, 20.0, 4.0], [100.0, 40.0, 9.0], [200.0, 0.0, np.nan]])


def test_ranges_become_minus_one_to_one_and_what_is_beyond_is_clipped() -> None:
    scaler = PublicScaler([0.0, 0.0, -8.0], [100.0, 40.0, 8.0])
    expected = np.array([[-1.0, -0.5, -0.5], [0.0, 0.0, 0.5], [1.0, 1.0, 1.0], [1.0, -1.0, np.nan]])
    assert np.array_equal(scaler.fit_transform(TABLE), expected, equal_nan=True)
    open_ended = PublicScaler(scaler.low, scaler.high, clip=False).fit(TABLE)
    assert open_ended.transform(TABLE)[3, 0] == 3.0
    assert np.allclose(open_ended.inverse_transform(open_ended.transform(TABLE)), TABLE, equal_nan=True)
    assert scaler.inverse_transform(expected)[3, 0] == 100.0
    learned = MinMaxScaler((-1, 1), clip=True).fit([[0.0, 0.0, -8.0], [100.0, 40.0, 8.0]])
    assert np.allclose(scaler.transform(TABLE), learned.transform(TABLE), equal_nan=True)
    # Nothing of the records is kept, so it need not be fitted.
    assert np.array_equal(PublicScaler(scaler.low, scaler.high).transform(TABLE), expected, equal_nan=True)
    assert set(vars(scaler)) == {"low", "high", "clip", "n_features_in_"}


@given(
    low=st.floats(-1e100, 1e100),
    width=st.floats(1e-200, 1e100),
    entry=st.floats(allow_nan=False, allow_infinity=False),
    single=st.booleans(),
)
def test_entries_are_within_one_whatever_they_are(low: float, width: float, entry: float, single: bool) -> None:
    high = low + width
    if not low < high <= 1e100 or not (high - low) / 2.0 > 0.0:
        return
    with np.errstate(over="ignore"):
        table = np.array([[entry]], dtype=np.float32 if single else np.float64)
    if np.isfinite(table).all():
        assert abs(PublicScaler(low, high).transform(table)[0, 0]) <= 1.0


def test_sparse_tables_stay_sparse_where_zeros_stay_zeros() -> None:
    table = np.array([[0.0, 3.0], [-8.0, 0.0], [1.0, -0.5]])
    symmetric = PublicScaler([-4.0, -1.0], [4.0, 1.0])
    for rows in (sparse.csr_array(table), sparse.csc_array(table), sparse.csr_matrix(table).astype(np.float32)):
        scaled: Any = symmetric.fit_transform(rows)
        assert not isinstance(scaled, np.ndarray)
        assert np.array_equal(scaled.toarray(), symmetric.transform(table))
    with pytest.raises(InputError, match=r"(?s)sparse table; a range that is not symmetric.*from -b to b"):
        PublicScaler([-4.0, 0.0], [4.0, 1.0]).fit(sparse.csr_array(table))
