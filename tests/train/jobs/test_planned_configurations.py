"""`lethe plan` of a configuration of `lethe train`: what a training will choose, without a training."""

import json
from pathlib import Path
from typing import Any

import pytest
from homes import HOMES, homes_fields, homes_table
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.cli.plans import public_run
from lethe.documents.strict import write_document
from lethe.jobs.training import Job

RUN = {
    "batches": {"design": "cyclic", "size": 60},
    "passes": 2,
    "step_size": 1.0,
    "loss": {"kind": "logistic_regression", "feature_norm": 1.5, "evidence": "enforced"},
    "release": "last",
    "neighbours": "zero_out",
}


def called(file: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["plan", str(file), *words])


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({}, {"estimator": "logistic_regression"}),
        ({"classes": "from_data"}, {"estimator": "linear_svc", "feature_norm": 1.0}),
        ({"classes": None, "target": "price", "target_range": [0, 2]}, {"estimator": "ridge"}),
        ({"classes": None, "target": "price", "target_range": "auto"}, {"estimator": "lasso", "feature_norm": 1.5}),
    ],
)
def test_a_plan_is_what_a_training_chooses(tmp_path: Path, data: dict[str, Any], model: dict[str, Any]) -> None:
    fields = homes_fields(tmp_path, model=model)
    fields["data"] |= data
    if "target" in data:
        fields["columns"] = {**HOMES, "kind": "drop"}
    write_document(tmp_path / "train.yaml", fields)
    (planned,) = json.loads(called(tmp_path / "train.yaml", "--epsilon", "3", "--json").stdout)["plans"]
    trained = Job(**{**fields, "privacy": {**fields["privacy"], "epsilon": 3.0}, "seed": 0}).train(tmp_path / "out").trained
    assert planned["mechanism"] == trained.mechanism_
    assert f"{planned['mechanism']} ({planned['how']})" in trained.privacy_report_
    assert f"predicted excess risk {planned['excess_risk']:.3g}" in trained.privacy_report_


def test_the_command_plans_each_epsilon(tmp_path: Path) -> None:
    fields = homes_fields(tmp_path)
    fields["model"] = {**fields["model"], "mechanism": "objective_perturbation"}
    write_document(tmp_path / "train.yaml", fields)
    content = json.loads(called(tmp_path / "train.yaml", "--epsilon", "0.5", "1", "3", "--json").stdout)["plans"]
    assert [one["epsilon"] for one in content] == [0.5, 1.0, 3.0]
    assert content[0]["excess_risk"] >= content[1]["excess_risk"] >= content[2]["excess_risk"] > 0.0
    assert {one["mechanism"] for one in content} == {"objective_perturbation"}
    assert {one["delta"] for one in content} == {fields["privacy"]["delta"]}
    file = homes_table(tmp_path)  # of which other records give the same plan
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([header, *[rows[0]] * len(rows)]) + "\n")
    again = json.loads(called(tmp_path / "train.yaml", "--epsilon", "0.5", "1", "3", "--json").stdout)["plans"]
    assert again == content
    said = called(tmp_path / "train.yaml", "--epsilon", "1", "--delta", "1e-6").stdout
    assert said.startswith("epsilon 1, delta 1e-06, mechanism objective_perturbation, how ")


def test_the_command_plans_the_noise_of_a_run(tmp_path: Path) -> None:
    fields = homes_fields(tmp_path, run=RUN | {"noise_at": "pass_ends"}, privacy={"epsilon": 20.0, "delta": 1e-5})
    del fields["model"]
    write_document(tmp_path / "train.yaml", fields)
    content = json.loads(called(tmp_path / "train.yaml", "--epsilon", "20", "2", "--json").stdout)["plans"]
    assert content[0]["noise_multiplier"] == Job(**fields).prepare()[1].to_document()["noise_multiplier"]
    assert content[1]["noise_multiplier"] > content[0]["noise_multiplier"]


