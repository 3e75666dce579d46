"""`ledger=` of estimators, and `with lethe.ledger.spending(...)`: a fit is reserved before a record is read, settled with its statement.

It is counted wherever that is: in clones, folds, searches, threads and other processes.
"""

import os
import pickle
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import lethe
from lethe.errors import BudgetExceededError, InputError, LedgerError, LetheWarning
from lethe.ledger import Budget, Ledger, Spending, spending

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import joblib
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

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

DELTA = 1e-5
NUMBERS = np.random.default_rng(0)
X = NUMBERS.uniform(-1, 1, size=(400, 3))
TARGETS, LABELS = X @ [1.0, 2.0, 3.0], (X[:, 0] > 0).astype(int)
GDP = lethe.guarantees.GDP


def by(mechanism: str, **options) -> EstimatorOptions:
    return EstimatorOptions(mechanism=mechanism, **options)


CLASSES = {"classes": [0, 1], "delta": DELTA}
QUICK = {"options": by("output_perturbation"), "feature_norm": 2.0, **CLASSES}
GAUSSIAN = {
    "logistic regression": (LogisticRegression(**CLASSES, options=by("cyclic")), LABELS),
    "by output perturbation": (LogisticRegression(**QUICK), LABELS),
    "support vectors": (LinearSVC(**CLASSES, options=by("pass_ends")), LABELS),
    "least squares": (LinearRegression(delta=DELTA, options=by("adassp")), TARGETS),
    "sparse": (ElasticNet(delta=DELTA, options=by("cyclic"), feature_norm=2.0, alpha=0.1), TARGETS),
    "a public range": (HuberRegressor(delta=DELTA, options=by("cyclic"), target_bound=6.0), TARGETS),
    "heavy tails": (HeavyTailedLinearRegression(neighbours="zero_out", delta=DELTA), TARGETS),
    "heavy tails, classes": (HeavyTailedLogisticRegression(neighbours="zero_out", **CLASSES), LABELS),
    "heavy tails, phases": (
        HeavyTailedLinearRegression(neighbours="zero_out", delta=DELTA, options=by("localised", order=4.0), radius=3.0),
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
    "Poisson batches": (LogisticRegression(**CLASSES, options=by("poisson")), LABELS),
    "perturbed objective": (LogisticRegression(**CLASSES, options=by("objective_perturbation")), LABELS),
    "search": (PrivateSearch(LogisticRegression(**QUICK), {"C": [0.1, 1.0]}, delta=DELTA, tries=2.0), LABELS),
    "search of pairs": (PrivateSearch(LogisticRegression(classes=[0, 1]), {"C": [0.1, 1.0]}, delta=1e-7, tries=2.0), LABELS),
}
"""What has not is covered by a Gaussian."""


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True, timeout=60)
    made.create("patients", neighbours="zero_out", budget=Budget(epsilon=20, delta=1e-4), by="keeper")
    return made


def copy_of(estimator: Any) -> Any:
    return clone(estimator)


def spent_on(estimator: Any, targets: Any, ledger: Ledger) -> Any:
    before = len(ledger.show("patients").lines)
    fitted = copy_of(estimator).set_params(ledger=Spending(ledger, "patients", by="team A")).fit(X, targets)
    (line,) = ledger.show("patients").lines[before:]
    return fitted, line


def states(ledger: Ledger) -> list[str]:
    return [line.state for line in ledger.show("patients").lines]


def settled(ledger: Ledger) -> int:
    assert set(states(ledger)) <= {"settled"}
    return len(states(ledger))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GAUSSIAN)
