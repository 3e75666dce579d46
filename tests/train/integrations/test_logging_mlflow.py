"""Runs of MLflow, in a store of files, read back by its client."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("mlflow")

from logged_runs import Logged, file_store, fitted, looped, make_run

import lethe
from lethe.accounting.certify import stopped
from lethe.errors import InputError, MissingExtraError
from lethe.integrations.logging import MLflowLogger, TensorBoardLogger
from lethe.train import Callback, Checkpoints

DELTA = 1e-5
RECOGNISABLE = 1234.5625


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with file_store(monkeypatch, tmp_path / "mlruns") as uri:
        yield uri


def logger(uri: str | None, **options: Any) -> MLflowLogger:
    return MLflowLogger(delta=DELTA, tracking_uri=uri, **{"log_every_n_steps": 1, "report": False, **options})


def logged(uri: str, log: MLflowLogger) -> Logged:
    assert log.run_id is not None
    return Logged(uri, log.run_id)


def test_epsilon_at_each_step_is_that_of_the_run_of_as_many_steps(store: str) -> None:
    run, log = make_run(design := "poisson"), logger(store, run_name="monday")
    looped(run, log)
    found = logged(store, log)
    proved = [lethe.certify(stopped(run, step), DELTA).epsilon for step in range(1, 11)]
    assert found.scalars["dp/epsilon"] == list(enumerate(proved, start=1))
    assert found.scalars["dp/certified_epsilon"] == [(10, lethe.certify(run, DELTA).epsilon)]
    assert [value for _, value in found.scalars["dp/noise_std"]] == run.noise_stds.tolist()
    assert found.run.info.status == "FINISHED"
    assert found.run.info.run_name == "monday"
    expected = {
        "records": "40",
        "batches": design,
        "release": "all",
        "neighbours": "replace_one",
        "noise_multiplier": "3",
        "seeded": "False",
        "delta": f"{DELTA:.17g}",
    }
    assert expected.items() <= found.run.data.params.items()
    assert float(found.run.data.params["planned_epsilon"]) == proved[-1]
    assert "every iterate released" in found.run.data.tags["dp/what_epsilon_is"]


def test_certificate_and_report_are_artefacts(store: str) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    run, log = make_run(release="last"), logger(store, report=True)
    trained = fitted(run, log)
    found = logged(store, log)
    files = found.artefacts()
    certificate = lethe.Certificate.load(files["certificate.json"])
    assert certificate.epsilon == lethe.certify(trained.run, DELTA).epsilon
    assert any(finding.evidence == "enforced" for finding in certificate.findings), "it is of the training, not of a typed run"
    assert lethe.Run.load(files["run.yaml"]) == certificate.run
    page = files["report.html"].read_text()
    assert "<html" in page
    assert certificate.run.run_id in page
    assert "dp/epsilon" not in found.scalars


@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_what_is_private_is_marked(store: str) -> None:
    """That nothing is written unless asked is the business of the logger that both share: test_logging_tensorboard."""
    log = logger(store, private=True)
    fitted(make_run("poisson", steps=4), log)
    found = logged(store, log)
    named = {name for name in (*found.scalars, *found.run.data.tags, *found.run.data.params) if "private" in name}
    expected = {f"private/{name}" for name in ("note", "training_loss", "records_in_batch", "projected", "contributed")}
    assert named == expected
    assert "no certificate" in found.run.data.tags["private/note"]


def test_a_released_loss_and_nan_and_infinity(store: str) -> None:
    log = logger(store)
    fitted(make_run(), log, seed=1)
    log.log_released("validation_loss", math.nan, basis="public_data", step=4)
    log.log_released("validation_loss", 0.5, basis="public_data")
    found = logged(store, log)
    (first, nan), last = found.scalars["released/validation_loss"]
    assert (first, math.isnan(nan), last) == (4, True, (10, 0.5))
    assert {value for _, value in found.scalars["dp/epsilon"]} == {math.inf}
    assert found.run.data.tags["released/validation_loss/basis"] == "computed on public data"


def test_it_logs_to_the_run_that_is_active_and_leaves_it_open(store: str) -> None:
    import mlflow

    mlflow.set_tracking_uri(store)
    try:
        log = logger(None)
        with mlflow.start_run() as active:
            fitted(make_run(), log)
            assert log.run_id == active.info.run_id
            assert logged(store, log).run.info.status == "RUNNING"
        assert logged(store, log).run.info.status == "FINISHED"
    finally:
        mlflow.set_tracking_uri(None)


def test_a_run_that_is_resumed_goes_on_at_its_step(store: str, tmp_path: Path) -> None:
    run, kept = make_run(), Checkpoints(folder=tmp_path / "kept", every=1)

    class Kills(Callback):
        def on_step_end(self, step: Any) -> None:
            if step.step == 4:
                raise KeyboardInterrupt

    log = logger(store)
    with pytest.raises(KeyboardInterrupt):
        fitted(run, log, Kills(), checkpoints=kept)
    found = logged(store, log)
    assert found.run.info.status == "FAILED"
    assert "KeyboardInterrupt" in found.run.data.tags["dp/failed"]
    fitted(run, logger(store, run_id=log.run_id), checkpoints=kept)
    found = logged(store, log)
    assert [step for step, _ in found.scalars["dp/epsilon"]] == list(range(1, 11))
    assert found.run.info.status == "FINISHED"


def test_two_names_of_a_run_are_refused(store: str) -> None:
    with pytest.raises(InputError, match="run_id, run_name"):
        logger(store, run_id="a", run_name="b")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, make in (("mlflow", lambda: MLflowLogger(delta=DELTA)), ("tensorboard", lambda: TensorBoardLogger("x", delta=DELTA))):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=r'pip install "lethe-dp\[logging\]"'):
            make()