def test_what_does_not_go_together(tmp_path: Path) -> None:
    write_document(tmp_path / "train.yaml", homes_fields(tmp_path))
    write_document(tmp_path / "run.yaml", {"batches": {"design": "full"}})
    assert "they are of a run" in str(called(tmp_path / "train.yaml", "--epsilon", "1", "--schedule", "auto").exception)
    for words in (["1", "2", "--delta", "1e-6"], ["1"]):
        assert "a run needs --delta, and one epsilon" in str(called(tmp_path / "run.yaml", "--epsilon", *words).exception)


def opened(monkeypatch: pytest.MonkeyPatch, file: Path) -> Any:
    """The state that `lethe studio` opens with; or what the call raised."""
    pytest.importorskip("shiny", reason="the studio needs Shiny")
    states: list[Any] = []
    monkeypatch.setattr("lethe.studio.server.serve", lambda first, **_: states.append(first))
    result = CliRunner().invoke(app, ["studio", str(file)])
    return states[0] if states else result.exception


@pytest.mark.parametrize(
    "shape", [{}, {"noise_multiplier": {"schedule": "exponential", "first": 1.0, "ratio": 0.9}}], ids=["none", "shape"]
)
def test_the_studio_finds_the_noise_that_a_training_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any]) -> None:
    fields = homes_fields(tmp_path, run=RUN | shape, privacy={"epsilon": 20.0, "delta": 1e-6})
    del fields["model"]
    write_document(tmp_path / "train.yaml", fields)
    asked = opened(monkeypatch, tmp_path / "train.yaml").question()
    assert (asked.find_noise, asked.epsilon, asked.delta, asked.run.records) == (True, 20.0, 1e-6, 240)
    trained = Job(**fields).prepare()[1]
    assert lethe.plan(asked.run, asked.epsilon, asked.delta) == trained
    (tmp_path / "homes.csv").unlink()
    write_document(tmp_path / "train.yaml", {**fields, "run": {**fields["run"], "records": 240}})
    assert opened(monkeypatch, tmp_path / "train.yaml").question() == asked  # no record is read where their number is stated


def test_the_studio_opens_the_run_that_an_estimator_would_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = homes_fields(tmp_path)
    fields["model"] = {**fields["model"], "mechanism": "full_batch", "whiten": False}
    write_document(tmp_path / "train.yaml", fields)
    state = opened(monkeypatch, tmp_path / "train.yaml")
    trained = Job(**fields).train(tmp_path / "out").trained
    run = state.question().run
    assert run.noise_multiplier == trained.certificate_.run.noise_multiplier
    assert (run.passes, run.step_size, run.records) == (trained.certificate_.run.passes, trained.certificate_.run.step_size, 240)
    assert (state.texts["find"], state.texts["epsilon"], state.texts["delta"]) == ("epsilon", "5.0", "1e-05")
    assert lethe.certify(run, 1e-5).epsilon == pytest.approx(trained.epsilon_, rel=1e-9)  # of one run, certified twice
    header, *rows = (file := homes_table(tmp_path)).read_text().splitlines()
    file.write_text("\n".join([header, *[rows[0]] * len(rows)]) + "\n")
    assert opened(monkeypatch, tmp_path / "train.yaml") == state
    fields["model"] = {**fields["model"], "mechanism": "objective_perturbation"}
    write_document(tmp_path / "train.yaml", fields)
    assert "objective_perturbation, which is no run" in str(opened(monkeypatch, tmp_path / "train.yaml"))


def test_the_studio_shows_the_best_run_where_none_would_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = homes_fields(tmp_path)
    fields["model"] = {**fields["model"], "whiten": False}
    write_document(tmp_path / "train.yaml", fields)
    found = public_run(tmp_path / "train.yaml")
    assert found.note.startswith("model: it would be trained by objective_perturbation, which is no run; the page shows the best one, of ")
    best = Job(**{**fields, "model": {**fields["model"], "mechanism": "sgd"}, "seed": 0}).train(tmp_path / "out").trained
    assert found.run == best.certificate_.run.replace(seeded=False, precision=found.run.precision)
    assert opened(monkeypatch, tmp_path / "train.yaml").question().run.noise_multiplier == found.run.noise_multiplier
