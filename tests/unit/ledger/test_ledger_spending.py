"""`with lethe.ledger.spending(...)`: every fit within is counted: of clones, folds, searches, threads and other processes; or refused."""

import os
import pickle
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.calculus.correlated.matrices import as_matrix
from lethe.calculus.correlated.sensitivity import sensitivity
from lethe.errors import InputError
from lethe.ledger import Budget, Ledger, Spending, spending

pytest.importorskip("sklearn")
pytest.importorskip("torch")

import joblib
import torch
from doors import arguments, fit_linear
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from lethe.estimators import LogisticRegression, PrivateSearch, PrivateStandardScaler
from lethe.estimators.options import EstimatorOptions
from lethe.train import fit

QUICK = {
    "options": EstimatorOptions(mechanism="output_perturbation"),
    "feature_norm": 2.0,
    "classes": [0, 1],
    "delta": 1e-5,
    "epsilon": 0.1,
    "neighbours": "replace_one",
}
NUMBERS = np.random.default_rng(0)
X = NUMBERS.uniform(-1, 1, size=(120, 3))
LABELS = (X[:, 0] > 0).astype(int)

pytestmark = pytest.mark.filterwarnings("ignore::lethe.errors.UncoveredStepWarning")


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True, timeout=60)
    made.create("patients", neighbours="replace_one", budget=Budget(epsilon=20, delta=1e-4), by="keeper")
    return made


def settled(ledger: Ledger) -> int:
    lines = ledger.show("patients").lines
    assert {line.state for line in lines} <= {"settled"}
    return len(lines)


def made_and_fitted() -> str:
    try:
        LogisticRegression(**QUICK).fit(X, LABELS)
    except InputError as error:
        return error.what
    return "fitted"


@pytest.mark.slow
def test_every_fold_every_candidate_and_the_refit_are_counted(ledger) -> None:
    with spending(ledger, "patients", by="team A", why="folds"):
        cross_val_score(LogisticRegression(**QUICK), X, LABELS, cv=3)
        assert settled(ledger) == 3
        steps = make_pipeline(
            PrivateStandardScaler(bounds=(-1, 1), epsilon=0.1, delta=1e-5, neighbours="replace_one"), LogisticRegression(**QUICK)
        )
        GridSearchCV(steps, {"logisticregression__C": [0.1, 1.0]}, cv=2).fit(X, LABELS)
        assert settled(ledger) == 3 + 2 * (2 * 2 + 1)
        OneVsRestClassifier(LogisticRegression(**QUICK)).fit(X, np.arange(len(X)) % 3)
        assert settled(ledger) == 13 + 3
    assert {line.by for line in ledger.show("patients").lines} == {"team A"}
    LogisticRegression(**QUICK).fit(X, LABELS)
    assert settled(ledger) == 16


def test_threads_are_counted(ledger) -> None:
    found: list[str] = []
    with spending(ledger, "patients"):
        thread = threading.Thread(target=lambda: found.append(made_and_fitted()))
        thread.start()
        thread.join()
    assert found == ["fitted"]
    assert settled(ledger) == 1


def test_what_is_sent_to_another_process_takes_the_ledger_along(ledger, monkeypatch) -> None:
    with spending(ledger, "patients", by="team A"):
        sent = pickle.dumps(LogisticRegression(**QUICK))
    monkeypatch.setattr("lethe.estimators.paying._OPENED", {})  # as over there
    pickle.loads(sent).fit(X, LABELS)
    assert settled(ledger) == 1
    assert ledger.show("patients").lines[0].by == "team A"


@pytest.mark.slow
def test_a_process_that_was_told_of_it_and_knows_no_ledger_refuses(ledger, monkeypatch) -> None:
    with spending(ledger, "patients"):
        told = os.environ["LETHE_SPENDING"]
    assert "LETHE_SPENDING" not in os.environ
    monkeypatch.setenv("LETHE_SPENDING", told)
    assert "would not be counted" in made_and_fitted()
    with pytest.raises(InputError, match="would not be counted"):
        fit_linear(_run(), X, LABELS, classes=2)
    LogisticRegression(**QUICK, ledger=Spending(ledger, "patients")).fit(X, LABELS)
    with spending(ledger, "patients"):
        assert made_and_fitted() == "fitted"
    assert settled(ledger) == 2
    assert os.environ["LETHE_SPENDING"] == told


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_what_is_sent_to_another_process_takes_the_ledger_along")
@pytest.mark.parametrize("way", ["the parameter", "the block"])
def test_joblib_s_processes_are_counted(way: str, ledger) -> None:
    paid = LogisticRegression(**QUICK, ledger=Spending(ledger, "patients", by="team A"))
    if way == "the parameter":
        cross_val_score(paid, X, LABELS, cv=3, n_jobs=2)
        assert settled(ledger) == 3
        return
    with joblib.parallel_config("loky", n_jobs=2):
        assert set(joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(2))) == {"fitted"}  # they have begun before
        with spending(ledger, "patients", by="team A"):
            steps = make_pipeline(
                PrivateStandardScaler(bounds=(-1, 1), epsilon=0.1, delta=1e-5, neighbours="replace_one"), LogisticRegression(**QUICK)
            )
            cross_val_score(steps, X, LABELS, cv=3)
            assert settled(ledger) == 6
            answers = joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(4))
            assert all("would not be counted" in answer for answer in answers)
        assert set(joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(2))) == {"fitted"}
    assert settled(ledger) == 6
    ledger.verify()


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_threads_are_counted")
def test_forked_processes_are_counted(ledger) -> None:
    with spending(ledger, "patients"), joblib.parallel_config("multiprocessing", n_jobs=2):
        assert set(joblib.Parallel()(joblib.delayed(made_and_fitted)() for _ in range(3))) == {"fitted"}
    assert settled(ledger) == 3


