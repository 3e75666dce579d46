"""`ledger=` of estimators: reserved before anything of a record is released, settled with the statement, at the price of its noise."""

import pickle
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from lethe.errors import BudgetExceededError, InputError, LedgerError
from lethe.ledger import Budget, Ledger, Spending

pytest.importorskip("sklearn")
pytest.importorskip("torch")

from sklearn.base import clone

import lethe
from lethe.estimators import (
    ElasticNet,
    HeavyTailedLinearRegression,
    HeavyTailedLogisticRegression,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivateMean,
    PrivatePCA,
    PrivateQuantileClipper,
    PrivateSearch,
    PrivateStandardScaler,
    PrivateWhitening,
)
from lethe.estimators.models import linear_model, regressors
from lethe.estimators.options import EstimatorOptions
from lethe.ledger.database import Database
from lethe.mechanisms.quantiles.quantile import private_quantile

DELTA = 1e-5
NUMBERS = np.random.default_rng(0)
X = NUMBERS.uniform(-1, 1, size=(400, 3))
TARGETS = X @ [1.0, 2.0, 3.0]
LABELS = (X[:, 0] > 0).astype(int)
QUICK = {"options": EstimatorOptions(mechanism="output_perturbation"), "feature_norm": 2.0, "classes": [0, 1], "delta": DELTA}

GAUSSIAN = {
    "logistic regression": (LogisticRegression(classes=[0, 1], delta=DELTA, options=EstimatorOptions(mechanism="cyclic")), LABELS),
    "by output perturbation": (LogisticRegression(**QUICK), LABELS),
    "support vectors": (LinearSVC(classes=[0, 1], delta=DELTA, options=EstimatorOptions(mechanism="pass_ends")), LABELS),
    "least squares": (LinearRegression(delta=DELTA, options=EstimatorOptions(mechanism="adassp")), TARGETS),
    "sparse": (ElasticNet(delta=DELTA, options=EstimatorOptions(mechanism="cyclic"), feature_norm=2.0, alpha=0.1), TARGETS),
    "a public range": (HuberRegressor(delta=DELTA, options=EstimatorOptions(mechanism="cyclic"), target_bound=6.0), TARGETS),
    "heavy tails": (HeavyTailedLinearRegression(neighbours="zero_out", delta=DELTA), TARGETS),
    "heavy tails, classes": (HeavyTailedLogisticRegression(neighbours="zero_out", delta=DELTA, classes=[0, 1]), LABELS),
    "heavy tails, phases": (
        HeavyTailedLinearRegression(
            neighbours="zero_out", delta=DELTA, options=EstimatorOptions(mechanism="localised", order=4.0), radius=3.0
        ),
        TARGETS,
    ),
    "mean": (PrivateMean(neighbours="zero_out", delta=DELTA), None),
    "scaler": (PrivateStandardScaler(delta=DELTA), None),
    "clipper": (PrivateQuantileClipper(delta=DELTA, norm_quantile=0.5), None),
    "components": (PrivatePCA(delta=DELTA), None),
    "whitening": (PrivateWhitening(delta=DELTA), None),
}
"""What has Gaussian noise alone costs its own epsilon."""
COVERED = {
    "shuffled batches": (
        LogisticRegression(classes=[0, 1], delta=DELTA, options=EstimatorOptions(mechanism="shuffled_once", passes=2)),
        LABELS,
    ),
    "Poisson batches": (LogisticRegression(classes=[0, 1], delta=DELTA, options=EstimatorOptions(mechanism="poisson")), LABELS),
    "perturbed objective": (
        LogisticRegression(classes=[0, 1], delta=DELTA, options=EstimatorOptions(mechanism="objective_perturbation")),
        LABELS,
    ),
    "search": (PrivateSearch(LogisticRegression(**QUICK), {"C": [0.1, 1.0]}, delta=DELTA, tries=2.0), LABELS),
    "search of pairs": (PrivateSearch(LogisticRegression(classes=[0, 1]), {"C": [0.1, 1.0]}, delta=1e-7, tries=2.0), LABELS),
}
"""What has not is covered by a Gaussian."""


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    made.create("patients", neighbours="zero_out", budget=Budget(epsilon=20, delta=1e-4), by="keeper")
    return made


def copy_of(estimator: Any) -> Any:
    return clone(estimator)


