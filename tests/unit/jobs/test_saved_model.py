"""What `lethe train` writes of an estimator: explained, verified, reported, trained again, read back, or refused if it is damaged."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from homes import homes_fields
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.errors import InputError
from lethe.jobs.estimators.saved import SavedModel
from lethe.jobs.training import Job


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("model", [{"mechanism": "sgd"}, {"mechanism": "objective_perturbation"}, {"feature_norm": "auto"}])
def test_what_was_written_is_explained_verified_reported_and_trained_again(tmp_path: Path, model: dict[str, Any]) -> None:
    fields = homes_fields(tmp_path)
    Job(**{**fields, "model": {**fields["model"], **model}}).train(tmp_path / "out")
    proof = str(tmp_path / "out" / "certificate.json")
    explained = CliRunner().invoke(app, ["explain", proof], catch_exceptions=False)
    assert explained.exit_code == 0
    assert "stated without a look at the records" in " ".join(explained.stdout.split())
    verified = json.loads(CliRunner().invoke(app, ["verify", proof, "--json"], catch_exceptions=False).stdout)
    assert verified["follows"]["yes"]
    assert any("stated without a look" in line for line in verified["declared"])
    reported = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "-o", str(tmp_path / "report.html")], catch_exceptions=False)
    assert reported.exit_code == 0
    assert "stated without a look at the records" in (tmp_path / "report.html").read_text()
    again = Job.load(tmp_path / "out" / "config.json")
    assert again == Job(**{**fields, "model": {**fields["model"], **model}})


@pytest.mark.slow
@pytest.mark.parametrize("model", [{"mechanism": "objective_perturbation"}, {"feature_norm": "auto"}])
def test_a_seeded_statement_is_written_as_none(tmp_path: Path, model: dict[str, Any]) -> None:
    fields = homes_fields(tmp_path, seed=3)
    outcome = Job(**{**fields, "model": {**fields["model"], **model}}).train(tmp_path / "out")
    assert outcome.epsilon == math.inf
    written = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert written["seeded"]
    assert json.loads((tmp_path / "out" / "report.json").read_text())["epsilon"] == "inf"


def test_columns_that_are_not_used_need_not_be_there_for_a_prediction(tmp_path: Path) -> None:
    Job(**homes_fields(tmp_path)).train(tmp_path / "out")
    (tmp_path / "new.csv").write_text("word,more,size\nv,9,90\nw,9,0\n")
    assert SavedModel.load(tmp_path / "out").predict_table(tmp_path / "new.csv").shape == (2,)
    (tmp_path / "less.csv").write_text("word\nv\n")
    with pytest.raises(lethe.InputError, match="there is no column 'size' in the file"):
        SavedModel.load(tmp_path / "out").predict_table(tmp_path / "less.csv")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"format": "linear-model-3"}, "no model of the format"),
        ({"format": "linear-model-1"}, "no model of the format"),  # which says nothing of target_range
        ({"target_range": [1.0]}, r"target_range: got \[1.0\]"),
        ({"target_range": [1.0, 1.0]}, "target_range = 1.0"),
        ({"more": 1}, "no model of the format"),
        ({"feature_norm": "inf"}, "feature_norm = 'inf'"),
        ({"feature_norm": 0}, "feature_norm = 0"),
        ({"classes": ["a", "b", "c"]}, r"weights of shape \(3, 1\) do not fit"),
        ({"columns": {"size": {"range": [0, 1]}}}, "3 weights do not fit the 1 features"),
        ({"columns": {"size": {"range": [1, 0]}}}, "low must be below high"),
        ({"columns": None}, "was trained on arrays"),
        ({"classes": 3}, "classes: got 3"),
        ({"classes": "ab"}, "classes: got 'ab'"),
        ({"classes": ["a", "a"]}, "it needs a list of different names"),
    ],
)
def test_a_damaged_model_is_refused(tmp_path: Path, damage: dict[str, Any], message: str) -> None:
    Job(**homes_fields(tmp_path)).train(tmp_path / "out")
    file = tmp_path / "out" / "model.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    with pytest.raises(lethe.InputError, match=message):
        SavedModel.load(tmp_path / "out").predict_table(tmp_path / "homes.csv")


def test_weights_are_read_without_executing_anything(tmp_path: Path) -> None:
    Job(**homes_fields(tmp_path)).train(tmp_path / "out")
    np.savez(tmp_path / "out" / "weights.npz", coef_=np.array([object()]), intercept_=np.zeros(1), allow_pickle=True)
    with pytest.raises(lethe.InputError, match="cannot be read"):
        SavedModel.load(tmp_path / "out")
    np.savez(tmp_path / "out" / "weights.npz", coef_=np.array([["a", "b", "c"]]), intercept_=np.zeros(1))
    with pytest.raises(lethe.InputError, match="not a model"):
        SavedModel.load(tmp_path / "out")
    np.savez(tmp_path / "out" / "weights.npz", coef_=np.full((1, 3), np.nan), intercept_=np.zeros(1))
    with pytest.raises(lethe.InputError, match="no finite table"):
        SavedModel.load(tmp_path / "out")


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match=r"holds no model\.json"):
            SavedModel.load(folder)
