"""Tables and targets as scikit-learn reads them, with refusals that name the columns.

Clean data are read once: values are looked at again only after scikit-learn has refused them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data

from lethe.estimators.inputs.columns import require_numbers, require_values, schema_of
from lethe.estimators.inputs.faults import REFUSALS, infinite_targets, missing_targets, table_fault, target_fault
from lethe.estimators.inputs.readable import readable
from lethe.mechanisms.base import Array


def read_table(estimator: BaseEstimator, X: Any, *, reset: bool = True, **checks: Any) -> Any:
    """X as scikit-learn's `validate_data` reads it; sets or compares n_features_in_ and feature_names_in_.

    Args:
        estimator: the one that is fitted, or that predicts.
        X: an array, a frame, or where `checks` allow it a sparse table.
        reset: True in fit.
        checks: as `validate_data` takes them.
    Raises:
        InputError: two columns of one name, missing or infinite values, or what is no number.
        ValueError, TypeError: scikit-learn's, for wrong shapes and for other columns than were fitted.
    """
    if not reset and _other_names(estimator, X):
        return validate_data(estimator, X, reset=False, **checks)  # says which are missing, and which are new
    require_numbers("X", X)
    with_gaps = checks.get("ensure_all_finite") == "allow-nan"
    try:
        with config_context(assume_finite=False):  # one record that is not finite would break the model, and so show
            table = validate_data(estimator, X, reset=reset, **checks)
    except REFUSALS as error:
        raise table_fault(X, error, allow_missing=with_gaps) or error from None
    return table if with_gaps else readable(table)


def read_rows(X: Any) -> Array:
    """X as a dense float64 table, whatever its columns are called.

    Raises:
        InputError, ValueError, TypeError: as `read_table`.
    """
    require_numbers("X", X)
    try:
        return np.asarray(check_array(X, dtype="float64"))
    except REFUSALS as error:
        raise table_fault(X, error) or error from None


def read_table_and_targets(
    estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool, frame: bool = False, **checks: Any
) -> tuple[Any, Any]:
    """X as `read_table` reads it in fit, and y as one column, float64 where `numeric`.

    Args:
        estimator: the one that is fitted.
        X: an array, a frame, or where `checks` allow it a sparse table.
        y: numbers or labels, one a record.
        numeric: whether they are numbers.
        frame: whether a frame of one column may stand for it; else scikit-learn warns of one.
        checks: as `validate_data` takes them.
    Raises:
        InputError: as `read_table`, and for y.
        ValueError, TypeError: scikit-learn's, for wrong shapes or no y.
    """
    require_numbers("X", X)
    (require_numbers if numeric else require_values)("y", y)
    schema = schema_of(y)
    column = y[schema[0][0]] if frame and schema is not None and len(schema[0]) == 1 else y
    try:
        with config_context(assume_finite=False):
            table, targets = validate_data(estimator, X, column, y_numeric=numeric, **checks)
    except REFUSALS as error:
        raise table_fault(X, error) or target_fault(y, numeric=numeric) or error from None
    if numeric:
        require_numbers("y", targets)  # a list has a dtype only now
        with np.errstate(over="ignore"):  # of more than double precision
            targets = np.asarray(targets, dtype=np.float64)
        if not np.isfinite(targets).all():  # of objects scikit-learn looks for NaN before it reads them, and for None not at all
            raise missing_targets() if np.isnan(targets).any() else infinite_targets()
    return readable(table), targets


def _other_names(estimator: BaseEstimator, X: Any) -> bool:
    require_values("X", X)
    schema, fitted = schema_of(X), getattr(estimator, "feature_names_in_", None)
    if schema is None or fitted is None or len(set(schema[0])) < len(schema[0]):
        return False
    return schema[0] != list(fitted) and all(isinstance(name, str) for name in schema[0])
