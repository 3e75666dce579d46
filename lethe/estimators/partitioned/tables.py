"""Tables in blocks as `fit` is given them, looked through once before anything is planned or paid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lethe.errors import InputError
from lethe.estimators.inputs.tables import FEWEST_RECORDS, Labels, public_labels
from lethe.mechanisms.base import Array
from lethe.partitions.block import Block, Values, looked_at_numbers, refused, targets_of
from lethe.partitions.table import ExaminedTable, PartitionedTable


def examined_features(estimator: BaseEstimator, table: PartitionedTable) -> ExaminedTable:
    """Look through the features alone, and set n_features_in_ and feature_names_in_ of the estimator."""
    return _noted(estimator, table.examined(nothing_else)[0])


def examined_numbers(estimator: BaseEstimator, table: PartitionedTable) -> ExaminedTable:
    """Look through features and targets, which must be finite numbers, as `examined_features`."""
    return _noted(estimator, table.examined(looked_at_numbers)[0])


def examined_labels(estimator: BaseEstimator, table: PartitionedTable, classes: Any) -> tuple[ExaminedTable, Labels, ClassPlaces, str]:
    """Look through features and labels: the table, the classes sorted, what finds the place of a label among them, and how they are known.

    Args:
        estimator, table: as of `examined_features`.
        classes: the public list, or None: read off the labels, which then counts as declared.
    """
    found, seen = table.examined(_looked_at_labels, classes)
    _noted(estimator, found)
    if classes is None:
        seen = [labels for labels in seen if len(labels)]
        kinds = {labels.dtype.kind for labels in seen}
        if len(kinds) > 1:
            raise InputError(f"y: partitions hold labels of types {', '.join(sorted(kinds))}; they need one.", source="the argument y")
    known, _, how = public_labels(classes, np.concatenate(seen if classes is None else [np.asarray(classes)]))
    return found, known, ClassPlaces(known), how


@dataclass(frozen=True, slots=True, eq=False)
class ClassPlaces:
    """The place of every label in a sorted public list."""

    classes: Labels  # the list, shape (K,)

    def __call__(self, values: Values) -> Array:
        """Numbers from 0, shape (m,)."""
        return np.searchsorted(self.classes, values).astype(np.float64)


def as_numbers(values: Values) -> Array:
    """Targets as they are, shape (m,)."""
    return values.astype(np.float64)


def nothing_else(block: Block) -> None:
    """No more is asked of a block than that its features are finite."""


def _looked_at_labels(block: Block, classes: Any) -> Labels:
    """The labels that occur in a block, once each; it names the partition where they are missing, mixed or not in the public list."""
    values = targets_of(block)
    if not len(values):
        return values
    try:
        found = np.unique(values)
        if values.dtype.kind == "f" and not np.isfinite(found).all():
            raise InputError("y: got missing values or infinity.", remedy="leave those records out before")
        if classes is not None:
            return public_labels(classes, values)[0]
        if len(found) == 1:  # at least two classes, which one block alone need not have
            other = f"{found[0]}'" if found.dtype.kind not in "biuf" else float(found[0]) + 1.0
            public_labels(None, np.array([found[0], other], dtype=object if found.dtype.kind == "O" else None))
        else:
            public_labels(None, found)
        return found
    except TypeError:
        raise refused(block.name, "y", "labels of several kinds, or missing ones", "write all labels as text, or as numbers") from None
    except ValueError as error:
        what = error.what if isinstance(error, InputError) else str(error)
        remedy = getattr(error, "remedy", None) or "write the labels in one way"
        raise refused(block.name, "y", what.rstrip("."), remedy) from None


def _noted(estimator: Any, table: ExaminedTable) -> ExaminedTable:
    records, columns = table.shape
    if records < FEWEST_RECORDS:
        raise InputError(
            f"X: got {records} records in {len(table.seen)} blocks; it needs at least {FEWEST_RECORDS}.", source="the argument X"
        )
    estimator.n_features_in_ = columns
    names = table.source.columns
    if all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return table
