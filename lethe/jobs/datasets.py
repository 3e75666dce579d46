"""Data to train on: scikit-learn's embedded digits, and the user's own npz, csv, csv.gz or parquet files.

training.py, demo.py and audit.py load by it; text columns become numbers by public lists only.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lethe.documents.strict import as_path, reading_arrays
from lethe.errors import InputError
from lethe.jobs.tables.columns import PublicColumns, as_number
from lethe.jobs.tables.reading import SUFFIXES, ColumnTable, bad_entry, extra, table_suffix

Task = Literal["classification", "regression"]

_NPZ_PAIRS = (("x", "y"), ("X", "y"), ("x_train", "y_train"), ("X_train", "y_train"), ("features", "targets"), ("data", "target"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordTable:
    """Records as rows: finite features, shape (n, d), and targets, shape (n,): class numbers 0..classes-1 (int64), or finite numbers.

    Args:
        classes: how many, None for real targets.
        name: for tables and reports.
        class_names: what each class number is called; empty for real targets.
    """

    features: npt.NDArray[np.float64]
    targets: npt.NDArray[Any]
    classes: int | None
    name: str
    class_names: tuple[str, ...] = ()


def digits() -> RecordTable:
    """The 1797 handwritten digits embedded in scikit-learn: 64 grey levels in [0, 1], 10 classes."""
    bunch: Any = extra("sklearn.datasets").load_digits()
    names = tuple(str(digit) for digit in range(10))
    return RecordTable(features=bunch.data / 16.0, targets=bunch.target.astype(np.int64), classes=10, name="digits", class_names=names)


def centred_digits() -> RecordTable:
    r"""`digits`, each image without its component along one fixed picture, ink in the middle columns and none at the sides.

    Column c of the picture has weight $1 - \cos(2\pi(c + 1/2)/8)$. It is public knowledge of how digits are written, not computed from the
    data, and each image is mapped by itself, so this costs no privacy. Most of an image's norm is that common part; what tells digits apart
    is in the rest, and a bound on the norm then leaves it more room.
    """
    table = digits()
    columns = 1.0 - np.cos(2.0 * np.pi * (np.arange(8) + 0.5) / 8.0)
    picture = np.tile(columns, 8)
    picture /= np.linalg.norm(picture)
    rest = table.features - np.outer(table.features @ picture, picture)
    return replace(table, features=rest, name="digits, centred")


def load_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    *,
    task: Task | None = None,
    classes: Sequence[str] | None = None,
    columns: PublicColumns | None = None,
) -> RecordTable:
    """Read features and targets from a .npz, .csv, .csv.gz or .parquet file.

    Args:
        path: the file. csv: the first line names the columns. npz: arrays named x and y, x_train and y_train, features and targets, or
            data and target; features with more than two axes are flattened to rows.
        target: the target's column; for npz the target's array, such as y_test (then x_test holds the features).
        task: None: text, true/false and integer targets are classes, other numbers are real targets.
        classes: the public list of classes, numbered in this order; None: those found in the file, sorted, which tells what occurs in it.
        columns: what is stated of each column, by which numbers are scaled and words encoded; None: all columns are numbers, taken as
            they stand. Not of an .npz file.
    Raises:
        InputError: a label that is not among `classes`, a file that cannot be read, an unknown target, text or missing values among the
            features (row and column named), or fewer than two classes.
        MissingExtraError: pyarrow is not installed (csv and parquet).
    """
    file = as_path(path)
    suffix = table_suffix(file)
    if suffix == ".npz":
        if columns is not None:
            remedy = "give a .csv or .parquet file, or drop columns."
            raise InputError("columns: arrays have no named columns.", source=str(file), remedy=remedy)
        features, targets = _read_npz(file, target)
    elif suffix not in SUFFIXES:
        raise InputError(f"{file.name} ends in {file.suffix!r}; a table ends in .npz, .csv, .csv.gz or .parquet.")
    elif columns is None:
        table = ColumnTable.read(file)
        target = table.require_target(target)
        features = np.column_stack([_feature(table, name) for name in table.names if name != target])
        targets = _target(table, target)
    else:
        table = ColumnTable.read(file, as_text=[*columns.stated, *([] if target is None else [target])])
        target = table.require_target(target)
        features = columns.encode(table, target)
        targets = _target(table, target) if suffix == ".parquet" else _text_target(table, target, task)
    return _table(file, features, targets, task, classes)


def split(table: RecordTable, test_fraction: float, seed: int) -> tuple[RecordTable, RecordTable]:
    """A uniform random split of at least two rows into training and test rows: the fraction is rounded, but leaves neither part empty."""
    rows = len(table.targets)
    if rows < 2:
        raise InputError(f"table: got {rows} row; a split needs at least 2.")
    order = np.random.default_rng(seed).permutation(rows)
    test_rows = min(max(round(test_fraction * rows), 1), rows - 1)
    train, test = (
        replace(table, features=table.features[part], targets=table.targets[part], name=f"{table.name}, {name}")
        for name, part in (("train", np.sort(order[test_rows:])), ("test", np.sort(order[:test_rows])))
    )
    return train, test


def _read_npz(file: Path, target: str | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Features as rows and targets of an .npz file, by the usual names of arrays or the target's."""
    with (
        reading_arrays(file, remedy="give an .npz file of plain arrays (no pickled objects)."),
        file.open("rb") as stream,
        np.load(stream, allow_pickle=False) as archive,
    ):
        arrays = {name: archive[name] for name in archive.files}
    pairs = [*_NPZ_PAIRS]
    if target is not None:
        pairs = [(letter + target[1:], target) for letter in "xX" if target[:1] == "y"]
        pairs += [(x, y) for x, y in _NPZ_PAIRS if y == target]
        pairs += [(x, target) for x in ("x", "X", "features", "data") if x != target]
    for x, y in pairs:
        if x in arrays and y in arrays:
            if arrays[x].ndim < 2:
                raise InputError(f"{x} has shape {arrays[x].shape}; features need one row a record.", source=str(file))
            return arrays[x].reshape(len(arrays[x]), math.prod(arrays[x].shape[1:])), arrays[y]
    raise InputError(
        f"no features and targets among the arrays {', '.join(arrays) or '(none)'}" + (f" for target {target!r}." if target else "."),
        source=str(file),
        remedy="name the arrays x and y, or give the target's name.",
    )