def test_what_has_gaussian_noise_is_reserved_and_settled_at_its_own_epsilon(name: str, ledger) -> None:
    fitted, line = spent_on(*GAUSSIAN[name], ledger)
    assert (line.state, line.what, line.price.slack) == ("settled", fitted.statement_.name, 0)
    alone = ledger.show("patients").epsilon_alone(line, DELTA)
    assert fitted.statement_.epsilon(DELTA) * (1 - 1e-12) <= alone <= 1.0 + 1e-6
    assert ledger.verify().recomputed == 2


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", COVERED)
def test_what_has_other_noise_is_covered_in_both_directions_of_its_profile(name: str, ledger) -> None:
    with warnings.catch_warnings(action="ignore", category=LetheWarning):  # that it counts as more
        fitted, line = spent_on(*COVERED[name], ledger)
    assert line.state == "settled"
    own, counted = fitted.statement_.guarantee, ledger.terms("patients").budget.guarantee_of(line.price)
    # A point says next to nothing of the profile below its epsilon; that a Gaussian covers it is a theorem. Else the profile is convex in
    # e^epsilon and known in both directions, so below each chord from -level to level; of 400 of them the best is some 3e-4 too high.
    levels = np.geomspace(1.0 if name == "search of pairs" else 1e-3, 20.0, 400)
    deltas, low = np.array([own.delta(level) for level in levels]), np.exp(-levels)
    for epsilon, delta in zip(levels[::7], deltas[::7], strict=True):
        chords = deltas + (1.0 - low) * (1.0 - deltas) * (np.exp(levels) - np.exp(epsilon)) / (np.exp(levels) - low)
        assert min(delta, *chords[levels >= epsilon]) <= counted.delta(epsilon) * (1 + 1e-3) + 1e-18
    assert 0.0 < line.price.slack * 2.0**-120 <= (1e-7 if name == "search of pairs" else 1e-8 * (1 + 1e-6))
    ledger.verify()


def test_zero_weights_cost_what_looked_at_data_for_them(ledger) -> None:
    fitted, line = spent_on(LogisticRegression(**CLASSES, epsilon=1e-4, feature_norm=2.0), LABELS, ledger)
    assert fitted.mechanism_ == "zeros"
    assert (line.state, line.price.cost, line.price.slack) == ("settled", 0, 0)
    rows = np.tile(X, (4, 1))
    model = ElasticNet(delta=DELTA, feature_norm=2.0, target_bound=60.0, alpha=1e6, ledger=Spending(ledger, "patients"))
    fitted = model.fit(rows, rows @ [1.0, 2.0, 3.0])  # whose range was narrowed
    line = ledger.show("patients").lines[-1]
    assert fitted.mechanism_ == "zeros"
    assert 0.07 < fitted.epsilon_ == pytest.approx(ledger.show("patients").epsilon_alone(line, DELTA), rel=1e-9)


def test_what_cannot_be_paid_or_trained_reads_no_record(ledger, monkeypatch) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("a record was read")

    monkeypatch.setattr(linear_model, "private_norm", read)
    monkeypatch.setattr(regressors, "released_range", read)
    monkeypatch.setattr(regressors, "narrowed_range", read)
    for bound in ("auto", 6.0):
        options = EstimatorOptions(narrow_range=bound != "auto", mechanism="adassp")
        estimator = LinearRegression(epsilon=30.0, delta=DELTA, target_bound=bound, options=options, ledger=Spending(ledger, "patients"))
        with pytest.raises(BudgetExceededError, match="you can still train once"):
            estimator.fit(X, TARGETS)
        assert not hasattr(estimator, "coef_")
    with pytest.raises(InputError, match="cannot train this"):
        LogisticRegression(classes=[0, 1], options=by("adassp"), ledger=Spending(ledger, "patients")).fit(X, LABELS)
    assert states(ledger) == []


def gone(*_: object, **__: object) -> None:
    raise LedgerError("the ledger is gone.")


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("owner", "name", "broken", "state"),
    [(Ledger, "start", gone, "voided"), (linear_model, "private_norm", interrupted, "started"), (Ledger, "settle", gone, "started")],
)
def test_a_fit_that_breaks_off_after_its_start_stays_counted(owner, name: str, broken, state: str, ledger, monkeypatch) -> None:
    monkeypatch.setattr(owner, name, broken)
    estimator = LogisticRegression(
        **QUICK | {"feature_norm": "auto" if owner is linear_model else 2.0}, ledger=Spending(ledger, "patients")
    )
    with pytest.raises((LedgerError, KeyboardInterrupt)):
        estimator.fit(X, LABELS)
    assert not hasattr(estimator, "coef_")
    assert not hasattr(estimator, "statement_")
    (line,) = ledger.show("patients").lines
    assert line.state == state
    assert ledger.show("patients").counted == line.price


