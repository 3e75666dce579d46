"""What is stated of columns, and what it makes of rows: as scikit-learn's own, by nothing else than what was stated."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

from lethe.errors import InputError
from lethe.jobs.datasets import load_table
from lethe.jobs.tables.columns import NumberColumn, PublicColumns, WordColumn
from lethe.jobs.tables.reading import ColumnTable

STATED: dict[str, Any] = {
    "age": {"range": [17, 90]},
    "hours": {"range": [0, 80], "missing": 40},
    "work": {"categories": ["Private", "Exec, managerial", "NA"]},
    "id": "drop",
}
ROWS = """age,hours,work,id,label
20,40,Private,x1,no
90.5,?,"Exec, managerial",x2,yes
17, 100 ,NA,,no
-3,,Unheard-of,x4,yes
53.5,nan,,x5,no
"""


def _load(path: Path, stated: Any = None, text: str = ROWS, **options: Any) -> Any:
    file = path / "table.csv"
    file.write_text(text)
    columns = PublicColumns.parse(STATED if stated is None else stated)
    return load_table(file, "label", **{"classes": ["no", "yes"], "task": "classification", **options}, columns=columns)


def _table(entries: Any) -> ColumnTable:
    return ColumnTable(file=Path("t.parquet"), names=("a",), content=pyarrow.table({"a": entries}))


def test_rows_are_encoded_by_what_was_stated(tmp_path: Path) -> None:
    table = _load(tmp_path)
    assert table.features[:, :2] == pytest.approx(np.array([[-67 / 73, 0], [1, 0], [-1, 1], [-1, 0], [0, 0]]))  # 17..90, 0..80
    # A comma within quotes is part of an answer; NA is listed here, so that it is one; what is not listed, or empty, becomes zeros.
    assert table.features[:, 2:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert table.targets.tolist() == [0, 1, 0, 1, 0]
    assert table.class_names == ("no", "yes")


def test_the_encoding_is_that_of_public_scaler_and_one_hot_encoder() -> None:
    pytest.importorskip("torch")
    from sklearn.preprocessing import OneHotEncoder

    import lethe.estimators as private

    random = np.random.default_rng(0)
    numbers = random.normal(0.0, 3.0, (200, 1))
    mine = NumberColumn(range=(-1.7, 4.1)).encode(_table(numbers[:, 0]), "a")
    assert (mine == private.PublicScaler([-1.7], [4.1]).fit_transform(numbers)).all()  # bit for bit
    words = random.choice(["a", "b", "c", "d"], (200, 1)).astype(object)
    listed: Any = [["c", "a", "b"]]
    encoder = OneHotEncoder(categories=listed, handle_unknown="ignore", sparse_output=False)
    assert (WordColumn(categories=("c", "a", "b")).encode(_table(words[:, 0]), "a") == encoder.fit_transform(words)).all()


def test_no_record_changes_how_another_is_encoded(tmp_path: Path) -> None:
    """In a column of whole numbers one text makes a reader take all of them for texts: "07" would be another answer than 7."""
    stated = {"code": {"categories": ["07", "7"]}, "size": {"range": [0, 1]}}
    before = _load(tmp_path, stated, "code,size,label\n07,1,no\n7,0.5,yes\n").features
    after = _load(tmp_path, stated, "code,size,label\n07,1,no\nseven,true,yes\n").features
    assert before[0].tolist() == after[0].tolist() == [1, 0, 1]


def test_the_document_reads_back_as_the_same_encoding() -> None:
    columns = PublicColumns.parse({**STATED, "work": {"categories": ["a", "b"], "missing": "b"}})
    again = PublicColumns.parse(json.loads(json.dumps(columns.to_document())))
    assert again == columns
    assert again.feature_names == ["age", "hours", "work=a", "work=b"]
    assert again.longest == pytest.approx(3**0.5)
    assert again.kept["work"].encode(_table(["?", "a"]), "a").tolist() == [[0, 1], [1, 0]]  # a missing answer is the one stated for it
    assert "hours: 0 to 80, 40 where there is no value" in again.describe()


def test_a_packed_table_and_parquet_give_the_same(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    plain = _load(tmp_path)
    with gzip.open(tmp_path / "table.csv.gz", "wt") as stream:
        stream.write(ROWS)
    columns = PublicColumns.parse(STATED)
    packed = load_table(tmp_path / "table.csv.gz", "label", task="classification", classes=["no", "yes"], columns=columns)
    assert packed.name == "table"
    content = arrow.table(
        {
            "age": [20, 90.5, 17, -3, 53.5],
            "hours": arrow.array([40, None, 100, None, None], arrow.int64()),
            "work": arrow.array(["Private", "Exec, managerial", "NA", "Unheard-of", None]).dictionary_encode(),
            "id": ["x1", "x2", None, "x4", "x5"],
            "label": ["no", "yes", "no", "yes", "no"],
        }
    )
    parquet.write_table(content, tmp_path / "table.parquet")
    stored = load_table(tmp_path / "table.parquet", "label", task="classification", classes=["no", "yes"], columns=columns)
    assert (packed.features == plain.features).all()
    assert (stored.features == plain.features).all()
    assert (stored.targets == plain.targets).all()


def test_true_and_false_are_numbers(tmp_path: Path) -> None:
    table = _load(tmp_path, {"on": {"range": [0, 1]}}, "on,label\ntrue,no\nFalse,yes\n1,no\n")
    assert table.features[:, 0].tolist() == [1, -1, 1]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ([1], "it needs a mapping"),
        ({"age": 3}, "column 'age': got 3; it needs range"),
        ({"age": {}}, "column 'age': got {}; it needs range"),
        ({"age": {"range": [0, 1], "categories": ["a"]}}, "it needs range: .* for numbers, categories: .* for words, or drop"),
        ({"age": {"range": [90, 17]}}, r"column 'age': range: got \[90, 17\]; low must be below high"),
        ({"age": {"range": [1, 1]}}, "low must be below high"),
        ({"age": {"range": [0, 5e-324]}}, "too narrow"),
        ({"age": {"range": [float("nan"), 1]}}, "got nan; it needs a finite number"),
        ({"age": {"range": [0, float("inf")]}}, "got inf; it needs a finite number"),
        ({"age": {"range": [-1e308, 1e308]}}, "it needs a finite number"),
        ({"age": {"range": [True, 2]}}, "got True; it needs a finite number"),
        ({"age": {"range": ["0", 1]}}, "got '0'"),
        ({"age": {"range": [0, 1, 2]}}, r"it needs \[low, high\]"),
        ({"age": {"range": [0, 1], "missing": 2}}, "missing: got 2; it needs a number within the range"),
        ({"age": {"range": [0, 1], "missing": "often"}}, "got 'often'"),
        ({"age": {"range": [0, 1], "mising": 1}}, "mising: unknown key; did you mean 'missing'"),
        ({"work": {"categories": []}}, "it needs the list of the answers"),
        ({"work": {"categories": "Private"}}, "it needs the list of the answers"),
        ({"work": {"categories": ["a", "b", "a"]}}, "'a' is listed twice"),
        ({"work": {"categories": [1, "1"]}}, "'1' is listed twice"),
        ({"work": {"categories": [True, False]}}, "got True; a category is text"),
        ({"work": {"categories": ["a "]}}, "no spaces at its ends"),
        ({"work": {"categories": ["a"], "missing": "b"}}, "missing: got 'b'; it needs one of the categories"),
    ],
)
def test_what_cannot_be_stated_is_refused_by_name(stated: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PublicColumns.parse(stated)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({**STATED, "label": "drop"}, "'label' is the target; it cannot be a feature"),
        ({**STATED, "label": {"categories": ["no"]}}, "'label' is the target"),
        ({**STATED, "wage": {"range": [0, 1]}}, "there is no column 'wage' in the file; it has age, hours, work, id, label"),
        ({name: STATED[name] for name in ("age", "hours", "id")}, "column 'work' holds string and is not stated: it needs categories"),
        ({name: STATED[name] for name in ("hours", "work", "id")}, "column 'age' holds double and is not stated: it needs a range"),
        (dict.fromkeys(STATED, "drop"), "all of them are dropped"),
        ({**STATED, "hours": {"range": [0, 80]}}, "row 1, column 'hours': the value is missing, and nothing is stated to stand for it"),
        ({**STATED, "work": {"range": [0, 1]}}, "row 0, column 'work': the entry is no finite number"),
    ],
)
def test_what_does_not_fit_the_file_is_refused_by_name(tmp_path: Path, stated: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _load(tmp_path, stated)


@pytest.mark.parametrize("entry", ["inf", "-inf", "1e999", "1_000", "0x10", "twelve"])
def test_an_entry_that_is_no_number_is_refused(tmp_path: Path, entry: str) -> None:
    with pytest.raises(InputError, match="row 0, column 'age': the entry is no finite number"):
        _load(tmp_path, {"age": {"range": [0, 1]}}, f"age,label\n{entry},no\n")


def test_a_column_name_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'age' occurs 2 times"):
        _load(tmp_path, {"age": {"range": [0, 1]}}, "age,age,label\n1,2,no\n")
    np.savez(tmp_path / "t.npz", x=np.eye(2), y=np.arange(2))
    with pytest.raises(InputError, match="arrays have no named columns"):
        load_table(tmp_path / "t.npz", columns=PublicColumns.parse({"age": {"range": [0, 1]}}))


def test_what_is_no_packed_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(b"\x1f\x8b broken")
    with pytest.raises(InputError, match="cannot be read"):
        load_table(tmp_path / "t.csv.gz", "label")


def test_a_missing_target_is_refused(tmp_path: Path) -> None:
    text = "age,label\n1,2.5\n2,\n"
    with pytest.raises(InputError, match="row 1, column 'label'"):
        _load(tmp_path, {"age": {"range": [0, 1]}}, text, task="regression", classes=None)
    with pytest.raises(InputError, match="row 1: the label '' is none of the classes"):
        _load(tmp_path, {"age": {"range": [0, 1]}}, text, classes=["2.5", "x"])