def _feature(table: ColumnTable, name: str) -> npt.NDArray[np.float64]:
    column = table.column(name)
    _refuse_missing(table.file, name, column.is_null().to_numpy())
    if not table.is_number(name):
        raise InputError(
            f"column {name!r} holds {column.type}, not numbers.",
            source=str(table.file),
            remedy=f"`lethe init --data {table.file} --target COLUMN` asks for its categories; or make a 0/1 column for each "
            "category, or leave it out.",
        )
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _target(table: ColumnTable, name: str) -> npt.NDArray[Any]:
    column = table.column(name)
    _refuse_missing(table.file, name, column.is_null().to_numpy())
    values = column.to_numpy()
    return values.astype(np.float64) if extra("pyarrow").types.is_decimal(column.type) else values


def _text_target(table: ColumnTable, name: str, task: Task | None) -> npt.NDArray[Any]:
    labels = [(entry or "").strip() for entry in table.texts(name)]
    if task != "regression":
        return np.array(labels)
    numbers = np.array([math.nan if (number := as_number(label)) is None else number for label in labels])
    _refuse_missing(table.file, name, np.isnan(numbers))
    return numbers


def _refuse_missing(file: Path, column: object, missing: npt.NDArray[np.bool_]) -> None:
    """Refuse a column, or features where `column` is None, in which a value is missing."""
    if missing.any():
        row, column_index = int(np.argwhere(missing)[0][0]), int(np.argwhere(missing)[0][-1])
        remedy = "drop such rows, or fill them in by a rule that does not look at other records."
        raise bad_entry(file, row, column_index if column is None else column, "the value is missing or not finite", remedy)


def _table(
    file: Path, features: npt.NDArray[Any], targets: npt.NDArray[Any], task: Task | None, classes: Sequence[str] | None
) -> RecordTable:
    if features.dtype.kind not in "fiub":
        raise InputError(f"features have type {features.dtype}; they need real numbers.", source=str(file))
    numbers = features.astype(np.float64)
    if 0 in numbers.shape:
        raise InputError(f"features have shape {numbers.shape}; they need at least one row and one column.", source=str(file))
    _refuse_missing(file, None, ~np.isfinite(numbers))
    if targets.shape not in ((len(numbers),), (len(numbers), 1)):
        raise InputError(f"targets have shape {targets.shape}; they need ({len(numbers)},), one a row of features.", source=str(file))
    values, name = targets.reshape(-1), file.name[: len(file.name) - len(table_suffix(file))]
    if task is None:
        task = "regression" if values.dtype.kind == "f" else "classification"
    if task == "regression":
        return RecordTable(features=numbers, targets=_real(file, values), classes=None, name=name)
    names, encoded = _numbered(file, values) if classes is None else _numbered_as(file, values, classes)
    return RecordTable(features=numbers, targets=encoded, classes=len(names), name=name, class_names=names)


def _real(file: Path, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if values.dtype.kind not in "fiub":
        what = f"targets have type {values.dtype}; regression needs numbers."
        raise InputError(what, source=str(file), remedy="use task='classification'.")
    numbers = values.astype(np.float64)
    _refuse_missing(file, "target", ~np.isfinite(numbers))
    return numbers


def _numbered_as(file: Path, values: npt.NDArray[Any], classes: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Labels as numbers, by a public list of classes; refuses a label that is not in it."""
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(f"classes: got {list(names)}; they need at least two different names.")
    numbers = {name: number for number, name in enumerate(names)}
    labels = [str(value) for value in values.tolist()]
    for row, label in enumerate(labels):
        if label not in numbers:
            raise InputError(
                f"row {row}: the label {label!r} is none of the classes {', '.join(names)}.",
                source=str(file),
                remedy="drop the row, or list every class that may occur.",
            )
    return names, np.array([numbers[label] for label in labels], dtype=np.int64)


def _numbered(file: Path, values: npt.NDArray[Any]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Labels as numbers, by the classes that occur, which then count as declared public."""
    if values.dtype.kind in "OU":
        _refuse_missing(file, "target", np.array([not isinstance(text, str) or not text for text in values.tolist()]))
        values = values.astype(np.str_)
    elif values.dtype.kind not in "fiub":
        raise InputError(f"targets have type {values.dtype}; classes need text or numbers.", source=str(file))
    elif not np.all(_real(file, values) == np.floor(_real(file, values))):
        remedy = "choose a column of labels, or least squares."
        raise InputError("the target holds measurements, not classes.", source=str(file), remedy=remedy)
    names, encoded = np.unique(values, return_inverse=True)
    if len(names) < 2:
        what = f"the target has {len(names)} class; there is nothing to learn."
        raise InputError(what, source=str(file), remedy="choose another target.")
    return tuple(str(name) for name in names), encoded.reshape(-1).astype(np.int64)
