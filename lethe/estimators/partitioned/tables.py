"""Tables in blocks as `fit` is given them, looked through once before anything is planned or paid."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lethe.errors import InputError
from lethe.estimators.inputs.validation import FEWEST_RECORDS
from lethe.estimators.partitioned.targets import ClassPlaces, looked_at_labels, looked_at_numbers, nothing_else
from lethe.partitions.dask_tables import dask_table, is_dask
from lethe.partitions.table import ExaminedTable, PartitionedTable

Labels = np.ndarray[Any, Any]


def table_in_blocks(X: Any, y: Any = None, *, targets: bool = True) -> PartitionedTable | None:
    """The table, where X is one in blocks; None: it is in memory.

    Args:
        X: a PartitionedTable, or a DataFrame or an Array of Dask.
        y: where X has columns with names, that of the target, or of Dask's collections one in the same partitions.
        targets: whether there must be some.
    Raises:
        InputError: X and y do not fit together.
    """
    if is_dask(X):
        table = dask_table(X) if y is None or isinstance(y, str) else dask_table(X, y)
    elif isinstance(X, PartitionedTable):
        table = X
        if y is not None and not isinstance(y, str):
            raise InputError(
                f"y: got {type(y).__name__}; for a table in blocks it is the name of a column.",
                source="the argument y",
                remedy="give its name, or the targets where the table is made, such as array_table(X, y)",
            )
    else:
        return None
    if isinstance(y, str):
        table = table.with_target(y)
    if targets and not table.read.has_targets:
        raise InputError("y: it needs the targets, and the table in blocks has none.", source="the argument y", remedy="name a column")
    return table


def examined_features(estimator: BaseEstimator, table: PartitionedTable) -> ExaminedTable:
    """Look through the features alone.

    Args:
        estimator: sets n_features_in_ and feature_names_in_ of it.
        table: in blocks.
    Raises:
        InputError: a block that cannot be used, or fewer than two records.
    """
    found, _ = table.examined(nothing_else)
    return _noted(estimator, found)


def examined_numbers(estimator: BaseEstimator, table: PartitionedTable) -> ExaminedTable:
    """Look through features and targets, which must be finite numbers.

    Args:
        estimator, table: as `examined_features`.
    Raises:
        InputError: as there, and for targets.
    """
    found, _ = table.examined(looked_at_numbers)
    return _noted(estimator, found)


def examined_labels(estimator: BaseEstimator, table: PartitionedTable, classes: Any) -> tuple[ExaminedTable, Labels, ClassPlaces, str]:
    """Look through features and labels.

    Args:
        estimator, table: as `examined_features`.
        classes: the public list, or None: read off the labels, which then counts as declared.
    Returns:
        The table, the classes sorted, what finds the place of a label among them, and how the classes are known.
    Raises:
        InputError: as `examined_features`, and for labels.
    """
    found, seen = table.examined(looked_at_labels, classes)
    _noted(estimator, found)
    places, how = ClassPlaces.of(classes, [labels for labels in seen if len(labels)])
    return found, places.classes, places, how


def _noted(estimator: BaseEstimator, table: ExaminedTable) -> ExaminedTable:
    records, columns = table.shape
    if records < FEWEST_RECORDS:
        raise InputError(
            f"X: got {records} records in {len(table.seen)} blocks; it needs at least {FEWEST_RECORDS}.", source="the argument X"
        )
    fitted: Any = estimator
    fitted.n_features_in_ = columns
    names = table.source.columns
    if all(isinstance(name, str) for name in names):
        fitted.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(fitted, "feature_names_in_"):
        del fitted.feature_names_in_
    return table
