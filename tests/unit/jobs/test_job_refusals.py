"""What tables, configurations and models are refused by: each call names the field or the place, and nothing is written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from audited_callables import ABOUT, described, place
from homes import HOMES, homes_fields

import lethe
from lethe.documents.strict import write_document
from lethe.jobs.audit import AuditJob
from lethe.jobs.datasets import load_table
from lethe.jobs.demo import Demo
from lethe.jobs.init import table_configuration
from lethe.jobs.saved import SavedModel
from lethe.jobs.tables.columns import PublicColumns
from lethe.jobs.training import Job
from lethe.report.plots import demo_plot

pytest.importorskip("torch")
STATED: dict[str, Any] = {
    "age": {"range": [17, 90]},
    "hours": {"range": [0, 80], "missing": 40},
    "work": {"categories": ["Private", "NA"]},
    "id": "drop",
}
ROWS = "age,hours,work,id,label\n20,40,Private,x1,no\n90.5,?,other,x2,yes\n"
RUN: dict[str, Any] = {
    "batches": {"design": "cyclic", "size": 100},
    "passes": 2,
    "step_size": 1.0,
    "noise_at": "pass_ends",
    "loss": {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"},
    "release": "last",
    "neighbours": "replace_one",
}
LEDGER = {"place": "a.sqlite", "data_set": "digits"}

COLUMNS: list[tuple[Any, str]] = [
    ([1], "it needs a mapping"),
    ({"age": {}}, "column 'age': got {}; it needs range"),
    ({"age": {"range": [0, 1], "categories": ["a"]}}, "it needs range: .* for numbers, dates: .* categories: .* for words, or drop"),
    ({"age": {"range": [90, 17]}}, r"column 'age': range: got \[90, 17\]; low must be below high"),
    ({"age": {"range": [0, 5e-324]}}, "too narrow"),
    ({"age": {"range": [float("nan"), 1]}}, "got nan; it needs a finite number"),
    ({"age": {"range": [-1e308, 1e308]}}, "it needs a finite number"),
    ({"age": {"range": [True, 2]}}, "got True; it needs a finite number"),
    ({"age": {"range": [0, 1, 2]}}, r"it needs \[low, high\]"),
    ({"age": {"range": [0, 1], "missing": 2}}, "missing: got 2; it needs a number within the range"),
    ({"age": {"range": [0, 1], "missing": "often"}}, "got 'often'"),
    ({"age": {"range": [0, 1], "mising": 1}}, "mising: unknown key; did you mean 'missing'"),
    ({"work": {"categories": "Private"}}, "it needs the list of the answers"),
    ({"work": {"categories": [1, "1"]}}, "'1' is listed twice"),
    ({"work": {"categories": [True, False]}}, "got True; a category is text"),
    ({"work": {"categories": ["a "]}}, "no spaces at its ends"),
    ({"work": {"categories": ["a"], "missing": "b"}}, "missing: got 'b'; it needs one of the categories"),
]
FITTING: list[tuple[Any, str]] = [
    ({**STATED, "label": "drop"}, "'label' is the target; it cannot be a feature"),
    ({**STATED, "wage": {"range": [0, 1]}}, "there is no column 'wage' in the file; it has age, hours, work, id, label"),
    ({name: STATED[name] for name in ("age", "hours", "id")}, "column 'work' holds string and is not stated: it needs categories"),
    ({name: STATED[name] for name in ("hours", "work", "id")}, "column 'age' holds double and is not stated: it needs a range"),
    (dict.fromkeys(STATED, "drop"), "all of them are dropped"),
    ({**STATED, "hours": {"range": [0, 80]}}, "row 1, column 'hours': the value is missing, and nothing is stated to stand for it"),
    ({**STATED, "work": {"range": [0, 1]}}, "row 0, column 'work': the entry is no finite number"),
]
FILES: list[tuple[str, str | None, str | None, str]] = [
    ("absent.csv", None, "y", "cannot be read"),
    ("absent.npz", None, None, "cannot be read"),
    ("t.csv", "a,y\n1,2\n3\n", "y", "cannot be read"),
    ("t.csv.gz", "\x1f broken", "y", "cannot be read"),
    ("t.parquet", "no parquet", "y", "cannot be read"),
    ("t.npz", "PK\x03\x04 truncated", None, "cannot be read"),
    ("t.txt", "a", "y", "ends in .npz, .csv, .csv.gz or .parquet"),
    ("t.csv", "a,y\n1,2\n", "z", "target: got 'z'; it needs one of the columns a, y"),
    ("t.csv", "a,y\n1,2\n", None, "target: got None"),
    ("t.csv", "a,a,y\n1,2,3\n", "y", "column 'a' occurs 2 times"),
    ("t.csv", "y\n1\n", "y", "the only column"),
    ("t.csv", "a,y\n1,2\n3,2\n", "y", "1 class"),
    ("t.csv", "a,y\n", "y", "no rows"),
    ("t.csv", "a,y\n1,yes\n2,\n", "y", "row 1, column 'target'"),
    ("t.csv", "a,b,y\n1,2,0\n3,4,1\n5,,1\n", "y", "row 2, column 'b'"),
    ("t.csv", "a,city,y\n1,A,0\n3,B,1\n", "y", r"(?s)column 'city' holds string.*0/1 column for each category"),
    ("t.csv", "a,day,y\n1,2020-01-01,0\n3,2020-01-02,1\n", "y", "column 'day' holds date"),
]
ARRAYS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"x": np.eye(4)}, None, "no features and targets among the arrays x"),
    ({"x": np.eye(4), "y": np.zeros(4)}, "label", "for target 'label'"),
    ({"x": np.eye(4), "y": np.zeros(3)}, None, r"targets have shape \(3,\)"),
    ({"x": np.zeros(4), "y": np.zeros(4)}, None, "one row a record"),
    ({"x": np.array([["a"], ["b"]]), "y": np.zeros(2)}, None, "real numbers"),
    ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, None, "shape"),
    ({"x": np.array([[{}], [{}]], dtype=object), "y": np.zeros(2)}, None, "cannot be read"),
    ({"x": np.array([[1.0, 2.0], [3.0, np.nan]]), "y": np.array([0, 1])}, None, "row 1, column 1"),
    ({"x": np.ones((2, 2)), "y": np.array([0.0, np.inf])}, None, "row 1, column 'target'"),
]
OF_A_RUN: list[tuple[dict[str, Any], str]] = [
    ({"privacy": {"epsilon": 1.0}}, "privacy.delta: missing"),
    ({"privacy": {"epsilon": -1.0, "delta": 1e-5}}, "privacy.epsilon: got -1"),
    ({"privacy": 3}, "privacy"),
    ({"data": {"path": "missing.csv", "target": "y", "classes": ["u", "v"]}}, "missing.csv"),
    ({"data": {"path": "missing.csv", "target": "y"}}, "data.classes: missing; which classes occur is itself private"),
    ({"data": {"path": "missing.csv", "target": "y", "classes": []}}, "data.classes: got"),
    ({"data": {"target": "y"}}, "data.path: missing"),
    ({"data": {"test_fraction": 1.5}}, "data.test_fraction: got 1.5"),
    ({"run": {**RUN, "loss": {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}}}, "convex"),
    ({"run": {**RUN, "records": 17}}, "records|size"),
    ({"run": {**RUN, "noise_multiplier": None}, "privacy": {"delta": 1e-5}}, "no noise yet"),
    ({"run": {**RUN, "batches": {"design": "poisson", "size": 9}, "neighbours": "add_or_remove", "noise_at": "every_step"}}, "test_frac"),
    ({"seed": -1}, "seed: got -1"),
    ({"sead": 1}, "sead: unknown key"),
    ({"ledger": "ledger.sqlite"}, "ledger"),
    ({"ledger": {"place": "a"}}, "ledger.data_set: missing"),
    ({"ledger": {**LEDGER, "owner": "c"}}, "ledger.owner: unknown key"),
    ({"ledger": {**LEDGER, "slack": 2}}, "ledger.slack: got 2"),
    ({"ledger": LEDGER}, "is not there"),
]
OF_A_MODEL: list[tuple[dict[str, Any], str]] = [
    ({"run": {"batches": {"design": "full"}}}, "run, model: both are given"),
    ({"model": None}, "run, model: both are missing"),
    ({"model": {"estimator": "logistic_regresion"}}, "model.estimator: got 'logistic_regresion'; did you mean 'logistic_regression'"),
    ({"model": {}}, "model: got {}; it needs estimator"),
    ({"model": {"estimator": ["ridge"]}}, r"model.estimator: got \['ridge'\]"),
    ({"model": {"estimator": "linear_svc", "C": float("inf")}}, "model.C: got inf; it needs a finite number"),
    ({"model": {"estimator": "linear_svc", "feature_norm": 10**400}}, "model.feature_norm: got .*; it needs a finite number"),
    ({"model": {"estimator": "linear_svc", "epsilon": 3}}, "model.epsilon: it is stated as privacy.epsilon"),
    ({"model": {"estimator": "linear_svc", "ledger": "a.sqlite"}}, "model.ledger: it is stated as ledger"),
    ({"model": {"estimator": "ridge"}}, "data.classes: ridge predicts numbers"),
    ({"model": {"estimator": "linear_svc", "feature_nrm": 1.0}}, "model.feature_nrm: unknown; did you mean 'feature_norm'"),
    ({"model": {"estimator": "linear_svc", "feature_norm": -1.0}}, "feature_norm"),
    ({"model": {"estimator": "linear_svc", "mechanism": "magic"}}, "mechanism"),
    ({"privacy": {"delta": 1e-5}}, "privacy.epsilon: missing; an estimator is trained for a target"),
    ({"columns": None}, "column 'size' holds double and is not stated: it needs a range"),
    ({"columns": {**HOMES, "price": {"range": [2, 0]}}}, "columns: column 'price': range: got"),
    ({"columns": None, "public": "read off the table"}, "public: it says how"),
    ({"ledger": LEDGER}, "is not there"),
]
TARGETS: list[tuple[dict[str, Any], str]] = [
    ({"target": "price"}, "data.target_range: missing; where targets lie must be public"),
    ({"target": "price", "target_range": [2, 0]}, "low must be below high"),
    ({"target": "price", "target_range": "about"}, r"it needs \[low, high\]"),
    ({"target": "word", "target_range": [0, 1]}, "'word' is the target; it cannot be a feature"),
]
AUDITS: list[tuple[dict[str, Any], str]] = [
    ({"runz": 3}, "runz: unknown key; did you mean 'runs'"),
    ({"runs": True}, "runs: got True"),
    ({"workers": 0}, "workers: got 0"),
    ({"game": "three_worlds"}, "game: got 'three_worlds'"),
    ({"canary": "yellow"}, "canary: got 'yellow'"),
    ({"canaries": 50}, "canaries: belongs to game: one_run"),
    ({"game": "one_run", "runs": 5}, "runs: belongs to game: two_world"),
    ({"score_file": "scores.txt"}, "needs to end in .jsonl"),
    ({"score_file": "nowhere/scores.jsonl"}, "no folder you may write to"),
    ({"subject": {"kind": "model"}}, "subject.kind: got 'model'"),
    ({"subject": {"train": "mechanism:train"}}, "subject.kind: missing"),
    ({"subject": {"kind": "train", "config": "missing.yaml"}}, "missing.yaml cannot be read"),
    ({"subject": {"kind": "run", "run": "missing.yaml"}, "delta": 1e-5}, "missing.yaml cannot be read"),
    ({"subject": {"kind": "run", "run": "missing.yaml"}}, "delta: missing; a run has none"),
    ({"subject_claim": None}, "delta: missing"),
    ({"subject_claim": {"delta": 0.0, **ABOUT}}, "claim.epsilon: missing"),
    ({"subject_claim": {"epsilon": 1.0, "delta": 0.0, "release": "last"}}, "claim.neighbours: missing"),
    ({"subject_claim": {"epsilon": 1.0, "delta": 0.0, **ABOUT, "neighbours": "zero_out"}}, "claim: it says nothing of this audit"),
    ({"delta": 1e-6, "subject_claim": {"epsilon": 1.0, "delta": 1e-5, **ABOUT}}, "claim: it says nothing of this audit"),
    ({"subject_train": "mechanism.train"}, "subject.train: got 'mechanism.train'; it needs module:function"),
    ({"subject_train": "mechanism.inner:train"}, "no module 'mechanism.inner' in"),
    ({"subject_train": "mechanism:trian"}, "nothing under the name 'trian'; did you mean 'train'"),
    ({"subject_score": "mechanism:NUMBER"}, "int under the name 'NUMBER'"),
    ({"subject_train": "failing:train"}, "importing 'failing' raised ZeroDivisionError"),
    ({"subject_train": "needing:train"}, "needs the module 'numby', which is not installed"),
    ({"subject_train": "mechanism:raising"}, r"mechanism:raising raised KeyError: 'gone'\n  From: .*mechanism.py, line \d+"),
    ({"subject_score": "mechanism:wordy"}, "mechanism:wordy returned str; it needs a number"),
    ({"subject_data": {"path": "bare.npz"}}, "no features and targets among the arrays x"),
    ({"subject_data": {"path": "records.npz", "labels": "y"}}, "data.labels: unknown key|labels: unknown key"),
    ({"subject_data": 3}, "subject.data"),
    ({"canary": "random_direction"}, "random_direction"),
]
MODELS: list[tuple[dict[str, Any], str]] = [
    ({"format": "linear-model-4"}, "no model of the format"),
    ({"format": "linear-model-2"}, "no model of the format"),  # which says nothing of the rule
    ({"target_range": [1.0]}, r"target_range: got \[1.0\]"),
    ({"more": 1}, "no model of the format"),
    ({"feature_norm": "inf"}, "feature_norm: got 'inf'"),
    ({"classes": ["a", "b", "c"]}, r"weights of shape \(3, 1\) do not fit"),
    ({"columns": {"size": {"range": [0, 1]}}}, "3 weights do not fit the 1 features"),
    ({"columns": {"size": {"range": [1, 0]}}}, "low must be below high"),
    ({"columns": None}, "was trained on arrays"),
    ({"classes": "ab"}, "classes: got 'ab'"),
    ({"classes": ["a", "a"]}, "it needs a list of different names"),
]
WEIGHTS: list[tuple[dict[str, Any], str]] = [
    ({"coef_": np.array([object()]), "intercept_": np.zeros(1)}, "cannot be read"),
    ({"coef_": np.array([["a", "b", "c"]]), "intercept_": np.zeros(1)}, "not a model"),
    ({"coef_": np.full((1, 3), np.nan), "intercept_": np.zeros(1)}, "no finite table"),
    ({"intercept_": np.zeros(1)}, "holds intercept_, and no weights"),
]


def refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(lethe.InputError, match=message):
        call()


@pytest.mark.parametrize(("stated", "message"), COLUMNS)
def test_what_is_stated_of_columns(stated: Any, message: str) -> None:
    refused(message, lambda: PublicColumns.parse(stated))


@pytest.mark.parametrize(("stated", "message"), FITTING)
def test_what_does_not_fit_a_table(tmp_path: Path, stated: Any, message: str) -> None:
    (tmp_path / "table.csv").write_text(ROWS)
    refused(message, lambda: load_table(tmp_path / "table.csv", "label", classes=["no", "yes"], columns=PublicColumns.parse(stated)))


@pytest.mark.parametrize("entry", ["inf", "1e999", "1_000", "0x10", "twelve"])
def test_an_entry_that_is_no_number(tmp_path: Path, entry: str) -> None:
    (tmp_path / "t.csv").write_text(f"age,label\n{entry},no\n")
    columns = PublicColumns.parse({"age": {"range": [0, 1]}})
    refused("row 0, column 'age': the entry is no finite number", lambda: load_table(tmp_path / "t.csv", "label", columns=columns))


@pytest.mark.parametrize(("name", "content", "target", "message"), FILES)
def test_files(tmp_path: Path, name: str, content: str | None, target: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    refused(message, lambda: load_table(tmp_path / name, target))


@pytest.mark.parametrize(("arrays", "target", "message"), ARRAYS)
def test_archives(tmp_path: Path, arrays: dict[str, Any], target: str | None, message: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    refused(message, lambda: load_table(tmp_path / "t.npz", target))


def test_targets_and_doors(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,label\n1,2.5\n2,\n")
    columns = PublicColumns.parse({"age": {"range": [0, 1]}})

    def load(**options: Any) -> object:
        return load_table(tmp_path / "t.csv", "label", columns=columns, **options)

    refused("row 1, column 'label'", lambda: load(task="regression"))
    refused("row 1: the label '' is none of the classes", lambda: load(classes=["2.5", "x"]))
    content = pa.table({"a": [None, 1.0], "y": ["u", "v"]})
    pyarrow.parquet.write_table(content, tmp_path / "t.parquet")
    refused("row 0, column 'a'", lambda: load_table(tmp_path / "t.parquet", "y"))
    (tmp_path / "m.csv").write_text("a,y\n1,1.5\n2,0.5\n")
    refused("measurements, not classes", lambda: load_table(tmp_path / "m.csv", "y", task="classification"))
    np.savez(tmp_path / "t.npz", x=np.eye(2), y=np.arange(2))
    refused("arrays have no named columns", lambda: load_table(tmp_path / "t.npz", columns=columns))
    refused("needs the path of a file", lambda: load_table(3, "y"))  # pyright: ignore[reportArgumentType]
    refused("target: got 'price'", lambda: table_configuration(tmp_path / "m.csv", "price"))
    (tmp_path / "dates.csv").write_text("when,y\n10:00:00,u\n11:00:00,v\n")
    refused("none of its columns but the target", lambda: table_configuration(tmp_path / "dates.csv", "y"))
    for folder in (tmp_path, tmp_path / "missing"):
        refused(r"holds no model\.json", lambda folder=folder: SavedModel.load(folder))


@pytest.mark.parametrize(("changes", "message"), OF_A_RUN)
def test_configurations_of_a_run(tmp_path: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fields = {"run": RUN, "privacy": {"epsilon": 1.0, "delta": 1e-5}, **changes}
    refused(message, lambda: Job(**fields).train(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("changes", "message"), OF_A_MODEL)
def test_configurations_of_an_estimator(tmp_path: Path, changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(message, lambda: Job(**homes_fields(tmp_path, **changes)).train(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("data", "message"), TARGETS)
def test_targets_of_a_regression(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    fields = homes_fields(tmp_path, model={"estimator": "ridge"}, columns={**HOMES, "kind": "drop"})
    refused(message, lambda: Job(**{**fields, "data": {"path": fields["data"]["path"], **data}}).train(tmp_path / "out"))


@pytest.mark.parametrize(("changes", "message"), AUDITS)
def test_audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str) -> None:
    folder = place(tmp_path, monkeypatch)
    (folder / "failing.py").write_text("1 / 0\n")
    (folder / "needing.py").write_text("import numby\n")
    before = sorted(folder.iterdir())
    refused(message, lambda: AuditJob(**described(**changes)).execute())
    assert sorted(entry for entry in folder.iterdir() if entry.name != "__pycache__") == before


def test_what_is_of_another_verb(tmp_path: Path) -> None:
    fields = homes_fields(tmp_path)
    refused("an estimator chooses its own run", lambda: Job(**fields).prepare())
    (tmp_path / "out").mkdir()
    refused("exists already", lambda: Job(**fields).train(tmp_path / "out"))
    write_document(tmp_path / "train.yaml", fields)
    refused(r"is a configuration of `lethe train`, not.*\n.*\n.*kind: train, config: ", lambda: AuditJob.load(tmp_path / "train.yaml"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `lethe train` would have written of homes."""
    folder = tmp_path_factory.mktemp("model")
    columns = PublicColumns.parse(HOMES)
    weights = {"weights": np.ones((3, 1)), "intercept": np.zeros(1)}
    saved = SavedModel(trained_by="linear_svc", target="kind", classes=("cheap", "dear"), feature_norm=1.5, columns=columns, **weights)
    (folder / "model.json").write_bytes(saved.document())
    (folder / "homes.csv").write_text("size,word\n1,u\n")
    return folder


