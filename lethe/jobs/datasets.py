"""Data to train on: scikit-learn's embedded digits, and the user's own npz, csv or parquet files."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lethe.documents.array_files import reading_arrays
from lethe.documents.strict import as_path
from lethe.errors import InputError, MissingExtraError

Task = Literal["classification", "regression"]

_NPZ_PAIRS = (("x", "y"), ("X", "y"), ("x_train", "y_train"), ("X_train", "y_train"), ("features", "targets"), ("data", "target"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Records as rows.

    The classes are those found in the file, and are then treated as public knowledge. If which classes occur is itself private, list
    them by hand.

    Args:
        features: shape (n, d), finite.
        targets: shape (n,): class numbers 0..classes-1 (int64), or finite numbers.
        classes: how many, None for real targets.
        name: for tables and reports.
        class_names: what each class number was called in the file, sorted; empty for real targets.
    """

    features: npt.NDArray[np.float64]
    targets: npt.NDArray[Any]
    classes: int | None
    name: str
    class_names: tuple[str, ...] = ()


def digits() -> Table:
    """The 1797 handwritten digits embedded in scikit-learn: 64 grey levels in [0, 1], 10 classes.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    bunch: Any = _extra("sklearn.datasets").load_digits()
    names = tuple(str(digit) for digit in range(10))
    return Table(features=bunch.data / 16.0, targets=bunch.target.astype(np.int64), classes=10, name="digits", class_names=names)


def centred_digits() -> Table:
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
    path: str | os.PathLike[str], target: str | None = None, *, task: Task | None = None, classes: Sequence[str] | None = None
) -> Table:
    """Read features and targets from a .npz, .csv or .parquet file.

    Args:
        path: the file. csv: the first line names the columns. npz: arrays named x and y, x_train and y_train, features and targets, or
            data and target; features with more than two axes are flattened to rows.
        target: the target's column; for npz the target's array, such as y_test (then x_test holds the features).
        task: None: text, true/false and integer targets are classes, other numbers are real targets.
        classes: the public list of classes, numbered in this order; None: those found in the file, sorted, which tells what occurs in it.
    Returns:
        The table; classes are numbered from 0.
    Raises:
        InputError: a label that is not among `classes`, a file that cannot be read, an unknown target, text or missing values among the
            features (row and column named), or fewer than two classes.
        MissingExtraError: pyarrow is not installed (csv and parquet).
    """
    file = as_path(path)
    suffix = file.suffix.lower()
    if task not in (None, "classification", "regression"):
        raise InputError(f"task: got {task!r}; it needs classification, regression or None.")
    if suffix == ".npz":
        features, targets = _read_npz(file, target)
    elif suffix in (".csv", ".parquet"):
        features, targets = _read_columns(file, suffix, target)
    else:
        raise InputError(f"{file.name} ends in {file.suffix!r}; a table ends in .npz, .csv or .parquet.")
    return _table(file, features, targets, task, classes)


def split(table: Table, test_fraction: float, seed: int) -> tuple[Table, Table]:
    """A uniform random split into training and test rows.

    Args:
        table: at least two rows.
        test_fraction: in (0, 1), of the rows; rounded, but neither part is left empty.
        seed: integer >= 0; the same seed gives the same split.
    Raises:
        InputError: an argument out of range.
    """
    if not isinstance(table, Table):
        raise InputError(f"table: got {type(table).__name__}; it needs a Table.", remedy="load one with load_table.")
    if not isinstance(test_fraction, int | float) or not 0 < test_fraction < 1:
        raise InputError(f"test_fraction: got {test_fraction!r}; it needs a number between 0 and 1.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: got {seed!r}; it needs an integer >= 0.")
    rows = len(table.targets)
    if rows < 2:
        raise InputError(f"table: got {rows} row; a split needs at least 2.")
    order = np.random.default_rng(seed).permutation(rows)
    held_out = min(max(round(test_fraction * rows), 1), rows - 1)
    return _rows(table, np.sort(order[held_out:]), "train"), _rows(table, np.sort(order[:held_out]), "test")


def _rows(table: Table, rows: npt.NDArray[np.int64], part: str) -> Table:
    return Table(
        features=table.features[rows],
        targets=table.targets[rows],
        classes=table.classes,
        name=f"{table.name}, {part}",
        class_names=table.class_names,
    )


def _extra(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(f"{module.split('.')[0]} is needed and not installed.", remedy='pip install "lethe-dp[train]"') from error


def _read_npz(file: Path, target: str | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    with (
        reading_arrays(file, what="be read", remedy="give an .npz file of plain arrays (no pickled objects)."),
        file.open("rb") as stream,
        np.load(stream, allow_pickle=False) as archive,
    ):
        arrays = {name: archive[name] for name in archive.files}
    wanted, named = _npz_names(file, arrays, target)
    features, targets = arrays[wanted], arrays[named]
    if features.ndim < 2:
        raise InputError(f"{wanted} has shape {features.shape}; features need one row a record.", source=str(file))
    return features.reshape(len(features), math.prod(features.shape[1:])), targets


def _npz_names(file: Path, arrays: Mapping[str, object], target: str | None) -> tuple[str, str]:
    if target is None:
        pairs = _NPZ_PAIRS
    else:
        pairs = tuple((x, y) for x, y in _NPZ_PAIRS if y == target)
        if target[:1] == "y":
            pairs = (("x" + target[1:], target), ("X" + target[1:], target), *pairs)
        pairs = (*pairs, *((x, target) for x in ("x", "X", "features", "data") if x != target))
    for x, y in pairs:
        if x in arrays and y in arrays:
            return x, y
    raise InputError(
        f"no features and targets among the arrays {', '.join(arrays) or '(none)'}" + (f" for target {target!r}." if target else "."),
        source=str(file),
        remedy="name the arrays x and y, or give the target's name.",
    )


def _read_columns(file: Path, suffix: str, target: str | None) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    arrow = _extra("pyarrow")
    try:
        table: Any = _extra("pyarrow.csv").read_csv(file) if suffix == ".csv" else _extra("pyarrow.parquet").read_table(file)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{file} cannot be read: {error}.", remedy=f"give a {suffix} file with named columns.") from error
    if table.num_rows == 0:
        raise InputError(f"{file} has no rows.", remedy="give a file with at least one record.")
    names: list[str] = list(table.column_names)
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise InputError(
            f"column {repeated[0]!r} occurs {names.count(repeated[0])} times.", source=str(file), remedy="give each column its own name."
        )
    # pandas writes its row labels as columns of this name; they are no features.
    names = [name for name in names if not name.startswith("__index_level_")]
    if target not in names:
        raise InputError(
            f"target: got {target!r}; it needs one of the columns {', '.join(names)}.",
            source=str(file),
            remedy="name the column to predict.",
        )
    if len(names) < 2:
        raise InputError(f"{target!r} is the only column; there are no features.", source=str(file))
    columns = [_feature(file, name, table.column(name), arrow) for name in names if name != target]
    return np.column_stack(columns), _target(file, target, table.column(target), arrow)


def _feature(file: Path, name: str, column: Any, arrow: ModuleType) -> npt.NDArray[np.float64]:
    kind = arrow.types
    _refuse_missing(file, name, column)
    if not (kind.is_integer(column.type) or kind.is_floating(column.type) or kind.is_boolean(column.type) or kind.is_decimal(column.type)):
        raise InputError(
            f"column {name!r} holds {column.type}, not numbers.",
            source=str(file),
            remedy="leave the column out, or encode it first: one 0/1 column for each category of a public list.",
        )
    return np.asarray(column.to_numpy(), dtype=np.float64)


def _target(file: Path, name: str, column: Any, arrow: ModuleType) -> npt.NDArray[Any]:
    _refuse_missing(file, name, column)
    if arrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = column.to_numpy()
    return values.astype(np.float64) if arrow.types.is_decimal(column.type) else values


def _refuse_missing(file: Path, name: str, column: Any) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise _missing(file, row, name)


def _missing(file: Path, row: int, column: object) -> InputError:
    return InputError(
        f"row {row}, column {column!r}: the value is missing or not finite (rows counted from 0, without the header).",
        source=str(file),
        remedy="drop such rows, or fill them in by a rule that does not look at other records.",
    )


def _table(file: Path, features: npt.NDArray[Any], targets: npt.NDArray[Any], task: Task | None, classes: Sequence[str] | None) -> Table:
    if features.dtype.kind not in "fiub":
        raise InputError(f"features have type {features.dtype}; they need real numbers.", source=str(file))
    numbers = features.astype(np.float64)
    if 0 in numbers.shape:
        raise InputError(f"features have shape {numbers.shape}; they need at least one row and one column.", source=str(file))
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise _missing(file, int(row), int(column))
    if targets.shape not in ((len(numbers),), (len(numbers), 1)):
        raise InputError(f"targets have shape {targets.shape}; they need ({len(numbers)},), one a row of features.", source=str(file))
    values = targets.reshape(-1)
    if task is None:
        task = "regression" if values.dtype.kind == "f" else "classification"
    if task == "regression":
        return Table(features=numbers, targets=_real(file, values), classes=None, name=file.stem)
    names, encoded = _numbered(file, values) if classes is None else _numbered_as(file, values, classes)
    return Table(features=numbers, targets=encoded, classes=len(names), name=file.stem, class_names=names)


def _real(file: Path, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if values.dtype.kind not in "fiub":
        raise InputError(
            f"targets have type {values.dtype}; regression needs numbers.", source=str(file), remedy="use task='classification'."
        )
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise _missing(file, int(np.argmin(np.isfinite(numbers))), "target")
    return numbers


def _numbered_as(file: Path, values: npt.NDArray[Any], classes: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
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
    if values.dtype.kind == "f":
        if not np.all(_real(file, values) == np.floor(values)):
            raise InputError(
                "the target holds measurements, not classes.", source=str(file), remedy="choose a column of labels, or least squares."
            )
    elif values.dtype.kind in "OU":
        texts: Sequence[object] = values.tolist()
        empty = [row for row, text in enumerate(texts) if not isinstance(text, str) or not text]
        if empty:
            raise _missing(file, empty[0], "target")
        values = np.asarray(texts, dtype=np.str_)
    elif values.dtype.kind not in "iub":
        raise InputError(f"targets have type {values.dtype}; classes need text or numbers.", source=str(file))
    names, encoded = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"the target has {len(names)} class; there is nothing to learn.", source=str(file), remedy="choose another target."
        )
    return tuple(str(name) for name in names), encoded.reshape(-1).astype(np.int64)
