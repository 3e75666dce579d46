import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import as_planned, make_run, with_fresh_noise
from typer.testing import CliRunner

import lethe
from lethe.accounting.recheck import recheck
from lethe.cli.app import app
from lethe.documents.strict import write_document
from lethe.jobs.datasets import centred_digits
from lethe.jobs.training import Job

RUN: dict[str, Any] = {
    "batches": {"design": "cyclic", "size": 100},
    "passes": 2,
    "step_size": 1.0,
    "noise_at": "pass_ends",
    "loss": {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"},
    "release": "last",
    "neighbours": "replace_one",
}


def _config(**changes: Any) -> dict[str, Any]:
    return {"run": RUN, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "seed": 0, **changes}


@pytest.mark.slow
def test_train_writes_weights_run_certificate_and_report(tmp_path: Path) -> None:
    config, folder = tmp_path / "config.yaml", tmp_path / "out"
    write_document(config, _config(seed=None))
    result = CliRunner().invoke(app, ["train", str(config), "-o", str(folder), "--json"])
    content = json.loads(result.stdout)
    assert {entry.name for entry in folder.iterdir()} == {"weights.npz", "config.json", "run.json", "certificate.json", "report.json"}
    run, certificate = lethe.Run.load(folder / "run.json"), lethe.Certificate.load(folder / "certificate.json")
    assert certificate.run == run
    assert certificate.epsilon <= 1
    assert content["certificate"]["epsilon"] == certificate.epsilon == lethe.certify(run, 1e-5).epsilon
    assert run.records == content["records"]
    with np.load(folder / "weights.npz") as weights:
        assert weights["weights"].shape == (64, 10)
        assert weights["feature_norm"] == 1.0
        assert str(weights["loss"]) == "softmax_regression"
        assert weights["class_names"].tolist() == [str(digit) for digit in range(10)]
    assert content["score"]["test"] > 0.2  # ten classes: better than twice chance
    again = Job.load(folder / "config.json")
    assert again.seed is None
    assert again.prepare()[1] == as_planned(run)


def test_classes_read_off_the_data_are_so_again(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b,kind\n" + "\n".join(f"{row % 7},{row % 5},{'xy'[row % 2]}" for row in range(60)))
    for classes in ("from_data", ["x", "y"]):
        data = {"path": str(tmp_path / "data.csv"), "target": "kind", "classes": classes}
        job = Job(data=data, run={**RUN, "batches": {"design": "cyclic", "size": 6}}, privacy={"epsilon": 5.0, "delta": 1e-3})
        content = job.to_document(job.prepare()[1])
        assert Job(**json.loads(json.dumps(content))).data == job.data


def test_the_run_s_own_noise_is_certified_when_no_epsilon_is_asked(tmp_path: Path) -> None:
    job = Job(**_config(privacy={"delta": 1e-5}, run={**RUN, "noise_multiplier": 30.0}))
    outcome = job.train(tmp_path / "out")
    assert outcome.trained.run.noise_multiplier == 30.0
    assert "seeded" in outcome.summary()


def test_own_data_of_measurements(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(300, 3))
    path = tmp_path / "table.csv"
    table = np.column_stack((features, features @ np.array([1.0, -1.0, 0.5])))
    path.write_text("a,b,c,y\n" + "\n".join(",".join(map(str, row)) for row in table.tolist()))
    run = {
        **RUN,
        "passes": 20,
        "step_size": 0.3,
        "loss": {"kind": "least_squares", "feature_norm": 3.0, "residual_bound": 1.0, "evidence": "enforced", "intercept": True},
        "batches": {"design": "shuffled_once", "size": 60},
    }
    outcome = Job(**_config(data={"path": str(path), "target": "y"}, run=run, privacy={"epsilon": 50.0, "delta": 1e-5})).train(
        tmp_path / "out"
    )
    assert outcome.test_score is not None
    assert outcome.certificate.epsilon == math.inf
    assert lethe.certify(with_fresh_noise(outcome.trained.run), 1e-5).epsilon <= 50


def test_classes_are_public_or_said_to_be(tmp_path: Path) -> None:
    """A label that occurs once would show in the shape and the names of what is released."""
    random = np.random.default_rng(0)
    labels = ["u", "v"] * 100
    rows = [f"{x},{y},{label}" for (x, y), label in zip(random.normal(size=(200, 2)).tolist(), labels, strict=True)]
    path = tmp_path / "table.csv"
    path.write_text("a,b,y\n" + "\n".join(rows))
    data = {"path": str(path), "target": "y"}
    run = {**RUN, "batches": {"design": "cyclic", "size": 40}}
    listed = Job(**_config(run=run, data={**data, "classes": ["v", "u", "w"]})).train(tmp_path / "listed")
    assert listed.trained.model.weights.shape == (2, 3)
    assert not any(finding.name == "classes" for finding in listed.certificate.findings)
    found = Job(**_config(run=run, data={**data, "classes": "from_data"})).train(tmp_path / "found")
    assert [finding.evidence for finding in found.certificate.findings if finding.name == "classes"] == ["declared"]
    path.write_text("a,b,y\n" + "\n".join([*rows, "0,0,rare"]))
    with pytest.raises(lethe.InputError, match="row 200: the label 'rare' is none of the classes u, v"):
        Job(**_config(run=run, data={**data, "classes": ["u", "v"]})).train(tmp_path / "rare")


@pytest.mark.slow
def test_a_seeded_certificate_says_that_it_is_no_release(tmp_path: Path) -> None:
    seeded = Job(**_config()).train(tmp_path / "seeded")
    loaded = lethe.Certificate.load(tmp_path / "seeded" / "certificate.json")
    assert loaded.epsilon == seeded.certificate.epsilon == math.inf
    assert "\nNOT PRIVATE: no release: noise or secret batches came from a seed" in loaded.explain()
    assert "with fresh noise: epsilon = 1 by optimal-shift.\n" in loaded.explain()
    recheck(loaded)
    assert lethe.Run.load(tmp_path / "seeded" / "run.json").seeded
    assert "NO RELEASE: the noise was seeded" in seeded.summary()
    fresh = Job(**_config(seed=None)).train(tmp_path / "fresh")
    assert [finding.evidence for finding in fresh.certificate.findings if finding.name == "fresh noise"] == ["enforced"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": {"epsilon": 1.0}}, "privacy.delta: missing"),
        ({"privacy": {"epsilon": -1.0, "delta": 1e-5}}, "privacy.epsilon: got -1"),
        ({"privacy": 3}, "privacy"),
        ({"data": {"path": "missing.csv", "target": "y", "classes": ["u", "v"]}}, "missing.csv"),
        ({"data": {"path": "missing.csv", "target": "y"}}, "data.classes: missing; which classes occur is itself private"),
        ({"data": {"path": "missing.csv", "target": "y", "classes": 3}}, "data.classes: got 3"),
        ({"data": {"path": "missing.csv", "target": "y", "classes": []}}, "data.classes: got"),
        ({"data": {"path": "missing.csv"}}, "data.target: missing"),
        ({"data": {"target": "y"}}, "data.path: missing"),
        ({"data": {"test_fraction": 1.5}}, "data.test_fraction: got 1.5"),
        ({"run": {**RUN, "loss": {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}}}, "convex"),
        ({"run": {**RUN, "records": 17}}, "records|size"),
        ({"run": {**RUN, "noise_multiplier": None}, "privacy": {"delta": 1e-5}}, "no noise yet"),
        (
            {"run": {**RUN, "batches": {"design": "poisson", "size": 100}, "neighbours": "add_or_remove", "noise_at": "every_step"}},
            "test_frac",
        ),
        ({"seed": -1}, "seed: got -1"),
        ({"sead": 1}, "sead: unknown key"),
    ],
)
def test_bad_configurations_leave_nothing_behind(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(lethe.InputError, match=message):
        Job(**_config(**changes)).train(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(lethe.InputError, match="exists already"):
        Job(**_config()).train(tmp_path / "out")


def test_an_interrupted_training_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lethe.jobs.training.fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Job(**_config()).train(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_weights_file_is_enough_to_predict(tmp_path: Path) -> None:
    """The recipe of docs/train.md, with numpy alone."""
    outcome = Job(**_config()).train(tmp_path / "out")
    table = centred_digits()
    with np.load(tmp_path / "out" / "weights.npz") as model:
        norms = np.linalg.norm(table.features, axis=1, keepdims=True)
        features = table.features * np.minimum(1.0, model["feature_norm"] / np.maximum(norms, 1e-300))
        scores = features @ model["weights"] + model["intercept"]
        labels = model["class_names"][scores.argmax(axis=1)]
    assert labels.tolist() == [str(number) for number in outcome.trained.model.predict(table.features)]


def test_measurements_are_no_classes(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,y\n" + "\n".join(f"{row},{row / 7}" for row in range(1, 60)))
    data = {"path": str(path), "target": "y", "classes": "from_data"}
    with pytest.raises(lethe.InputError, match="measurements, not classes"):
        Job(**_config(data=data, run={**RUN, "batches": {"design": "cyclic", "size": 4}})).train(tmp_path / "out")


def test_a_run_file_is_told_from_a_configuration(tmp_path: Path) -> None:
    write_document(tmp_path / "run.yaml", make_run().to_document())
    with pytest.raises(lethe.InputError, match=r"run\.yaml is a run, not a configuration of `lethe train`"):
        Job.load(tmp_path / "run.yaml")
