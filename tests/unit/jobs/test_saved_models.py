"""Models as `lethe predict` reads them: they score and give probabilities as the estimators that were saved do."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lethe
import lethe.estimators as private
from lethe.cli.app import app
from lethe.estimators.inputs.facts import PublicFacts
from lethe.estimators.models.whitened_rows import WhitenedRows
from lethe.jobs.saved import SavedModel, SavedRule, weights_file
from lethe.jobs.tables.columns import PublicColumns
from lethe.run.losses import Logistic, Softmax, TruncatedLogistic, TruncatedSoftmax, Tweedie
from lethe.run.losses.linear import LinearLoss

COLUMNS = {"size": {"range": [0, 10]}, "age": {"range": [0, 100]}, "id": "drop"}
RNG = np.random.default_rng(0)
WHITENED = WhitenedRows(mean=np.array([0.2, -0.3]), matrix=np.array([[2.0, 0.3], [0.3, 1.5]]), norm=1.1)
CASES: list[tuple[type[Any], LinearLoss, int, float | None, WhitenedRows | None]] = [
    (private.LogisticRegression, Logistic(feature_norm=1.0), 2, None, None),
    (private.LogisticRegression, Logistic(feature_norm=1.0), 2, 0.3, WHITENED),
    (private.LogisticRegression, TruncatedLogistic(feature_norm=1.0, cut=0.3), 2, None, WHITENED),
    (private.SoftmaxRegression, Softmax(feature_norm=1.0, classes=2), 2, 0.2, None),
    (private.LogisticRegression, Softmax(feature_norm=1.0, classes=3), 3, 0.2, WHITENED),
    (private.LogisticRegression, TruncatedSoftmax(feature_norm=1.0, classes=3, cut=0.4), 3, None, None),
]


def fitted(kind: type[Any], loss: LinearLoss, classes: int, envelope: float | None, whitened: WhitenedRows | None) -> Any:
    """An estimator as a fit would have left it."""
    model = kind()
    model.classes_, model.n_features_in_ = np.array(["a", "b", "c"][:classes]), 2
    outputs = 1 if classes == 2 else classes
    model.coef_, model.intercept_ = RNG.normal(size=(outputs, 2)) * 3.0, RNG.normal(size=outputs)
    model.feature_norm_, model.whitened_ = 1.2, whitened
    model._trained = PublicFacts(records=100, columns=2, loss=loss, envelope=envelope)
    return model


def saved(folder: Path, model: Any, **changes: Any) -> SavedModel:
    """What `lethe train` writes of it, read again."""
    folder.mkdir(exist_ok=True)
    fields: dict[str, Any] = {
        "trained_by": "logistic_regression",
        "target": "kind",
        "classes": tuple(model.classes_.tolist()),
        "feature_norm": model.feature_norm_,
        "rule": SavedRule.of(model.score_rule),
        "columns": PublicColumns.parse(COLUMNS),
    }
    written = SavedModel(**{**fields, **changes}, weights=np.atleast_2d(model.coef_).T, intercept=np.atleast_1d(model.intercept_))
    (folder / "model.json").write_bytes(written.document())
    (folder / "weights.npz").write_bytes(weights_file(coef_=model.coef_, intercept_=model.intercept_))
    return SavedModel.load(folder)


@pytest.mark.parametrize("case", CASES)
def test_it_predicts_as_the_estimator(tmp_path: Path, case: Any) -> None:
    model = fitted(*case)
    read, rows = saved(tmp_path, model), RNG.uniform(-1.5, 1.5, (200, 2))
    assert read.predict_proba(rows) == pytest.approx(model.predict_proba(rows), rel=1e-12)
    assert (read.predict(rows) == model.predict(rows)).all()


def test_a_threshold_is_one_of_the_probability(tmp_path: Path) -> None:
    read, rows = saved(tmp_path, fitted(*CASES[2])), RNG.uniform(-1.5, 1.5, (200, 2))
    found, chances = read.predict(rows, threshold=0.2), read.predict_proba(rows)[:, 1]
    assert ((found == "b") == (chances >= 0.2)).all()
    assert set(found) == {"a", "b"}
    assert (read.predict(rows, threshold=0.5) == read.predict(rows)).all()
    for wrong in (0.0, 1.0, float("nan")):
        with pytest.raises(lethe.InputError, match="needs a number in"):
            read.predict(rows, threshold=wrong)
    with pytest.raises(lethe.InputError, match=r"of 3 classes; it needs a number in \(0, 1\), of two classes"):
        saved(tmp_path, fitted(*CASES[4])).predict(rows, threshold=0.5)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (None, "no probabilities are known of logistic_regression"),
        ({"loss": {"kind": "smoothed_hinge", "feature_norm": 1.0, "width": 0.5}}, "no probabilities are known"),
        ({"loss": {"kind": "unknown"}}, "no probabilities are known"),
        ({"loss": None}, "rule.loss: got None; it needs a mapping"),
        ({"envelope": -1.0}, "rule.envelope: got -1"),
        ({"more": 1}, "rule.more: unknown key"),
        ({"mean": [1.0]}, "rule: mean and matrix do not fit 2 columns"),
        ({"mean": [1.0, 2.0], "matrix": [[1.0, 2.0], [1.0]]}, "rule: mean and matrix do not fit 2 columns"),
    ],
)
def test_rules_that_have_none(tmp_path: Path, rule: Any, message: str) -> None:
    saved(tmp_path, fitted(*CASES[0]))
    content = json.loads((tmp_path / "model.json").read_text())
    content["rule"] = None if rule is None else {**content["rule"], **rule}
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(lethe.InputError, match=message):
        SavedModel.load(tmp_path).predict_proba(np.zeros((1, 2)))


def test_the_command_writes_ids_and_probabilities(tmp_path: Path) -> None:
    read = saved(tmp_path / "out", fitted(*CASES[1]))
    (tmp_path / "table.csv").write_text('id,size,age,note\n007,1,20,"a, b"\n,9,80,\n')
    words = ["predict", str(tmp_path / "out"), str(tmp_path / "table.csv"), "--keep", "id", "--keep", "note", "--probabilities"]
    called = CliRunner().invoke(app, [*words, "--threshold", "0.1", "-q"], catch_exceptions=False)
    rows, kept = read.encode(tmp_path / "table.csv", keep=["id", "note"])
    assert kept == {"id": ["007", ""], "note": ["a, b", ""]}
    chances, found = read.predict_proba(rows).tolist(), read.predict(rows, threshold=0.1)
    assert called.stdout.splitlines() == [
        "id,note,kind,probability_a,probability_b",
        f'007,"a, b",{found[0]},{chances[0][0]},{chances[0][1]}',
        f",,{found[1]},{chances[1][0]},{chances[1][1]}",
    ]
    content = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert content["probabilities"] == chances
    assert (content["classes"], content["kept"]) == (["a", "b"], kept)
    for name, message in (("kind", "the column of the predictions"), ("nobody", "none of the columns id, size, age, note")):
        with pytest.raises(lethe.InputError, match=message):
            read.encode(tmp_path / "table.csv", keep=[name])


@pytest.mark.parametrize("whitened", [None, WHITENED])
def test_means_of_counts_and_costs_are_those_of_the_estimator(tmp_path: Path, whitened: WhitenedRows | None) -> None:
    model = fitted(private.GammaRegressor, Tweedie(feature_norm=1.0, power=2.0, target_bound=8.0, cut=2.0), 2, None, whitened)
    model.coef_, model.intercept_, model.target_range_ = np.array([3.0, -1.0]), 4.0, (0.0, 150.0)
    read = saved(tmp_path, model, classes=None, target_range=model.target_range_)
    rows = RNG.normal(size=(200, 2))
    assert read.predict(rows) == pytest.approx(model.predict(rows))
    assert read.predict(rows).max() == pytest.approx(150.0)
    alone = saved(tmp_path, model, classes=None, rule=SavedRule(loss=Tweedie(feature_norm=1.0, power=2.0, target_bound=8.0, cut=2.0)))
    assert alone.predict(rows).max() == pytest.approx(8.0)  # of a run, at the bound of its loss
