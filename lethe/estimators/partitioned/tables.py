"""Tables in blocks as `fit` is given them, looked through once before anything is planned or paid."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lethe.errors import InputError
from lethe.estimators.inputs.validation import FEWEST_RECORDS
from lethe.estimators.partitioned.targets import ClassPlaces, looked_at_labels, nothing_else
from lethe.partitions.block import looked_at_numbers
from lethe.partitions.table import ExaminedTable, PartitionedTable

Labels = np.ndarray[Any, Any]


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
