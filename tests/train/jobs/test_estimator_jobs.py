"""`lethe train` with an estimator: the score of the same pipeline in Python, what is written, what is declared, what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from homes import HOMES, homes_column, homes_fields, homes_table
from how_many import by_night
from repository import ROOT
from typer.testing import CliRunner

import lethe
from lethe.accounting.verify import load
from lethe.certificates.statement import Statement
from lethe.cli.app import app
from lethe.documents.strict import read_document, write_document
from lethe.jobs.saved import SavedModel
from lethe.jobs.tables.columns import PublicColumns
from lethe.jobs.tables.reading import ColumnTable
from lethe.jobs.training import Job
from lethe.run.losses.inverse_links import log_odds

ADULT = ROOT / "docs" / "tutorials" / "adult.csv.gz"
COLUMNS: dict[str, Any] = read_document(ADULT.with_name("adult.yaml"))["columns"]
RANGES = {name: column["range"] for name, column in COLUMNS.items() if "range" in column}
ANSWERS = {name: column["categories"] for name, column in COLUMNS.items() if "categories" in column}
FEW: dict[str, Any] = {} if by_night() else {"mechanism": "cyclic", "passes": 4}


def _adult(**changes: Any) -> dict[str, Any]:
    return {
        "data": {"path": str(ADULT), "target": "income", "classes": ["<=50K", ">50K"], "test_fraction": 0.0},
        "columns": COLUMNS,
        "model": {"estimator": "logistic_regression", "feature_norm": 3.0, **FEW},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        **changes,
    }


def test_the_census_from_the_command_line_scores_as_the_pipeline_in_python(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import ColumnTransformer
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    import lethe.estimators as private

    table = pandas.read_csv(ADULT, nrows=None if by_night() else 10_000)
    parts: Any = train_test_split(table, test_size=4000 if by_night() else 2000, random_state=0)
    train, test = parts
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.csv.gz", index=False)
    data = {"path": str(tmp_path / "train.csv"), "target": "income", "classes": ["<=50K", ">50K"], "test_fraction": 0.0}
    write_document(tmp_path / "train.yaml", _adult(data=data))
    trained = CliRunner().invoke(app, ["train", str(tmp_path / "train.yaml"), "-o", str(tmp_path / "out")], catch_exceptions=False)
    assert trained.exit_code == 0
    assert "(1, 1e-05)-DP for one record replaced by another" in trained.stdout
    words = ["predict", str(tmp_path / "out"), str(tmp_path / "test.csv.gz"), "-o", str(tmp_path / "predicted.csv")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    score = (pandas.read_csv(tmp_path / "predicted.csv")["income"].to_numpy() == test["income"].to_numpy()).mean()
    low, high = zip(*RANGES.values(), strict=True)
    listed: Any = list(ANSWERS.values())
    encoder = OneHotEncoder(categories=listed, handle_unknown="ignore", sparse_output=False)
    transformer = ColumnTransformer([("numbers", private.PublicScaler(low, high), list(RANGES)), ("words", encoder, list(ANSWERS))])
    estimator = private.LogisticRegression(
        epsilon=1.0,
        delta=1e-5,
        neighbours="replace_one",  # as files mean that do not say it
        feature_norm=3.0,
        classes=["<=50K", ">50K"],
        options=private.EstimatorOptions(**FEW),
    )
    pipeline: Any = make_pipeline(transformer, estimator).fit(train, train["income"])
    expected = pipeline.score(test, test["income"])
    command = Job(**_adult(data=data, seed=5)).train(tmp_path / "seeded")
    pipeline.set_params(logisticregression__random_state=5, logisticregression__seed_noise=True).fit(train, train["income"])
    assert (command.trained.coef_ == pipeline[-1].coef_).all()
    assert score > (0.845 if by_night() else 0.78)  # by day 0.834, with a standard deviation of 0.007
    # One score has a standard deviation of 0.0024, so this difference one of 0.0034; of one seed they are the same number above.
    # By day on a fifth of the records, with five times the noise on the average gradient.
    assert score == pytest.approx(expected, abs=0.017 if by_night() else 0.06)
    assert SavedModel.load(tmp_path / "out").weights.shape == (42, 1)


def test_what_is_written_predicts_and_says_what_was_stated(tmp_path: Path) -> None:
    table = ADULT if by_night() else _head(tmp_path / "head.csv.gz")
    data = {"path": str(table), "target": "income", "classes": ["<=50K", ">50K"], "test_fraction": 0.0}
    write_document(tmp_path / "train.yaml", _adult(data=data))
    words = ["train", str(tmp_path / "train.yaml"), "-o", str(tmp_path / "out"), "--json"]
    content = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)
    folder = tmp_path / "out"
    assert {file.name for file in folder.iterdir()} == {"weights.npz", "model.json", "config.json", "certificate.json", "report.json"}
    assert content["epsilon"] <= 1.0
    assert content["public"][0] == "age: 17 to 90"
    assert content["declared"] == [
        {"name": "columns", "detail": "names, types, ranges, categories and fill values: stated without a look at the records"}
    ]
    certificate = load(folder / "certificate.json")  # of a run by day; by night rows are whitened first, which is a statement of both
    assert isinstance(certificate, Statement if by_night() else lethe.Certificate)
    assert certificate.epsilon_at(1e-5, allow_large_delta=True) == content["epsilon"]  # by night of 12000 records
    assert [finding.evidence for finding in certificate.findings if finding.name == "columns"] == ["declared"]
    answer = CliRunner().invoke(app, ["verify", str(folder / "certificate.json"), "--weights", str(folder / "weights.npz"), "--json"])
    assert json.loads(answer.stdout)["belongs"]["yes"]
    assert CliRunner().invoke(app, ["explain", str(folder / "certificate.json")], catch_exceptions=False).exit_code == 0
    predictions = SavedModel.load(folder).predict_table(table)
    assert set(predictions) == {"<=50K", ">50K"}
    names = np.array([line.rsplit(",", 1)[1] for line in _lines(table)])
    assert (predictions == names).mean() == pytest.approx(content["score"]["train"])
    printed = CliRunner().invoke(app, ["predict", str(folder), str(table), "--json"], catch_exceptions=False).stdout
    assert json.loads(printed)["predictions"] == predictions.tolist()


def _head(file: Path) -> Path:
    """The first records of the census."""
    import gzip

    file.write_bytes(gzip.compress(b"".join(gzip.decompress(ADULT.read_bytes()).splitlines(keepends=True)[:6001])))
    return file


def _lines(file: Path) -> list[str]:
    import gzip

    return gzip.decompress(file.read_bytes()).decode().splitlines()[1:]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("estimator", "target_range", "name"), [("ridge", [0, 2], "R^2"), ("ridge", "auto", "R^2"), ("tweedie_regressor", [0, 2], "D^2")]
)
def test_a_regression(tmp_path: Path, estimator: str, target_range: Any, name: str) -> None:
    fields: dict[str, Any] = {
        "data": {"path": str(homes_table(tmp_path)), "target": "price", "target_range": target_range, "test_fraction": 0.2},
        "columns": {**HOMES, "kind": "drop"},
        "model": {"estimator": estimator, "feature_norm": 1.5},
        "privacy": {"epsilon": 20.0, "delta": 1e-5},
        "seed": 0,  # with fresh noise the range of the targets was lost in one of some 980 fits
    }
    outcome = Job(**fields).train(tmp_path / "out")
    assert outcome.test_score is not None
    assert outcome.test_score > 0.5
    assert [score.name for score in outcome.scores] == [name, "mean absolute error"]
    said = outcome.summary().splitlines()
    assert said[0].startswith("COVERED by the certificate: the weights")
    assert said[1].startswith("NOT COVERED, computed on the records themselves")
    assert f"{name}                 train {outcome.train_score:.4f}, test {outcome.test_score:.4f}, a constant 0.0000" in said[2]
    model = SavedModel.load(tmp_path / "out")
    assert model.classes is None
    assert model.target_range == outcome.trained.target_range_
    assert model.columns is not None
    rows = model.columns.encode(ColumnTable.read(tmp_path / "homes.csv", as_text=HOMES), None)
    assert model.predict_table(tmp_path / "homes.csv") == pytest.approx(outcome.trained.predict(rows))


def test_facts_read_off_the_table_are_declared_wherever_they_are_told(tmp_path: Path) -> None:
    fields = homes_fields(tmp_path, public="read off the table")
    fields["data"]["classes"] = "from_data"
    for name, model in (("run", {"mechanism": "sgd"}), ("other", {"mechanism": "objective_perturbation"})):
        outcome = Job(**{**fields, "model": {**fields["model"], **model}}).train(tmp_path / name)
        written = json.loads((tmp_path / name / "certificate.json").read_text())
        findings = {one["name"]: one for one in written["hypotheses" if name == "run" else "findings"]}
        assert findings["columns"]["evidence"] == findings["classes"]["evidence"] == "declared"
        assert "said to be public knowledge: read off the table" in findings["columns"]["detail"]
        assert "read off the table" in outcome.explanation
        assert "read off the data and declared to be public" in outcome.explanation


def test_a_run_takes_columns_too(tmp_path: Path) -> None:
    run = {
        "batches": {"design": "cyclic", "size": 60},
        "passes": 5,
        "step_size": 1.0,
        "noise_at": "pass_ends",
        "loss": {"kind": "logistic_regression", "feature_norm": 1.5, "evidence": "enforced", "intercept": True},
        "release": "last",
        "neighbours": "replace_one",
    }
    fields = homes_fields(tmp_path, run=run, privacy={"epsilon": 20.0, "delta": 1e-5})
    del fields["model"]
    outcome = Job(**fields).train(tmp_path / "out")
    assert [finding.evidence for finding in outcome.certificate.findings if finding.name == "columns"] == ["declared"]
    model = SavedModel.load(tmp_path / "out")
    assert model.trained_by == "logistic_regression"
    kinds = np.array(homes_column(tmp_path, "kind"))
    rows, _ = model.encode(tmp_path / "homes.csv")
    assert (model.predict(rows) == kinds).mean() > 0.7
    assert model.predict_proba(rows)[:, 1] == pytest.approx(1.0 / (1.0 + np.exp(-model.scores(rows)[:, 0])))
    for clipping in ({"clip_method": "envelope"}, {"clip_method": "clip"}):
        fields["run"] = {**run, "clip_norm": 0.5, **clipping}
        Job(**fields).train(tmp_path / clipping["clip_method"])
    assert SavedModel.load(tmp_path / "clip").rule is None  # of clipped gradients no loss is known
    bounds = 0.5 / np.hypot(np.minimum(np.linalg.norm(rows, axis=1), 1.5), 1.0)
    enveloped = SavedModel.load(tmp_path / "envelope")
    assert np.log(np.divide(*enveloped.predict_proba(rows).T[::-1])) == pytest.approx(log_odds(enveloped.scores(rows)[:, 0], bounds))
    assert "size: 0 to 100" in outcome.explanation
    again = Job.load(tmp_path / "out" / "config.json")
    assert again.columns == PublicColumns.parse(fields["columns"])
    assert again.prepare()[1].noise_multiplier == outcome.trained.run.noise_multiplier


@pytest.mark.parametrize(
    "model", [{"mechanism": "objective_perturbation"}, pytest.param({"feature_norm": "auto"}, marks=pytest.mark.nightly)]
)
def test_what_was_written_is_explained_verified_reported_and_trained_again(tmp_path: Path, model: dict[str, Any]) -> None:
    fields = homes_fields(tmp_path, purpose="What homes cost", by="A. Bell")
    fields["model"] = {**fields["model"], "feature_norm": 100.0, **model}
    outcome = Job(**fields).train(tmp_path / "out")
    read = SavedModel.load(tmp_path / "out")
    rows, _ = read.encode(tmp_path / "homes.csv")
    assert read.predict_proba(rows) == pytest.approx(outcome.trained.predict_proba(rows))
    far = "note: feature_norm = 100 is far above 1.41, which no row of 2 columns exceeds" in outcome.summary()
    assert far == ("mechanism" in model)
    proof = str(tmp_path / "out" / "certificate.json")
    explained = CliRunner().invoke(app, ["explain", proof], catch_exceptions=False)
    assert explained.exit_code == 0
    assert "stated without a look at the records" in " ".join(explained.stdout.split())
    verified = json.loads(CliRunner().invoke(app, ["verify", proof, "--json"], catch_exceptions=False).stdout)
    assert verified["follows"]["yes"]
    assert any("stated without a look" in line for line in verified["declared"])
    reported = CliRunner().invoke(app, ["report", str(tmp_path / "out"), "-o", str(tmp_path / "report.html")], catch_exceptions=False)
    assert reported.exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "stated without a look at the records" in page
    for words in ("<h1>What homes cost</h1>", "homes.csv, to predict", "<dd>A. Bell</dd>", "<dt>Trained on</dt>", "0 to 100"):
        assert words in page
    again = ["report", str(tmp_path / "out"), "-o", str(tmp_path / "report.md"), "--purpose", "Dear homes", "--by", "B", "--data-set", "C"]
    assert CliRunner().invoke(app, again, catch_exceptions=False).exit_code == 0
    text = (tmp_path / "report.md").read_text()
    assert ("# Dear homes\n" in text, "Data set: C\n" in text, "Who ran it: B\n" in text) == (True, True, True)
    assert Job.load(tmp_path / "out" / "config.json") == Job(**fields)
    seeded = Job(**{**fields, "seed": 3}).train(tmp_path / "seeded")
    assert seeded.epsilon == math.inf
    assert "NO RELEASE" in seeded.summary()
    assert json.loads((tmp_path / "seeded" / "certificate.json").read_text())["seeded"]
    assert json.loads((tmp_path / "seeded" / "report.json").read_text())["epsilon"] == "inf"
    (tmp_path / "new.csv").write_text("word,more,size\nv,9,90\nw,9,0\n")  # columns that are not used need not be there
    assert SavedModel.load(tmp_path / "out").predict_table(tmp_path / "new.csv").shape == (2,)
    (tmp_path / "less.csv").write_text("word\nv\n")
    with pytest.raises(lethe.InputError, match="there is no column 'size' in the file"):
        SavedModel.load(tmp_path / "out").predict_table(tmp_path / "less.csv")


@pytest.mark.parametrize("look", [False, True])
def test_a_configuration_that_init_wrote_trains_once_its_questions_are_answered(tmp_path: Path, look: bool) -> None:
    file = homes_table(tmp_path)
    words = ["init", "--data", str(file), "--target", "kind", "-o", str(tmp_path / "train.yaml"), *(["--look"] if look else [])]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    text = (tmp_path / "train.yaml").read_text().replace("delta: 1e-5", "delta: 1e-4").replace("epsilon: 1.0", "epsilon: 20.0")
    if not look:
        with pytest.raises(lethe.InputError) as refused:
            Job.load(tmp_path / "train.yaml")
        said = "data.classes, columns.size.range, columns.word.categories, columns.price.range: not answered yet (???)"
        assert said in str(refused.value)
        text = text.replace("classes: ???", "classes: [cheap, dear]").replace("categories: ???", "categories: [u, v]")
        text = text.replace("range: ???", "range: [0, 100]", 1).replace("range: ???", "range: [0, 2]", 1)
    (tmp_path / "train.yaml").write_text(text)
    outcome = Job.load(tmp_path / "train.yaml").train(tmp_path / "out")
    assert outcome.train_score > 0.7
    assert [one["name"] for one in outcome.to_dict()["scores"]] == ["accuracy", "AUC", "log-loss"]
    (_, area, loss), text = outcome.scores, outcome.summary()
    assert (area.train > 0.7, area.constant, "AUC" in text, "log-loss" in text) == (True, 0.5, True, True)
    assert loss.constant <= np.log(2.0)
    declared = {one["name"]: one["detail"] for one in outcome.to_dict()["declared"]}
    how = "said to be public knowledge: read off the table" if look else "stated without a look at the records"
    assert declared["columns"].endswith(how)
    assert ("read off the table" in (tmp_path / "out" / "certificate.json").read_text()) == look