def test_what_nothing_pays_for_is_refused(ledger) -> None:
    ledger.create("all exact", neighbours="zero_out", budget=Budget(mu=2.0), by="keeper")
    paid = Spending(ledger, "patients")
    for parameters, why in (
        ({"ledger": ledger}, "Spending"),
        ({"ledger": paid, "seed_noise": True, "random_state": 0}, "random_state"),
        ({"ledger": paid, "neighbours": "replace_one"}, "neighbours"),
        ({"ledger": Spending(ledger, "patient")}, "no data set"),
        ({"ledger": Spending(ledger, "patients", reservation=3)}, "pays for a training"),
        ({"ledger": Spending(ledger, "all exact"), "options": by("poisson", passes=1)}, "sets none aside"),
    ):
        with pytest.raises(InputError, match=why):
            LogisticRegression(**QUICK | parameters).fit(X, LABELS)
    with pytest.raises(InputError, match="unit user"):
        LogisticRegression(**QUICK | {"options": None}, ledger=paid).fit(X, LABELS, users=np.arange(len(X)) // 2)
    assert states(ledger) == []
    LogisticRegression(**QUICK, ledger=Spending(ledger, "all exact")).fit(X, LABELS)
    assert len(ledger.show("all exact").lines) == 1


def quick(**options: Any) -> LogisticRegression:
    return LogisticRegression(**QUICK, epsilon=0.1, **options)


def fitted_anew() -> str:
    try:
        quick().fit(X, LABELS)
    except InputError as error:
        return error.what
    return "fitted"


def pipeline() -> Any:
    return make_pipeline(PrivateStandardScaler(bounds=(-1, 1), epsilon=0.1, delta=1e-5), quick())


def test_every_fold_every_candidate_and_the_refit_are_counted(ledger) -> None:
    with spending(ledger, "patients", by="team A", why="folds"):
        cross_val_score(quick(), X, LABELS, cv=3)
        assert settled(ledger) == 3
        GridSearchCV(pipeline(), {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, LABELS)
        assert settled(ledger) == 3 + 2 * (2 * 2 + 1)
        OneVsRestClassifier(quick()).fit(X, np.arange(len(X)) % 3)
        assert settled(ledger) == 13 + 3
        for one in (quick(), quick(ledger=Spending(ledger, "patients", by="team A"))):  # a search is paid once, whatever its models say
            with pytest.warns(LetheWarning, match="epsilon 1 at delta = 1e-05 counts as 2.5.. at delta = 0.0001 in the budget of patients"):
                PrivateSearch(one, {"C": [0.1, 1.0]}, delta=1e-5, tries=3.0).fit(X, LABELS)
        assert settled(ledger) == 18
    assert {line.by for line in ledger.show("patients").lines} == {"team A"}
    quick().fit(X, LABELS)
    assert settled(ledger) == 18


def elsewhere(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What arrives in another process, which has opened no ledger."""
    monkeypatch.setattr("lethe.estimators.budget._OPENED", {})
    return pickle.loads(sent)


def test_clones_threads_and_what_is_sent_to_another_process_are_counted(ledger, tmp_path, monkeypatch) -> None:
    found: list[str] = []
    with spending(ledger, "patients", by="team A", why="a fold"):
        thread = threading.Thread(target=lambda: found.append(fitted_anew()))
        thread.start()
        thread.join()
        within = pickle.dumps(quick())
    assert found == ["fitted"]
    elsewhere(within, monkeypatch).fit(X, LABELS)
    fitted = copy_of(quick(ledger=Spending(ledger, "patients", by="team A", why="a fold", slack=1e-9))).fit(X, LABELS)
    sent = pickle.dumps(fitted)
    copy_of(pickle.loads(sent)).fit(X, LABELS)
    elsewhere(pickle.dumps(pickle.loads(sent)), monkeypatch).fit(X, LABELS)
    assert [(line.state, line.by, line.why) for line in ledger.show("patients").lines] == [("settled", "team A", "a fold")] * 5
    (tmp_path / "ledger.sqlite").rename(tmp_path / "elsewhere.sqlite")
    arrived = elsewhere(sent, monkeypatch)
    assert (arrived.predict(X) == fitted.predict(X)).all()
    with pytest.raises(InputError, match="is not there"):
        arrived.fit(X, LABELS)
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.nightly(by_day="test_clones_threads_and_what_is_sent_to_another_process_are_counted")
def test_without_a_ledger_no_database_is_loaded(ledger, tmp_path) -> None:
    """Nor where a model is loaded that had one."""
    fitted = LogisticRegression(**QUICK, ledger=Spending(ledger, "patients")).fit(X, LABELS)
    (tmp_path / "model").write_bytes(pickle.dumps(fitted))
    code = (
        f"import pickle, sys, numpy as np; model = pickle.load(open({str(tmp_path / 'model')!r}, 'rb')); model.predict(np.ones((2, 3)));"
        "model.set_params(ledger=None).fit(np.ones((40, 3)) / 2, np.arange(40) % 2);"
        "print(sorted({'sqlalchemy', 'alembic', 'psycopg'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_process_that_was_told_of_it_and_knows_no_ledger_refuses(ledger, monkeypatch) -> None:
    with spending(ledger, "patients"):
        told = os.environ["LETHE_SPENDING"]
    assert "LETHE_SPENDING" not in os.environ
    monkeypatch.setenv("LETHE_SPENDING", told)
    assert "would not be counted" in fitted_anew()
    quick(ledger=Spending(ledger, "patients")).fit(X, LABELS)
    with spending(ledger, "patients"):
        assert fitted_anew() == "fitted"
    assert settled(ledger) == 2
    assert os.environ["LETHE_SPENDING"] == told


@pytest.mark.nightly(by_day="test_clones_threads_and_what_is_sent_to_another_process_are_counted")
@pytest.mark.parametrize("way", ["the parameter", "the block", "forked"])
def test_joblib_s_processes_are_counted(way: str, ledger) -> None:
    if way == "the parameter":
        cross_val_score(quick(ledger=Spending(ledger, "patients")), X, LABELS, cv=3, n_jobs=2)
        assert settled(ledger) == 3
        return
    with joblib.parallel_config("multiprocessing" if way == "forked" else "loky", n_jobs=2):
        if way == "forked":
            with spending(ledger, "patients"):
                assert set(joblib.Parallel()(joblib.delayed(fitted_anew)() for _ in range(3))) == {"fitted"}
            assert settled(ledger) == 3
            return
        assert set(joblib.Parallel()(joblib.delayed(fitted_anew)() for _ in range(2))) == {"fitted"}  # they have begun before
        with spending(ledger, "patients", by="team A"):
            cross_val_score(pipeline(), X, LABELS, cv=3)
            assert settled(ledger) == 6
            answers = joblib.Parallel()(joblib.delayed(fitted_anew)() for _ in range(4))
            assert all("would not be counted" in answer for answer in answers)
        assert set(joblib.Parallel()(joblib.delayed(fitted_anew)() for _ in range(2))) == {"fitted"}
    assert settled(ledger) == 6
    ledger.verify()


def test_one_block_is_open_at_a_time_and_what_names_its_own_ledger_is_paid_by_that(ledger) -> None:
    ledger.create("others", neighbours="zero_out", budget=Budget(epsilon=2, delta=1e-4), by="keeper")
    with pytest.raises(InputError, match="no data set"), spending(ledger, "patient"):
        raise AssertionError("the block was entered")
    with spending(ledger, "patients"), pytest.raises(InputError, match="pays already"), spending(ledger, "patients"):
        raise AssertionError("the block was entered")
    with spending(ledger, "patients"):
        quick(ledger=Spending(ledger, "others")).fit(X, LABELS)
    with pytest.raises(ZeroDivisionError), spending(ledger, "patients"):
        raise ZeroDivisionError
    assert "LETHE_SPENDING" not in os.environ
    assert fitted_anew() == "fitted"
    assert states(ledger) == []
    assert len(ledger.show("others").lines) == 1
