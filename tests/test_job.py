import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lethe
from lethe.cli.app import app
from lethe.documents import write_document
from lethe.job import Job

RUN: dict[str, Any] = {
    "batches": {"design": "cyclic", "size": 100},
    "passes": 2,
    "step_size": 1.0,
    "noise_at": "pass_ends",
    "loss": {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"},
}


def _config(**changes: Any) -> dict[str, Any]:
    return {"run": RUN, "privacy": {"epsilon": 1.0, "delta": 1e-5}, "seed": 0, **changes}


def test_train_writes_weights_run_certificate_and_report(tmp_path: Path) -> None:
    config, folder = tmp_path / "config.yaml", tmp_path / "out"
    write_document(config, _config())
    result = CliRunner().invoke(app, ["train", str(config), "-o", str(folder), "--json"])
    content = json.loads(result.stdout)
    assert {entry.name for entry in folder.iterdir()} == {"weights.npz", "run.json", "certificate.json", "report.json"}
    run, certificate = lethe.Run.load(folder / "run.json"), lethe.Certificate.load(folder / "certificate.json")
    assert certificate.run == run
    assert certificate.epsilon <= 1
    assert content["certificate"]["epsilon"] == certificate.epsilon == lethe.certify(run, 1e-5).epsilon
    assert run.records == content["records"]
    with np.load(folder / "weights.npz") as weights:
        assert weights["weights"].shape == (64, 10)
        assert weights["class_names"].tolist() == [str(digit) for digit in range(10)]
    assert content["score"]["test"] > 0.2  # ten classes: better than twice chance


def test_the_run_s_own_noise_is_certified_when_no_epsilon_is_asked(tmp_path: Path) -> None:
    job = Job(**_config(privacy={"delta": 1e-5}, run={**RUN, "noise_multiplier": 30.0}))
    outcome = job.execute(tmp_path / "out")
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
    outcome = Job(**_config(data={"path": str(path), "target": "y"}, run=run, privacy={"epsilon": 50.0, "delta": 1e-5})).execute(
        tmp_path / "out"
    )
    assert outcome.test_score is not None
    assert outcome.certificate.epsilon <= 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": {"epsilon": 1.0}}, "privacy.delta: missing"),
        ({"privacy": {"epsilon": -1.0, "delta": 1e-5}}, "privacy.epsilon: got -1"),
        ({"privacy": 3}, "privacy"),
        ({"data": {"path": "missing.csv", "target": "y"}}, "missing.csv"),
        ({"data": {"path": "missing.csv"}}, "data.target: missing"),
        ({"data": {"test_fraction": 1.5}}, "data.test_fraction: got 1.5"),
        ({"run": {**RUN, "loss": {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}}}, "convex"),
        ({"run": {**RUN, "records": 17}}, "records|size"),
        ({"run": {**RUN, "noise_multiplier": None}, "privacy": {"delta": 1e-5}}, "no noise yet"),
        ({"seed": -1}, "seed: got -1"),
        ({"sead": 1}, "sead: unknown key"),
    ],
)
def test_bad_configurations_leave_nothing_behind(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(lethe.InputError, match=message):
        Job(**_config(**changes)).execute(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(lethe.InputError, match="exists already"):
        Job(**_config()).execute(tmp_path / "out")


def test_an_interrupted_training_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lethe.job.fit_linear", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Job(**_config()).execute(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
