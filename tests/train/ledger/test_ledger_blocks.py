"""`with lethe.ledger.spending(...)`: every fit within is counted: of clones, folds, searches, threads and other processes; or refused."""

import os
import pickle
import threading

import numpy as np
import pytest

from lethe.errors import InputError
from lethe.ledger import Budget, Ledger, Spending, spending

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import joblib
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler
from lethe.estimators.options import EstimatorOptions

DELTA = 1e-5
X = np.random.default_rng(0).uniform(-1, 1, size=(120, 3))
LABELS = (X[:, 0] > 0).astype(int)
QUICK = {"options": EstimatorOptions(mechanism="output_perturbation"), "feature_norm": 2.0, "classes": [0, 1], "delta": DELTA}


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True, timeout=60)
    made.create("patients", neighbours="zero_out", budget=Budget(epsilon=20, delta=1e-4), by="keeper")
    return made


def states(ledger: Ledger) -> list[str]:
    return [line.state for line in ledger.show("patients").lines]


def settled(ledger: Ledger) -> int:
    assert set(states(ledger)) <= {"settled"}
    return len(states(ledger))


def made_and_fitted() -> str:
    try:
        LogisticRegression(**QUICK, epsilon=0.1).fit(X, LABELS)
    except InputError as error:
        return error.what
    return "fitted"


def pipeline():
    return make_pipeline(PrivateStandardScaler(bounds=(-1, 1), epsilon=0.1, delta=1e-5), LogisticRegression(**QUICK, epsilon=0.1))


def test_every_fold_every_candidate_and_the_refit_are_counted(ledger) -> None:
    quick = LogisticRegression(**QUICK, epsilon=0.1)
    with spending(ledger, "patients", by="team A", why="folds"):
        cross_val_score(quick, X, LABELS, cv=3)
        assert settled(ledger) == 3
        GridSearchCV(pipeline(), {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, LABELS)
        assert settled(ledger) == 3 + 2 * (2 * 2 + 1)
        OneVsRestClassifier(quick).fit(X, np.arange(len(X)) % 3)
        assert settled(ledger) == 13 + 3
        inner = LogisticRegression(**QUICK, epsilon=0.1, ledger=Spending(ledger, "patients", by="team A"))
        for one in (quick, inner):  # a search is paid once, whatever its models say
            PrivateSearch(one, {"C": [0.1, 1.0]}, delta=1e-5, tries=3.0).fit(X, LABELS)
        assert settled(ledger) == 18
    assert {line.by for line in ledger.show("patients").lines} == {"team A"}
    quick.fit(X, LABELS)
    assert settled(ledger) == 18


def test_threads_and_what_is_sent_to_another_process_are_counted(ledger, monkeypatch) -> None:
    found: list[str] = []
    with spending(ledger, "patients", by="team A"):
        thread = threading.Thread(target=lambda: found.append(made_and_fitted()))
        thread.start()
        thread.join()
        sent = pickle.dumps(LogisticRegression(**QUICK))
    assert found == ["fitted"]
    monkeypatch.setattr("lethe.estimators.budget._OPENED", {})  # as over there
    pickle.loads(sent).fit(X, LABELS)
    assert settled(ledger) == 2
    assert {line.by for line in ledger.show("patients").lines} == {"team A"}


def test_a_process_that_was_told_of_it_and_knows_no_ledger_refuses(ledger, monkeypatch) -> None:
    with spending(ledger, "patients"):
        told = os.environ["LETHE_SPENDING"]
    assert "LETHE_SPENDING" not in os.environ
    monkeypatch.setenv("LETHE_SPENDING", told)
    assert "would not be counted" in made_and_fitted()
    LogisticRegression(**QUICK, ledger=Spending(ledger, "patients")).fit(X, LABELS)
    with spending(ledger, "patients"):
        assert made_and_fitted() == "fitted"
    assert settled(ledger) == 2
    assert os.environ["LETHE_SPENDING"] == told


@pytest.mark.nightly(by_day="test_threads_and_what_is_sent_to_another_process_are_counted")
@pytest.mark.parametrize("way", ["the parameter", "the block", "forked"])
def test_joblib_s_processes_are_counted(way: str, ledger) -> None:
    if way == "the parameter":
        cross_val_score(LogisticRegression(**QUICK, ledger=Spending(ledger, "patients")), X, LABELS, cv=3, n_jobs=2)
        assert settled(ledger) == 3
        return
    with joblib.parallel_config("multiprocessing" if way == "forked" else "loky", n_jobs=2):
        if way == "forked":
            with spending(ledger, "patients"):
                assert set(joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(3))) == {"fitted"}
            assert settled(ledger) == 3
            return
        assert set(joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(2))) == {"fitted"}  # they have begun before
        with spending(ledger, "patients", by="team A"):
            cross_val_score(pipeline(), X, LABELS, cv=3)
            assert settled(ledger) == 6
            answers = joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(4))
            assert all("would not be counted" in answer for answer in answers)
        assert set(joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(2))) == {"fitted"}
    assert settled(ledger) == 6
    ledger.verify()


def test_one_block_is_open_at_a_time_and_what_names_its_own_ledger_is_paid_by_that(ledger) -> None:
    ledger.create("others", neighbours="zero_out", budget=Budget(epsilon=2, delta=1e-4), by="keeper")
    with pytest.raises(InputError, match="no data set"), spending(ledger, "patient"):
        raise AssertionError("the block was entered")
    with spending(ledger, "patients"), pytest.raises(InputError, match="pays already"), spending(ledger, "patients"):
        raise AssertionError("the block was entered")
    with spending(ledger, "patients"):
        LogisticRegression(**QUICK, ledger=Spending(ledger, "others")).fit(X, LABELS)
    with pytest.raises(ZeroDivisionError), spending(ledger, "patients"):
        raise ZeroDivisionError
    assert "LETHE_SPENDING" not in os.environ
    assert made_and_fitted() == "fitted"
    assert states(ledger) == []
    assert len(ledger.show("others").lines) == 1