@pytest.mark.parametrize(("damage", "message"), MODELS)
def test_damaged_models(model: Path, tmp_path: Path, damage: dict[str, Any], message: str) -> None:
    (tmp_path / "model.json").write_text(json.dumps({**json.loads((model / "model.json").read_text()), **damage}))
    np.savez(tmp_path / "weights.npz", coef_=np.ones((1, 3)), intercept_=np.zeros(1))
    refused(message, lambda: SavedModel.load(tmp_path).predict_table(model / "homes.csv"))


@pytest.mark.parametrize(("arrays", "message"), WEIGHTS)
def test_weights_are_read_without_executing_anything(model: Path, tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    (tmp_path / "model.json").write_bytes((model / "model.json").read_bytes())
    np.savez(tmp_path / "weights.npz", **arrays)
    refused(message, lambda: SavedModel.load(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"neighbours": "add_or_remove"}, "neighbours: got 'add_or_remove'"),
        ({"seeds": 0}, "seeds: got 0"),
        ({"target": "y"}, "one is given without the other"),
        ({"data": Path("missing.csv"), "target": "y"}, "missing.csv"),
        ({"data": Path("few.csv"), "target": "y"}, "at least 40"),
        ({"delta": 2.0}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
        ({}, r"'thesis.txt', which is not ours"),
    ],
)
def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.csv").write_text("a,y\n1,u\n2,v\n")
    (tmp_path / "mine").mkdir()
    if not changes:
        (tmp_path / "mine" / "thesis.txt").write_text("mine")
    refused(message, lambda: Demo(**changes).execute(tmp_path / "mine", demo_plot, progress=False))
    assert {entry.name for entry in tmp_path.rglob("*")} <= {"mine", "thesis.txt", "few.csv"}
