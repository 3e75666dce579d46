"""Explanations of inputs that scikit-learn refused: which columns hold what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from lethe.errors import InputError
from lethe.estimators.inputs.columns import CATEGORIES, DATES, listed, schema_of

REFUSALS = (TypeError, ValueError, OverflowError)
_UNREADABLE, _MISSING, _INFINITE = "unreadable", "missing", "infinite"
_FILL = (
    "fill them before, or first in the pipeline, with a constant known without looking at the records: "
    'SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True); a mean of the records would be learned without privacy'
)
_REPLACE = "replace them by a number known without looking at the records, such as the end of a public range"


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, pandas' NA and NaT."""
    try:
        return value is None or bool(value != value)
    except TypeError:
        return True  # NA neither equals itself nor differs
    except ValueError:
        return False  # an array


def missing_targets() -> InputError:
    """The refusal of a y with missing values."""
    return InputError(
        "y: got missing values (NaN or null); every record needs one.",
        source="the argument y",
        remedy="leave those records out of X and of y before; how many are left counts as public",
    )


def infinite_targets() -> InputError:
    """The refusal of a y that is not finite."""
    return InputError("y: got infinity; it needs finite numbers.", source="the argument y", remedy=_REPLACE)


def _columns(table: Any) -> Iterator[tuple[Any, Any]]:
    """Names, or numbers, and values of the columns; of a sparse table those with entries that are not finite."""
    schema = schema_of(table)
    if schema is not None:
        for name in schema[0]:
            yield name, table[name]
    elif sparse.issparse(table):
        entries: Any = table.tocoo()  # pyright: ignore[reportAttributeAccessIssue]
        for place in np.unique(entries.col[~np.isfinite(entries.data)]).tolist():
            yield place, entries.data[entries.col == place]
    else:
        array = np.asarray(table)
        for place in range(array.shape[1] if array.ndim == 2 else 0):
            yield place, array[:, place]


def _fault(values: Any) -> str | None:
    """What keeps values from being finite numbers."""
    if getattr(getattr(values, "dtype", None), "kind", None) == "c":
        return None  # scikit-learn says so
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except REFUSALS:
        entries = np.asarray(values, dtype=object).tolist()
        try:
            numbers = np.array([np.nan if is_missing(entry) else float(entry) for entry in entries])
        except REFUSALS:
            return _UNREADABLE
    if np.isnan(numbers).any():
        return _MISSING
    return _INFINITE if np.isinf(numbers).any() else None


def table_fault(X: Any, error: Exception, *, allow_missing: bool = False) -> InputError | None:
    """Why X was refused, by its columns; None where they are not why.

    Args:
        X: the table.
        error: scikit-learn's.
        allow_missing: whether missing values were no reason.
    """
    named = schema_of(X) is not None
    faults: dict[str, list[Any]] = {_UNREADABLE: [], _MISSING: [], _INFINITE: []}
    try:
        for column, values in _columns(X):
            if (fault := _fault(values)) is not None:
                faults[fault].append(column)
    except (TypeError, ValueError):  # no table at all
        return None
    if allow_missing:
        faults[_MISSING].clear()
    if not named and isinstance(error, TypeError):
        faults[_UNREADABLE].clear()  # scikit-learn says which type it cannot read
    for kind, what, remedy in (
        (_UNREADABLE, "what cannot be read as numbers", f"{CATEGORIES}; {DATES}"),
        (_MISSING, "missing values (NaN or null)", _FILL),
        (_INFINITE, "infinity", _REPLACE),
    ):
        if columns := faults[kind]:
            where = f"{'the column' if len(columns) == 1 else 'the columns'} {listed(columns)}{'' if named else ', counted from 0'}"
            return InputError(f"X: got {what} in {where}.", source="the argument X", remedy=remedy)
    return None


def target_fault(y: Any, *, numeric: bool) -> InputError | None:
    """Why y was refused; None where its values are not why."""
    if y is None:
        return None
    try:
        values = np.asarray(y)
        entries = np.asarray(y, dtype=object).ravel()
    except (TypeError, ValueError):
        return None
    if values.ndim == 2 and values.shape[1] > 1:
        return _several_targets(values.shape[1], numeric=numeric)
    if values.dtype.kind == "c":
        return None  # scikit-learn says so
    if any(map(is_missing, entries)):
        return missing_targets()
    fault = _fault(entries) if numeric or values.dtype.kind == "f" else None
    if fault == _INFINITE:
        return infinite_targets()
    return InputError("y: got what cannot be read as numbers.", source="the argument y", remedy=DATES) if fault == _UNREADABLE else None


def _several_targets(columns: int, *, numeric: bool) -> InputError:
    outer = "MultiOutputRegressor" if numeric else "MultiOutputClassifier"
    one_hot = "" if numeric else "; columns that mark one class each are y.argmax(axis=1)"
    return InputError(
        f"y: got {columns} columns; a model has one target.",
        source="the argument y",
        remedy=f"sklearn.multioutput.{outer}(model), each with a part of epsilon: privacy_of(fitted.estimators_) adds them up{one_hot}",
    )