@pytest.mark.slow
def test_a_search_is_counted_once(ledger) -> None:
    with spending(ledger, "patients"):
        PrivateSearch(LogisticRegression(**QUICK), {"C": [0.1, 1.0]}, delta=1e-5, tries=3.0, neighbours="replace_one").fit(X, LABELS)
    assert settled(ledger) == 1


def test_what_names_its_own_ledger_is_paid_by_that(ledger) -> None:
    ledger.create("others", neighbours="replace_one", budget=Budget(epsilon=2, delta=1e-4), by="keeper")
    with spending(ledger, "patients"):
        LogisticRegression(**QUICK, ledger=Spending(ledger, "others")).fit(X, LABELS)
    assert settled(ledger) == 0
    assert len(ledger.show("others").lines) == 1


def _run(**fields):
    plain = {"records": len(X), "batches": lethe.batches.Cyclic(40), "passes": 1, "loss": lethe.losses.Softmax(feature_norm=2.0)}
    plain |= {"noise_multiplier": 20.0, "clip_norm": None, "release": "last", "neighbours": "replace_one"}
    return make_run(**plain | fields)


@pytest.mark.slow
def test_trainings_are_counted_too(ledger) -> None:
    with spending(ledger, "patients"):
        fit_linear(_run(), X, LABELS, classes=2)
    assert settled(ledger) == 1


def test_two_at_once_an_unknown_data_set_and_a_block_that_fails(ledger) -> None:
    with pytest.raises(InputError, match="no data set"), spending(ledger, "patient"):
        raise AssertionError("the block was entered")
    with spending(ledger, "patients"), pytest.raises(InputError, match="pays already"), spending(ledger, "patients"):
        raise AssertionError("the block was entered")
    with pytest.raises(ZeroDivisionError), spending(ledger, "patients"):
        raise ZeroDivisionError
    assert "LETHE_SPENDING" not in os.environ
    assert made_and_fitted() == "fitted"
    assert settled(ledger) == 0


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_a_training_with_correlated_noise_costs_one_gaussian_of_its_strategy(ledger, named: bool) -> None:
    """By the definition alone: mu is 2 sens(C)/z where a record is replaced; the filter adds up the squares."""
    run = make_run(noise={"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}, release="all", clip_norm=1.0)
    square = (2.0 * sensitivity(as_matrix(run.noise.strategy(run.total_steps)), run.steps_per_pass) / run.noise_multiplier) ** 2
    assert ledger.terms("patients").budget.kind == "gdp"
    data = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2
    own = {"ledger": Spending(ledger, "patients")} if named else {}
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    tensors = torch.tensor(data[0], dtype=torch.float32), torch.tensor(data[1])
    with nullcontext() if named else spending(ledger, "patients"):
        fit_linear(run, *data, classes=2, **own)
        fit(torch.nn.Linear(3, 2), loss, tensors, run, **arguments(own))
        fit(torch.nn.Linear(3, 2), loss, tensors, run.replace(release="last"), **arguments(own))
    assert settled(ledger) == 3
    for line in ledger.show("patients").lines:
        assert square * (1 - 1e-12) <= line.price.cost / 2**80 <= square * (1 + 1e-9)


@pytest.mark.slow
def test_a_certificate_of_correlated_noise_is_reserved_at_its_own_price(ledger) -> None:
    def cost(**noise) -> float:
        run = make_run(noise_multiplier=50.0, release="all", clip_norm=1.0, **noise)
        certificate = lethe.certify(run, delta=1e-5)
        ledger.reserve("patients", certificate, by="team A")
        return ledger.show("patients").lines[-1].price.cost

    assert cost(noise={"kind": "banded_toeplitz", "coefficients": [1.0, 0.5]}) > cost()


@pytest.mark.parametrize("ledger", ["ledger.sqlite", None, 3])
def test_what_is_no_ledger_is_refused_where_it_is_named(ledger) -> None:
    with pytest.raises(InputError, match="needs an open ledger"):
        Spending(ledger, "patients")
    with pytest.raises(InputError, match="needs an open ledger"), spending(ledger, "patients"):
        raise AssertionError("entered")
