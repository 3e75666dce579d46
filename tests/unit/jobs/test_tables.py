"""Tables: read to the bit and encoded by what was stated of their columns; and what `lethe init` asks and writes of one without looking."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

import lethe
from lethe.documents.strict import read_document
from lethe.errors import InputError, MissingExtraError
from lethe.jobs.configuration import UNANSWERED
from lethe.jobs.datasets import RecordTable, centred_digits, digits, load_table, split
from lethe.jobs.init import quoted_text, table_configuration
from lethe.jobs.tables.columns import NumberColumn, PublicColumns, WordColumn
from lethe.jobs.tables.reading import ColumnTable, extra

FEATURES = np.array([[0.1, -2.0], [1 / 3, 1e-17], [5.0, 4.0], [0.0, 3e10]])
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
FOREIGN_ROWS = "age,name,label\n31,Käthe Secret,a\n44,Jürgen Secret,b\n"
FOREIGN = {
    "semicolons": (FOREIGN_ROWS.replace(",", ";").encode(), "semicolons separate its entries; it needs commas"),
    "decimal commas": (b"age;income;label\n31;1,5;a\n44;2,5;b\n", "semicolons separate its entries"),
    "tabs": (FOREIGN_ROWS.replace(",", "\t").encode(), "tabs separate its entries"),
    "UTF-16": (FOREIGN_ROWS.encode("utf-16"), "it is UTF-16"),
    "UTF-16 without its mark": (FOREIGN_ROWS.encode("utf-16-le"), "it is UTF-16"),
    "Latin-1": (FOREIGN_ROWS.encode("latin-1"), "column 'name' holds letters that are not UTF-8"),
    "Latin-1 first line": (FOREIGN_ROWS.replace("age", "größe").encode("latin-1"), "the first line holds letters that are not UTF-8"),
}


def write_csv(folder: Path, targets: list[Any]) -> Path:
    lines = ["a,b,kind", *(f"{row[0]!r},{row[1]!r},{target}" for row, target in zip(FEATURES.tolist(), targets, strict=True))]
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    return folder / "table.csv"


def write_parquet(folder: Path, targets: Any, **columns: Any) -> Path:
    content = pa.table({"a": FEATURES[:, 0], "kind": targets, "b": FEATURES[:, 1], **columns})
    pyarrow.parquet.write_table(content, folder / "table.parquet")
    return folder / "table.parquet"


def encoded(folder: Path, stated: Any, text: str = ROWS, **options: Any) -> RecordTable:
    (folder / "table.csv").write_text(text)
    options = {"classes": ["no", "yes"], "task": "classification", **options}
    return load_table(folder / "table.csv", "label", columns=PublicColumns.parse(stated), **options)


def in_memory(entries: Any) -> ColumnTable:
    return ColumnTable(file=Path("t.parquet"), names=("a",), content=pa.table({"a": entries}))


def test_digits_are_centred_each_by_itself_and_only_shortened() -> None:
    raw, centred = digits(), centred_digits()
    assert raw.features.shape == (1797, 64)  # scikit-learn's documentation of load_digits
    assert (raw.features.min(), raw.features.max(), raw.classes) == (0.0, 1.0, 10)
    columns = 1 - np.cos(2 * np.pi * (np.arange(8) + 0.5) / 8)
    assert centred.features @ np.tile(columns, 8) == pytest.approx(np.zeros(1797), abs=1e-12)
    assert np.all(np.linalg.norm(centred.features, axis=1) <= np.linalg.norm(raw.features, axis=1))
    assert np.linalg.matrix_rank(raw.features - centred.features) == 1  # one fixed picture, whatever the data
    assert np.array_equal(raw.targets, centred.targets)


@pytest.mark.parametrize("write", [write_csv, write_parquet])
@pytest.mark.parametrize(
    ("entries", "task", "targets", "names"),
    [
        (["pear", "apple", "fig", "apple"], None, [2, 0, 1, 0], ("apple", "fig", "pear")),
        ([7, 3, 3, 10], None, [1, 0, 0, 2], ("3", "7", "10")),
        ([7.5, 3.0, 3.0, -1.0], None, [7.5, 3.0, 3.0, -1.0], ()),
        ([30, 41, 30, 55], "regression", [30.0, 41.0, 30.0, 55.0], ()),
        ([2.0, 1.0, 2.0, 1.0], "classification", [1, 0, 1, 0], ("1.0", "2.0")),
    ],
)
def test_text_and_integers_are_classes_and_other_numbers_are_not_unless_it_is_said(
    tmp_path: Path, write: Any, entries: list[Any], task: Any, targets: list[Any], names: tuple[str, ...]
) -> None:
    table = load_table(write(tmp_path, entries), "kind", task=task)
    assert (table.features == FEATURES).all()  # to the bit
    assert table.targets.tolist() == targets
    assert (table.class_names, table.classes, table.name) == (names, len(names) or None, "table")


def test_parquet_reads_booleans_categories_and_no_pandas_index(tmp_path: Path) -> None:
    words = pa.array(["x", "y", "x", "y"]).dictionary_encode()
    table = load_table(write_parquet(tmp_path, words, flag=[True, False, True, True], __index_level_0__=[9, 8, 7, 6]), "kind")
    assert table.targets.tolist() == [0, 1, 0, 1]
    assert table.features.tolist() == np.column_stack([FEATURES, [1, 0, 1, 1]]).tolist()


@pytest.mark.parametrize("names", [("x", "y"), ("X", "y"), ("x_train", "y_train"), ("features", "targets"), ("data", "target")])
def test_npz_by_its_usual_names(tmp_path: Path, names: tuple[str, str]) -> None:
    np.savez(tmp_path / "t.npz", **{names[0]: FEATURES, names[1]: np.array([4, 2, 2, 9])})
    table = load_table(tmp_path / "t.npz")
    assert (table.features == FEATURES).all()
    assert (table.targets.tolist(), table.classes) == ([1, 0, 0, 2], 3)


def test_npz_by_the_target_s_name_and_with_images(tmp_path: Path) -> None:
    images, ages = np.arange(24, dtype=np.uint8).reshape(2, 3, 4), np.array([0.5, 1.5])
    np.savez(tmp_path / "t.npz", x_train=FEATURES, y_train=np.zeros(4), x_test=images, y_test=np.array([[1], [0]]), age=ages)
    table = load_table(tmp_path / "t.npz", "y_test")
    assert (table.features == images.reshape(2, 12)).all()
    assert table.targets.tolist() == [1, 0]
    np.savez(tmp_path / "t.npz", x=FEATURES, age=np.array([0.5, 1.5, 2.5, 3.5]))
    assert load_table(tmp_path / "t.npz", "age").targets.tolist() == [0.5, 1.5, 2.5, 3.5]


def test_split_is_a_partition_that_follows_the_seed() -> None:
    table = RecordTable(features=np.arange(20.0).reshape(10, 2), targets=np.arange(10), classes=10, name="ten")
    train, test = split(table, 0.25, 1)
    assert len(train.targets) == 8  # 2.5 rounds to the even 2
    assert sorted([*train.targets, *test.targets]) == list(range(10))
    assert (train.features[:, 0] == 2 * train.targets).all()
    assert (train.classes, test.name) == (10, "ten, test")
    assert (split(table, 0.25, 1)[1].targets == test.targets).all()
    assert any((split(table, 0.25, seed)[1].targets != test.targets).any() for seed in range(2, 8))
    assert (len(split(table, 0.001, 0)[1].targets), len(split(table, 0.999, 0)[0].targets)) == (1, 1)
    with pytest.raises(InputError, match="at least 2"):
        split(RecordTable(features=np.zeros((1, 1)), targets=np.arange(1), classes=None, name="one"), 0.5, 0)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtraError, match=r'(?s)no_such_package is needed.*pip install "lethe-dp\[train\]"'):
        extra("no_such_package.part")


@pytest.mark.parametrize("form", FOREIGN)
@pytest.mark.parametrize("name", ["own.csv", "own.csv.gz"])
def test_other_separators_and_encodings_are_refused_with_a_line_that_mends_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, name: str
) -> None:
    content, message = FOREIGN[form]
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match=message) as caught:
        ColumnTable.read(tmp_path / name)
    assert "Secret" not in str(caught.value)
    assert caught.value.remedy is not None
    monkeypatch.chdir(tmp_path)
    eval(caught.value.remedy.removeprefix("write it anew: "), {"pandas": pd})
    table = ColumnTable.read(tmp_path / "table.csv")
    assert (len(table.names), table.names[-1]) == (3, "label")
    assert form != "decimal commas" or table.numbers("income").tolist() == [1.5, 2.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b,label\n1,2,x\n1,2,3,4,secret\n", "a row has 5 entries where the first line names 3 columns"),
        (b'a,label\n"secret,1\n2,b\n', "a row has 1 entries where the first line names 2 columns"),
        (b"", "is empty"),
        (b"PK\x03\x04secret", "no comma-separated text"),
        ("a,label\nsecret,1\nsecrét,2\n".encode("latin-1"), "not UTF-8"),
    ],
    ids=["too many", "quote", "empty", "zip", "Latin-1"],
)
@pytest.mark.parametrize("as_text", [(), ("a", "label")])
def test_no_refusal_quotes_a_row(tmp_path: Path, content: bytes, message: str, as_text: Any) -> None:
    (tmp_path / "own.csv").write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        ColumnTable.read(tmp_path / "own.csv", as_text=as_text)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None  # whose text would


def test_rows_are_encoded_by_what_was_stated(tmp_path: Path) -> None:
    table = encoded(tmp_path, STATED)
    assert table.features[:, :2] == pytest.approx(np.array([[-67 / 73, 0], [1, 0], [-1, 1], [-1, 0], [0, 0]]))  # 17..90, 0..80
    # A comma within quotes is part of an answer; NA is listed here, so that it is one; what is not listed, or empty, becomes zeros.
    assert table.features[:, 2:].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert table.targets.tolist() == [0, 1, 0, 1, 0]
    assert table.class_names == ("no", "yes")
    truths = encoded(tmp_path, {"on": {"range": [0, 1]}}, "on,label\ntrue,no\nFalse,yes\n1,no\n")
    assert truths.features[:, 0].tolist() == [1, -1, 1]


def test_the_encoding_is_that_of_public_scaler_and_one_hot_encoder() -> None:
    pytest.importorskip("torch")
    from sklearn.preprocessing import OneHotEncoder

    import lethe.estimators as private

    random = np.random.default_rng(0)
    numbers, words = random.normal(0.0, 3.0, (200, 1)), random.choice(["a", "b", "c", "d"], (200, 1)).astype(object)
    mine = NumberColumn(range=(-1.7, 4.1)).encode(in_memory(numbers[:, 0]), "a")
    assert (mine == private.PublicScaler([-1.7], [4.1]).fit_transform(numbers)).all()  # bit for bit
    listed: Any = [["c", "a", "b"]]
    encoder = OneHotEncoder(categories=listed, handle_unknown="ignore", sparse_output=False)
    assert (WordColumn(categories=("c", "a", "b")).encode(in_memory(words[:, 0]), "a") == encoder.fit_transform(words)).all()


def test_no_record_changes_how_another_is_encoded(tmp_path: Path) -> None:
    """In a column of whole numbers one text makes a reader take all of them for texts: "07" would be another answer than 7."""
    stated = {"code": {"categories": ["07", "7"]}, "size": {"range": [0, 1]}}
    before = encoded(tmp_path, stated, "code,size,label\n07,1,no\n7,0.5,yes\n").features
    after = encoded(tmp_path, stated, "code,size,label\n07,1,no\nseven,true,yes\n").features
    assert before[0].tolist() == after[0].tolist() == [1, 0, 1]


def test_the_document_reads_back_as_the_same_encoding() -> None:
    columns = PublicColumns.parse({**STATED, "work": {"categories": ["a", "b"], "missing": "b"}})
    again = PublicColumns.parse(json.loads(json.dumps(columns.to_document())))
    assert again == columns
    assert again.feature_names == ["age", "hours", "work=a", "work=b"]
    assert again.longest == pytest.approx(3**0.5)
    assert again.used["work"].encode(in_memory(["?", "a"]), "a").tolist() == [[0, 1], [1, 0]]  # the answer for a missing one
    assert "hours: 0 to 80, 40 where there is no value" in again.describe()


def test_a_packed_table_and_parquet_give_the_same(tmp_path: Path) -> None:
    plain, columns = encoded(tmp_path, STATED), PublicColumns.parse(STATED)
    with gzip.open(tmp_path / "table.csv.gz", "wt") as stream:
        stream.write(ROWS)
    content = pa.table(
        {
            "age": [20, 90.5, 17, -3, 53.5],
            "hours": pa.array([40, None, 100, None, None], pa.int64()),
            "work": pa.array(["Private", "Exec, managerial", "NA", "Unheard-of", None]).dictionary_encode(),
            "id": ["x1", "x2", None, "x4", "x5"],
            "label": ["no", "yes", "no", "yes", "no"],
        }
    )
    pyarrow.parquet.write_table(content, tmp_path / "table.parquet")
    for name in ("table.csv.gz", "table.parquet"):
        table = load_table(tmp_path / name, "label", task="classification", classes=["no", "yes"], columns=columns)
        assert table.name == "table"
        assert (table.features == plain.features).all()
        assert (table.targets == plain.targets).all()


def _table(path: Path, rows: int = 200) -> Path:
    random = np.random.default_rng(0)
    size, on = random.uniform(0, 9, rows), random.choice(["true", "false"], rows)
    word = random.choice(["no", 'a "quote", and a comma', "k: v # c"], rows)
    lines = ['"wide, odd: name",on,word,when,label']
    for a, b, c in zip(size, on, word, strict=True):
        lines.append(f'{a:.2f},{b},"{c.replace(chr(34), chr(34) * 2)}",2020-01-01,{"yes" if a > 4 else "no"}')
    (path / "t.csv").write_text("\n".join(lines) + "\n")
    return path / "t.csv"


def test_nothing_but_names_and_types_is_taken_from_the_table(tmp_path: Path) -> None:
    file = _table(tmp_path)
    first = table_configuration(file, "label")
    header, *lines = file.read_text().splitlines()
    file.write_text("\n".join([header, "77.5,true,other,2021-01-01,maybe", *lines[5:20]]) + "\n")
    assert table_configuration(file, "label") == first
    assert "77" not in first.replace(str(tmp_path), "")  # whose number may hold it
    assert "quote" not in first
    (tmp_path / "train.yaml").write_text(first)
    content = read_document(tmp_path / "train.yaml")
    assert content["columns"] == {
        "wide, odd: name": {"range": UNANSWERED, "missing": "refuse"},
        "on": {"range": [0, 1], "missing": "refuse"},
        "word": {"categories": UNANSWERED},
        "when": {"dates": UNANSWERED, "missing": "refuse"},
    }
    assert content["data"]["classes"] == UNANSWERED
    assert content["model"]["feature_norm"] == 2.0  # of four columns
    assert "public" not in content
    file = _table(tmp_path)
    file.write_text(file.read_text().replace("2020-01-01", "2024-02-29", 3).replace("2020-01-01", "2019-12-31", 3))
    (tmp_path / "train.yaml").write_text(table_configuration(file, "label", look=True))
    content = read_document(tmp_path / "train.yaml")
    assert content["columns"]["when"]["dates"] == ["2019-12-31", "2024-02-29"]
    assert content["columns"]["word"] == {"categories": ['a "quote", and a comma', "k: v # c", "no"]}
    low, high = content["columns"]["wide, odd: name"]["range"]
    assert (0 <= low < 0.2, 8.8 < high <= 9, content["data"]["classes"]) == (True, True, ["no", "yes"])


def test_a_schema_answers_what_it_can_and_nothing_of_a_dictionary(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    content = {
        "kind": arrow.array(["rare", "usual", "usual"]).dictionary_encode(),
        "size": arrow.array([1.0, 2.0, 3.0]),
        "bins": arrow.array([[1], [2], [3]]),
        "sold": arrow.array([True, False, True]),
    }
    parquet.write_table(arrow.table(content), tmp_path / "t.parquet")
    text = table_configuration(tmp_path / "t.parquet", "sold")
    assert "rare" not in text
    (tmp_path / "train.yaml").write_text(text)
    written = read_document(tmp_path / "train.yaml")
    assert written["data"]["classes"] == ["False", "True"]
    assert written["columns"]["kind"] == {"categories": UNANSWERED}
    assert written["columns"]["bins"] == "drop"
    prices = table_configuration(tmp_path / "t.parquet", "size")
    assert "target_range: ???" in prices
    assert "estimator: ridge" in prices


@pytest.mark.parametrize(
    "text", ["a", "yes", "No", "null", "~", "", " a", "1", "1e5", "a: b", "a #b", "???", "a\nb", '"', "é€", "[x]", "\u2028"]
)
def test_names_are_written_as_yaml_reads_them_back(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(f"{quoted_text(text)}: {quoted_text(text)}\nlist: [{quoted_text(text)}]\n")
    assert read_document(tmp_path / "t.yaml") == {text: text, "list": [text]}


def test_the_demo_takes_the_same_columns_and_names_the_way_out_without(tmp_path: Path) -> None:
    from lethe.jobs.demo import Demo

    file = _table(tmp_path)
    (tmp_path / "train.yaml").write_text(table_configuration(file, "label"))
    fields: dict[str, Any] = {"target": "label", "seeds": 1}
    with pytest.raises(lethe.InputError, match="lethe init --data"):
        Demo(**fields, data=file).load()
    with pytest.raises(lethe.InputError, match="not answered yet"):
        Demo(**fields, data=file, columns=tmp_path / "train.yaml").load()
    (tmp_path / "train.yaml").write_text(table_configuration(file, "label", look=True))
    table, notes, scaled = Demo(columns=tmp_path / "train.yaml").load()  # which names file and target
    assert (table.features.shape, table.class_names, scaled) == ((200, 5), ("no", "yes"), True)
    assert "Ranges and categories of 3 columns were stated and are taken as public (read off the table)." in " ".join(notes)
    (tmp_path / "only.yaml").write_text("data: {path: t.csv, target: label}\n")
    with pytest.raises(lethe.InputError, match="columns: missing"):
        Demo(**fields, data=file, columns=tmp_path / "only.yaml").load()


def test_delta_is_of_the_number_of_records_and_identifiers_are_dropped_by_their_names(tmp_path: Path) -> None:
    names = ["id", "patient_id", "PatientID", "userId", "case id", "UUID", "paid", "covid", "bid"]
    for records, delta in ((2, "1e-5"), (10_000, "1e-5"), (10_001, "1e-6")):
        assert float(delta) <= 0.1 / records
        (tmp_path / "t.csv").write_text(",".join([*names, "y"]) + "\n" + ("1," * 9 + "2\n") * records)
        text = table_configuration(tmp_path / "t.csv", "y")
        assert f"  delta: {delta}   #" in text
    assert [line.split(":")[0].strip(' "') for line in text.splitlines() if "an identifier, by its name" in line] == names[:6]
