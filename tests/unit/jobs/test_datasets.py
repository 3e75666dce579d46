from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from lethe.errors import InputError, MissingExtraError
from lethe.jobs.datasets import RecordTable, centred_digits, digits, load_table, split
from lethe.jobs.tables.reading import extra


def test_centring_digits_maps_each_image_by_itself_and_only_shortens_it() -> None:
    raw, centred = digits(), centred_digits()
    columns = 1 - np.cos(2 * np.pi * (np.arange(8) + 0.5) / 8)
    assert centred.features @ np.tile(columns, 8) == pytest.approx(np.zeros(1797), abs=1e-12)
    assert np.all(np.linalg.norm(centred.features, axis=1) <= np.linalg.norm(raw.features, axis=1))
    assert np.linalg.matrix_rank(raw.features - centred.features) == 1  # one fixed picture, whatever the data
    assert np.array_equal(raw.targets, centred.targets)


def test_digits() -> None:
    table = digits()
    assert table.features.shape == (1797, 64)  # scikit-learn's documentation of load_digits
    assert (table.features.min(), table.features.max()) == (0.0, 1.0)
    assert table.classes == 10
    assert np.unique(table.targets).tolist() == list(range(10))
    assert table.name == "digits"


FEATURES = np.array([[0.1, -2.0], [1 / 3, 1e-17], [5.0, 4.0], [0.0, 3e10]])


def write_csv(folder: Path, targets: list[Any], header: str = "a,b,kind", rows: np.ndarray = FEATURES) -> Path:
    file = folder / "table.csv"
    lines = [header, *(f"{row[0]!r},{row[1]!r},{target}" for row, target in zip(rows.tolist(), targets, strict=True))]
    file.write_text("\n".join(lines) + "\n")
    return file


def write_parquet(folder: Path, targets: Any, **columns: Any) -> Path:
    file = folder / "table.parquet"
    pyarrow.parquet.write_table(pa.table({"a": FEATURES[:, 0], "kind": targets, "b": FEATURES[:, 1], **columns}), file)
    return file


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_text_classes_are_sorted_and_numbered(tmp_path: Path, write: Any) -> None:
    table = load_table(write(tmp_path, ["pear", "apple", "fig", "apple"]), "kind")
    assert (table.features == FEATURES).all()  # to the bit
    assert table.targets.tolist() == [2, 0, 1, 0]
    assert table.classes == 3
    assert table.class_names == ("apple", "fig", "pear")
    assert table.name == "table"


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_integers_are_classes_and_other_numbers_are_real_targets(tmp_path: Path, write: Any) -> None:
    table = load_table(write(tmp_path, [7, 3, 3, 10]), "kind")
    assert table.targets.tolist() == [1, 0, 0, 2]
    assert table.class_names == ("3", "7", "10")
    table = load_table(write(tmp_path, [7.5, 3.0, 3.0, -1.0]), "kind")
    assert table.classes is None
    assert table.targets.tolist() == [7.5, 3.0, 3.0, -1.0]


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_task_decides_when_the_type_does_not(tmp_path: Path, write: Any) -> None:
    ages = load_table(write(tmp_path, [30, 41, 30, 55]), "kind", task="regression")
    assert ages.classes is None
    assert ages.targets.tolist() == [30.0, 41.0, 30.0, 55.0]
    labels = load_table(write(tmp_path, [2.0, 1.0, 2.0, 1.0]), "kind", task="classification")
    assert labels.targets.tolist() == [1, 0, 1, 0]
    with pytest.raises(InputError, match="measurements, not classes"):
        load_table(write(tmp_path, [1.5, 0.5, 1.5, 0.5]), "kind", task="classification")


def test_parquet_reads_booleans_categories_and_no_pandas_index(tmp_path: Path) -> None:
    file = write_parquet(
        tmp_path,
        pa.array(["x", "y", "x", "y"]).dictionary_encode(),
        flag=[True, False, True, True],
        __index_level_0__=[9, 8, 7, 6],
    )
    table = load_table(file, "kind")
    assert table.targets.tolist() == [0, 1, 0, 1]
    assert table.features.tolist() == np.column_stack([FEATURES, [1, 0, 1, 1]]).tolist()


@pytest.mark.parametrize("names", [("x", "y"), ("X", "y"), ("x_train", "y_train"), ("features", "targets"), ("data", "target")])
def test_npz_by_its_usual_names(tmp_path: Path, names: tuple[str, str]) -> None:
    np.savez(tmp_path / "t.npz", **{names[0]: FEATURES, names[1]: np.array([4, 2, 2, 9])})
    table = load_table(tmp_path / "t.npz")
    assert (table.features == FEATURES).all()
    assert table.targets.tolist() == [1, 0, 0, 2]
    assert table.classes == 3