def spent_on(estimator, targets, ledger: Ledger):
    before = len(ledger.show("patients").lines)
    fitted = copy_of(estimator).set_params(ledger=Spending(ledger, "patients", by="team A")).fit(X, targets)
    (line,) = ledger.show("patients").lines[before:]
    return fitted, line


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", GAUSSIAN)
def test_what_has_gaussian_noise_is_reserved_and_settled_at_its_own_epsilon(name: str, ledger) -> None:
    fitted, line = spent_on(*GAUSSIAN[name], ledger)
    assert line.state == "settled"
    assert line.what == fitted.statement_.name
    alone = ledger.show("patients").epsilon_alone(line, DELTA)
    assert fitted.statement_.epsilon(DELTA) * (1 - 1e-12) <= alone <= 1.0 + 1e-6
    assert line.price.slack == 0
    assert ledger.verify().recomputed == 2


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", COVERED)
def test_what_has_other_noise_is_covered_in_both_directions_of_its_profile(name: str, ledger) -> None:
    fitted, line = spent_on(*COVERED[name], ledger)
    assert line.state == "settled"
    own, counted = fitted.statement_.guarantee, ledger.terms("patients").budget.guarantee_of(line.price)
    # A point says next to nothing of the profile below its epsilon; that a Gaussian covers it is a theorem.
    for epsilon in np.geomspace(1.0 if name == "search of pairs" else 1e-3, 20.0, 60):
        assert own.delta(epsilon) <= counted.delta(epsilon) * (1 + 1e-9) + 1e-18
    assert 0.0 < line.price.slack * 2.0**-120 <= (1e-7 if name == "search of pairs" else 1e-8 * (1 + 1e-6))
    ledger.verify()


@pytest.mark.slow
def test_a_ledger_pays_for_no_perturbed_objective_unasked(ledger) -> None:
    estimator = LogisticRegression(epsilon=8.0, classes=[0, 1], delta=DELTA, feature_norm=2.0, options=EstimatorOptions(whiten=False))
    fitted, line = spent_on(estimator, LABELS, ledger)
    assert fitted.mechanism_ != "objective_perturbation"
    assert "objective_perturbation" in fitted.privacy_report_
    assert copy_of(estimator).fit(X, LABELS).mechanism_ == "objective_perturbation"
    assert ledger.show("patients").epsilon_alone(line, DELTA) <= 8.0 * (1 + 1e-6)


def test_weights_that_look_at_no_data_cost_nothing(ledger) -> None:
    fitted, line = spent_on(LogisticRegression(classes=[0, 1], epsilon=1e-4, delta=DELTA, feature_norm=2.0), LABELS, ledger)
    assert fitted.mechanism_ == "zeros"
    assert (line.state, line.price.cost, line.price.slack) == ("settled", 0, 0)


def test_zero_weights_cost_what_narrowed_their_range(ledger) -> None:
    rows = np.tile(X, (4, 1))
    model = ElasticNet(delta=DELTA, feature_norm=2.0, target_bound=60.0, alpha=1e6, ledger=Spending(ledger, "patients"))
    fitted = model.fit(rows, rows @ [1.0, 2.0, 3.0])
    (line,) = ledger.show("patients").lines
    assert fitted.mechanism_ == "zeros"
    assert 0.07 < fitted.epsilon_ == pytest.approx(ledger.show("patients").epsilon_alone(line, DELTA), rel=1e-9)


