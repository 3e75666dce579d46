"""The key `ledger:` of a configuration of `lethe train`."""

import pytest

import lethe
from lethe.errors import BudgetExceededError, InputError

pytest.importorskip("sqlalchemy")

from lethe.jobs.training import Job
from lethe.ledger import Budget, Ledger

RUN = {"batches": {"design": "cyclic", "size": 100}, "passes": 1, "step_size": 0.5, "release": "last", "neighbours": "replace_one"}
RUN |= {"loss": {"kind": "softmax_regression", "feature_norm": 1.0}, "noise_multiplier": 1.0}


def job(place: str, **fields) -> Job:
    section = {"place": place, "data_set": "digits", "by": "team A", "why": "a demonstration"}
    return Job(**{"run": RUN, "privacy": {"delta": 1e-5, "epsilon": 1.0}, "ledger": section} | fields)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    made = Ledger.open(tmp_path / "ledger.sqlite", make=True)
    made.create("digits", neighbours="replace_one", budget=Budget(epsilon=1.3, delta=1e-5), by="keeper")
    return made


@pytest.mark.slow
def test_a_training_is_paid_and_a_second_one_refused(ledger, tmp_path) -> None:
    outcome = job(str(tmp_path / "ledger.sqlite")).train(tmp_path / "one", progress=False)
    (line,) = ledger.show("digits").lines
    assert (line.state, line.by, line.why) == ("settled", "team A", "a demonstration")
    assert lethe.verify(tmp_path / "one" / "certificate.json").follows.yes
    assert outcome.config["ledger"]["data_set"] == "digits"
    with pytest.raises(BudgetExceededError, match="still fits"):
        job(str(tmp_path / "ledger.sqlite")).train(tmp_path / "two", progress=False)
    assert not (tmp_path / "two").exists()


def test_a_ledger_that_is_not_there_is_told_first(tmp_path) -> None:
    with pytest.raises(InputError, match="is not there"):
        job(str(tmp_path / "none.sqlite")).train(tmp_path / "one", progress=False)


def model_job(place: str, **changes) -> Job:
    model = {"estimator": "logistic_regression", "mechanism": "output_perturbation", "feature_norm": 1.0}
    return job(place, run=None, model=model, **changes)


@pytest.mark.slow
def test_an_estimator_is_paid_and_a_second_one_refused(ledger, tmp_path) -> None:
    place = str(tmp_path / "ledger.sqlite")
    outcome = model_job(place).train(tmp_path / "one", progress=False)
    (line,) = ledger.show("digits").lines
    assert (line.state, line.by, line.what) == ("settled", "team A", outcome.trained.statement_.name)
    assert outcome.config["ledger"]["data_set"] == "digits"
    assert lethe.verify(tmp_path / "one" / "certificate.json").follows.yes
    with pytest.raises(BudgetExceededError, match="still fits"):
        model_job(place).train(tmp_path / "two", progress=False)
    with pytest.raises(InputError, match="can be made again"):
        model_job(place, seed=1).train(tmp_path / "two", progress=False)
    assert not (tmp_path / "two").exists()
    ledger.verify()


def test_an_estimator_s_ledger_that_is_not_there_is_told_first(tmp_path) -> None:
    with pytest.raises(InputError, match="is not there"):
        model_job(str(tmp_path / "none.sqlite")).train(tmp_path / "one", progress=False)
    with pytest.raises(InputError, match="stated as ledger"):
        job("ledger.sqlite", run=None, model={"estimator": "logistic_regression", "ledger": "ledger.sqlite"})


def test_a_section_that_is_none_is_refused() -> None:
    for section in (
        {"place": "a"},
        {"place": "a", "data_set": "b", "owner": "c"},
        "ledger.sqlite",
        {"place": "a", "data_set": "b", "slack": 2},
    ):
        with pytest.raises(InputError):
            job("ledger.sqlite", ledger=section)