def test_npz_by_the_targets_name_and_with_images(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.savez(
        tmp_path / "t.npz", x_train=FEATURES, y_train=np.zeros(4), x_test=images, y_test=np.array([[1], [0]]), age=np.array([0.5, 1.5])
    )
    table = load_table(tmp_path / "t.npz", "y_test")
    assert (table.features == images.reshape(2, 12)).all()
    assert table.targets.tolist() == [1, 0]
    np.savez(tmp_path / "t.npz", x=FEATURES, age=np.array([0.5, 1.5, 2.5, 3.5]))
    assert load_table(tmp_path / "t.npz", "age").targets.tolist() == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_missing_values_are_refused_by_row_and_column(tmp_path: Path, write: Any) -> None:
    with pytest.raises(InputError, match="row 1, column 'kind'"):
        load_table(write(tmp_path, [1, None if write is write_parquet else "", 2, 3]), "kind")


def test_missing_features_are_refused_by_row_and_column(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("a,b,y\n1,2,0\n3,4,1\n5,,1\n")
    with pytest.raises(InputError, match="row 2, column 'b'"):
        load_table(file, "y")
    with pytest.raises(InputError, match="row 0, column 'a'"):
        load_table(write_parquet(tmp_path, [1, 2, 3, 4], a=[None, 1.0, 2.0, 3.0]), "kind")
    np.savez(tmp_path / "t.npz", x=np.array([[1.0, 2.0], [3.0, np.nan]]), y=np.array([0, 1]))
    with pytest.raises(InputError, match="row 1, column 1"):
        load_table(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", x=np.ones((2, 2)), y=np.array([0.0, np.inf]))
    with pytest.raises(InputError, match="row 1, column 'target'"):
        load_table(tmp_path / "t.npz")


def test_text_features_are_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"(?s)column 'city' holds string.*0/1 column for each category"):
        load_table(write_parquet(tmp_path, [1, 2, 3, 4], city=["A", "B", "A", "C"]), "kind")
    with pytest.raises(InputError, match="column 'day' holds timestamp"):
        load_table(write_parquet(tmp_path, [1, 2, 3, 4], day=np.array(["2020-01-01"] * 4, dtype="datetime64[s]")), "kind")


@pytest.mark.parametrize(
    ("name", "content", "target", "message"),
    [
        ("absent.csv", None, "y", "cannot be read"),
        ("absent.parquet", None, "y", "cannot be read"),
        ("absent.npz", None, None, "cannot be read"),
        ("t.csv", "", "y", "cannot be read"),
        ("t.csv", "a,y\n1,2\n3\n", "y", "cannot be read"),
        ("t.parquet", "no parquet", "y", "cannot be read"),
        ("t.npz", "no zip", None, "cannot be read"),
        ("t.npz", "PK\x03\x04 truncated", None, "cannot be read"),
        ("t.txt", "a", "y", "ends in .npz, .csv, .csv.gz or .parquet"),
        ("t.csv", "a,y\n1,2\n", "z", "target: got 'z'; it needs one of the columns a, y"),
        ("t.csv", "a,y\n1,2\n", None, "target: got None"),
        ("t.csv", "a,a,y\n1,2,3\n", "y", "column 'a' occurs 2 times"),
        ("t.csv", "y\n1\n", "y", "the only column"),
        ("t.csv", "a,y\n1,2\n3,2\n", "y", "1 class"),
        ("t.csv", "a,y\n", "y", "no rows"),
        ("t.csv", "a,y\n1,yes\n2,\n", "y", "row 1, column 'target'"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: str | None, target: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        load_table(tmp_path / name, target)


@pytest.mark.parametrize(
    ("arrays", "target", "message"),
    [
        ({"x": FEATURES}, None, "no features and targets among the arrays x"),
        ({"x": FEATURES, "y": np.zeros(4)}, "label", "for target 'label'"),
        ({"x": FEATURES, "y": np.zeros(3)}, None, r"targets have shape \(3,\)"),
        ({"x": np.zeros(4), "y": np.zeros(4)}, None, "one row a record"),
        ({"x": np.array([["a"], ["b"]]), "y": np.zeros(2)}, None, "real numbers"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, None, "shape"),
        ({"x": np.array([[{}], [{}]], dtype=object), "y": np.zeros(2)}, None, "cannot be read"),
    ],
)
def test_bad_archives_are_refused(tmp_path: Path, arrays: dict[str, Any], target: str | None, message: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_table(tmp_path / "t.npz", target)


def test_bad_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="task: got 'guess'"):
        load_table(write_csv(tmp_path, [1, 2, 3, 4]), "kind", task="guess")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="regression needs numbers"):
        load_table(write_csv(tmp_path, ["u", "v", "u", "v"]), "kind", task="regression")


def test_split_is_a_partition_that_follows_the_seed() -> None:
    table = RecordTable(features=np.arange(20.0).reshape(10, 2), targets=np.arange(10), classes=10, name="ten")
    train, test = split(table, 0.25, 1)
    assert len(train.targets) == 8  # 2.5 rounds to the even 2
    assert sorted([*train.targets, *test.targets]) == list(range(10))
    assert (train.features[:, 0] == 2 * train.targets).all()
    assert (train.classes, test.classes) == (10, 10)
    assert (split(table, 0.25, 1)[1].targets == test.targets).all()
    assert any((split(table, 0.25, seed)[1].targets != test.targets).any() for seed in range(2, 8))
    assert len(split(table, 0.001, 0)[1].targets) == 1
    assert len(split(table, 0.999, 0)[0].targets) == 1


@pytest.mark.parametrize(
    ("fraction", "seed"), [(0.0, 0), (1.0, 0), (-0.1, 0), (float("nan"), 0), ("half", 0), (0.5, -1), (0.5, 1.5), (0.5, None)]
)
def test_bad_splits_are_refused(fraction: Any, seed: Any) -> None:
    table = RecordTable(features=np.zeros((4, 1)), targets=np.arange(4), classes=4, name="four")
    with pytest.raises(InputError):
        split(table, fraction, seed)
    with pytest.raises(InputError, match="at least 2"):
        split(RecordTable(features=np.zeros((1, 1)), targets=np.arange(1), classes=None, name="one"), 0.5, 0)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingExtraError, match=r'(?s)no_such_package is needed.*pip install "lethe-dp\[train\]"'):
        extra("no_such_package.part")


@pytest.mark.parametrize("path", [None, 3])
def test_what_is_no_path_and_no_table_is_refused(path: Any) -> None:
    with pytest.raises(InputError, match="needs the path of a file"):
        load_table(path, "y")
    with pytest.raises(InputError, match="needs a Table"):
        split(path, 0.2, 0)