def test_a_fit_that_does_not_fit_the_budget_releases_nothing(ledger, monkeypatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(linear_model, "private_norm", read)
    monkeypatch.setattr(regressors, "released_range", read)
    monkeypatch.setattr(regressors, "narrowed_range", read)
    for bound in ("auto", 6.0):
        given = {"target_bound": bound, "options": EstimatorOptions(narrow_range=bound != "auto", mechanism="adassp")}
        estimator = LinearRegression(epsilon=30.0, delta=DELTA, ledger=Spending(ledger, "patients"), **given)
        with pytest.raises(BudgetExceededError, match="still fits"):
            estimator.fit(X, TARGETS)
        assert ledger.show("patients").lines == ()
        assert not hasattr(estimator, "coef_")


def test_what_is_asked_of_a_mechanism_in_vain_is_refused_before_a_release(ledger, monkeypatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(linear_model, "private_norm", read)
    with pytest.raises(InputError, match="cannot train this"):
        LogisticRegression(classes=[0, 1], options=EstimatorOptions(mechanism="adassp"), ledger=Spending(ledger, "patients")).fit(X, LABELS)
    assert ledger.show("patients").lines == ()


def test_a_fit_that_breaks_off_after_its_noise_stays_counted(ledger, monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(linear_model, "private_norm", broken)
    estimator = LogisticRegression(**QUICK | {"feature_norm": "auto"}, ledger=Spending(ledger, "patients"))
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(X, LABELS)
    (line,) = ledger.show("patients").lines
    assert line.state == "started"
    assert ledger.show("patients").counted == line.price
    with pytest.raises(InputError, match="may have been"):
        ledger.void(line.number, reason="it was interrupted")


def test_a_fit_whose_ledger_is_gone_in_the_middle_fails_and_stays_counted(ledger, monkeypatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise LedgerError("the ledger is gone.")

    monkeypatch.setattr(Ledger, "settle", gone)
    estimator = LogisticRegression(**QUICK, ledger=Spending(ledger, "patients"))
    with pytest.raises(LedgerError):
        estimator.fit(X, LABELS)
    assert not hasattr(estimator, "coef_")
    assert not hasattr(estimator, "statement_")
    assert ledger.show("patients").lines[0].state == "started"


def test_a_fit_that_cannot_say_that_it_starts_is_given_back(ledger, monkeypatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise LedgerError("the ledger is gone.")

    monkeypatch.setattr(Ledger, "start", gone)
    with pytest.raises(LedgerError):
        LogisticRegression(**QUICK, ledger=Spending(ledger, "patients")).fit(X, LABELS)
    assert ledger.show("patients").lines[0].state == "voided"


@pytest.mark.slow
def test_a_fit_that_costs_more_than_it_planned_is_not_settled(ledger, monkeypatch) -> None:
    monkeypatch.setattr("lethe.estimators.budget.PrivacyBudget.as_gaussian", lambda self: lethe.guarantees.GDP(0.5 * self.total_mu))
    with pytest.raises(BudgetExceededError, match="more than was reserved"):
        PrivateMean(neighbours="zero_out", delta=DELTA, ledger=Spending(ledger, "patients")).fit(X)
    assert ledger.show("patients").lines[0].state == "started"


@pytest.mark.slow
def test_what_nothing_pays_for_is_refused(ledger) -> None:
    spending = Spending(ledger, "patients")
    for wrong, why in (
        (LogisticRegression(**QUICK, ledger=ledger), "Spending"),
        (LogisticRegression(**QUICK, ledger=spending, seed_noise=True, random_state=0), "random_state"),
        (LogisticRegression(**QUICK, ledger=spending, neighbours="replace_one"), "neighbours"),
        (LogisticRegression(**QUICK, ledger=Spending(ledger, "patient")), "no data set"),
        (LogisticRegression(**QUICK, ledger=Spending(ledger, "patients", reservation=3)), "pays for a training"),
    ):
        with pytest.raises(InputError, match=why):
            wrong.fit(X, LABELS)
    users = np.arange(len(X)) // 2
    with pytest.raises(InputError, match="unit user"):
        LogisticRegression(**QUICK | {"options": None}, ledger=spending).fit(X, LABELS, users=users)
    assert ledger.show("patients").lines == ()


@pytest.mark.slow
def test_a_budget_that_sets_nothing_aside_pays_for_gaussian_noise_alone(tmp_path) -> None:
    made = Ledger.open(tmp_path / "mu.sqlite", make=True)
    made.create("patients", neighbours="zero_out", budget=Budget(mu=2.0), by="keeper")
    LogisticRegression(**QUICK, ledger=Spending(made, "patients")).fit(X, LABELS)
    with pytest.raises(InputError, match="sets no share of delta aside"):
        LogisticRegression(
            **QUICK | {"options": EstimatorOptions(mechanism="shuffled_once", passes=1)}, ledger=Spending(made, "patients")
        ).fit(X, LABELS)
    assert len(made.show("patients").lines) == 1


@pytest.mark.slow
def test_a_search_is_paid_once_whatever_its_models_say(ledger) -> None:
    spending = Spending(ledger, "patients")
    inner = LogisticRegression(**QUICK, ledger=spending)
    PrivateSearch(inner, {"C": [0.1, 1.0]}, delta=DELTA, tries=3.0, ledger=spending).fit(X, LABELS)
    assert [line.state for line in ledger.show("patients").lines] == ["settled"]


@pytest.mark.slow
def test_clones_and_copies_in_a_pickle_are_paid(ledger) -> None:
    estimator = LogisticRegression(**QUICK, ledger=Spending(ledger, "patients", by="team A", why="a fold", slack=1e-9))
    copy_of(estimator).fit(X, LABELS)
    sent = pickle.dumps(copy_of(estimator))
    arrived = pickle.loads(sent)
    copy_of(arrived).fit(X, LABELS)
    again = pickle.loads(pickle.dumps(arrived))
    again.fit(X, LABELS)
    assert [(line.state, line.by, line.why) for line in ledger.show("patients").lines] == [("settled", "team A", "a fold")] * 3


def test_a_copy_whose_ledger_is_not_there_predicts_and_does_not_fit(ledger, tmp_path, monkeypatch) -> None:
    fitted = LogisticRegression(**QUICK, ledger=Spending(ledger, "patients")).fit(X, LABELS)
    sent = pickle.dumps(fitted)
    ledger.close()
    monkeypatch.setattr("lethe.estimators.paying._OPENED", {})  # as in another process
    (tmp_path / "ledger.sqlite").rename(tmp_path / "elsewhere.sqlite")
    arrived = pickle.loads(sent)
    assert (arrived.predict(X) == fitted.predict(X)).all()
    with pytest.raises(InputError, match="is not there"):
        arrived.fit(X, LABELS)
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_clones_and_copies_in_a_pickle_are_paid")
def test_without_a_ledger_no_database_is_loaded() -> None:
    code = (
        "import pickle, sys, numpy as np; from lethe.estimators import EstimatorOptions, LogisticRegression; X = np.ones((40, 2)) / 2; "
        "y = np.arange(40) % 2; options = EstimatorOptions(mechanism='output_perturbation'); "
        "model = LogisticRegression(feature_norm=1.0, options=options, classes=[0, 1]).fit(X, y); "
        "pickle.loads(pickle.dumps(model)).predict(X); print(sorted({'sqlalchemy', 'alembic', 'psycopg'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("url", ["postgresql://user:secret@host/name", "postgresql://user@host/name?password=secret&sslpassword=secret"])
def test_a_password_is_not_sent_along(url: str) -> None:
    pytest.importorskip("psycopg")
    database = Database(url)
    assert database.place == "postgresql+psycopg://user@host/name"
    assert "secret" not in database.place
    assert b"secret" not in pickle.dumps(LogisticRegression(ledger=Spending(Ledger(database), "patients")))


@pytest.mark.slow
def test_a_release_by_hand_is_paid(ledger) -> None:
    spending = Spending(ledger, "patients", by="team A")
    with spending.release(lethe.guarantees.GDP(0.1)) as release:
        found = private_quantile(
            X[:, 0], quantile=0.5, low=-1.0, high=1.0, target=lethe.guarantees.GDP(0.1), neighbours="zero_out", records=len(X)
        )
        release.settle(found.statement)
    with pytest.raises(BudgetExceededError, match="more than was reserved"), spending.release(lethe.guarantees.GDP(0.1)) as release:
        release.settle(
            private_quantile(
                X[:, 0], quantile=0.5, low=-1.0, high=1.0, target=lethe.guarantees.GDP(0.2), neighbours="zero_out", records=len(X)
            ).statement
        )
    with pytest.raises(BudgetExceededError), spending.release(lethe.guarantees.GDP(20.0)):
        raise AssertionError("the block was entered")
    assert [line.state for line in ledger.show("patients").lines] == ["settled", "started"]
    ledger.verify()


def test_more_may_be_reserved_than_a_release_costs(ledger) -> None:
    plain, more = ledger.reserve("patients", lethe.guarantees.GDP(0.1)), ledger.reserve("patients", lethe.guarantees.GDP(0.1), margin=1e-5)
    assert 0 <= more.price.cost - plain.price.cost * (1 + Fraction(1e-5)) < 1
    ledger.start(more)
    ledger.settle(more, lethe.guarantees.GDP(0.1 * (1 + 4e-6)))
    with pytest.raises(InputError):
        ledger.reserve("patients", lethe.guarantees.GDP(0.1), margin=-0.1)
    ledger.verify()
