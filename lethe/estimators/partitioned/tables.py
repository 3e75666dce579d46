"""Tables in blocks as estimators need them: checked before anything is paid, read for norms and quantiles, and transformed.

The estimators' `fit` calls `examined` first: one pass that checks all numbers and counts records, since a table in blocks cannot be checked
in memory. Scaler, PCA and models then read columns, norms or transformed rows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from lethe.errors import InputError
from lethe.estimators.inputs.records import row_norms
from lethe.estimators.inputs.tables import FEWEST_RECORDS, Labels, public_labels, readable
from lethe.mechanisms.base import Array
from lethe.mechanisms.quantiles.located_quantiles import ColumnsInMemory
from lethe.partitions.block import Block, Values, looked_at_numbers, refused, targets_of
from lethe.partitions.readers import OuterReader
from lethe.partitions.table import ConsecutiveRecords, ExaminedTable, PartitionedTable


def examined(estimator: BaseEstimator, table: PartitionedTable, *, targets: bool) -> ExaminedTable:
    """Look through features, and targets that must be finite numbers, and set n_features_in_ and feature_names_in_ of the estimator."""
    return _noted(estimator, table.examined(looked_at_numbers if targets else nothing_else)[0])


def examined_labels(estimator: BaseEstimator, table: PartitionedTable, classes: Any) -> tuple[ExaminedTable, Labels, ClassPlaces, str]:
    """Look through features and labels: the table, the classes sorted, what finds a label's place, and how they are known."""
    examined, block_labels = table.examined(_looked_at_labels, classes)
    _noted(estimator, examined)
    if classes is None:
        block_labels = [labels for labels in block_labels if len(labels)]
        kinds = {labels.dtype.kind for labels in block_labels}
        if len(kinds) > 1:
            raise InputError(f"y: partitions hold labels of types {', '.join(sorted(kinds))}; they need one.", source="the argument y")
    classes_sorted, _, how = public_labels(classes, np.concatenate(block_labels if classes is None else [np.asarray(classes)]))
    return examined, classes_sorted, ClassPlaces(classes_sorted), how


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
        unique = np.unique(values)
        if values.dtype.kind == "f" and not np.isfinite(unique).all():
            raise InputError("y: got missing values or infinity.", remedy="leave those records out before")
        if classes is not None:
            return public_labels(classes, values)[0]
        if len(unique) == 1:  # at least two classes, which one block alone need not have
            second_class = f"{unique[0]}'" if unique.dtype.kind not in "biuf" else float(unique[0]) + 1.0
            public_labels(None, np.array([unique[0], second_class], dtype=object if unique.dtype.kind == "O" else None))
        else:
            public_labels(None, unique)
        return unique
    except TypeError:
        raise refused(block.name, "y", "labels of several kinds, or missing ones", "write all labels as text, or as numbers") from None
    except ValueError as error:
        what = error.what if isinstance(error, InputError) else str(error)
        remedy = getattr(error, "remedy", None) or "write the labels in one way"
        raise refused(block.name, "y", what.rstrip("."), remedy) from None


def _noted(estimator: Any, table: ExaminedTable) -> ExaminedTable:
    """Set n_features_in_ and feature_names_in_ of the estimator, as scikit-learn does; refuses too few records."""
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


MOST_GATHERED = 2**23  # 64 MiB

Numbers = Callable[[Block], np.ndarray[Any, Any]]
"""Of a block with records, to numbers of each, shape (m,) or (m, d); it must pickle."""


class BlockColumns:
    """Numbers of each record of a table in blocks, which are asked for their counts: see `CountedColumns`."""

    def __init__(self, table: ExaminedTable | ConsecutiveRecords, of: Numbers, width: int = 1) -> None:
        self.table, self.of, self.shape = table, of, (table.shape[0], width)

    def examined(self) -> Array | BlockColumns:
        """One number of each, shape (n,), in one pass, where they are few; else this."""
        if many_records(self.shape[0]):
            return self
        answers = self.table.answers(_numbers, (self.of,))
        return np.concatenate([answer.values for answer in answers])

    def counts(self, edges: Array) -> Array:
        """One pass."""
        return self.table.sum(_counts, self.of, edges)[0]


def many_records(records: int) -> bool:
    """Whether so many records are counted, not gathered; a public fact."""
    return records > MOST_GATHERED


def norms_of(table: Any, low: Array | None = None, high: Array | None = None) -> Any:
    """Norms of the rows of a table, shape (n, d), in memory or in blocks, each column clipped before where bounds are given."""
    if isinstance(table, ExaminedTable):
        return BlockColumns(table, partial(_norms, low=low, high=high)).examined()
    return row_norms(table if low is None else np.clip(table, low, high))


def columns_of(table: Any) -> Any:
    """What quantiles of the columns of a table, in memory or in blocks, are taken of."""
    return table if isinstance(table, np.ndarray) else BlockColumns(table, _features, table.shape[1])


def _numbers(block: Block, of: Numbers) -> Array:
    return of(block) if len(block) else np.empty(0)


def _counts(block: Block, of: Numbers, edges: Array) -> tuple[Array]:
    """Counts of a block's numbers between edges, a row for each column."""
    if not len(block):
        return (np.zeros((edges.shape[0], edges.shape[1] + 1)),)
    return (ColumnsInMemory(of(block)).counts(edges),)


def _norms(block: Block, low: Array | None, high: Array | None) -> Array:
    rows = _features(block)
    return row_norms(rows if low is None else np.clip(rows, low, high))


def _features(block: Block) -> Any:
    return readable(block.features)


_EPS = float(np.finfo(np.float64).eps)


def standardised(rows: Values, low: Array, high: Array, mean: Array, scale: Array) -> Array:
    """Columns clipped, minus a mean, over a scale, shape (m, d), float64."""
    scaled = np.clip(rows, low, high).astype(np.float64, copy=False)
    scaled -= mean  # in place: a table may be most of the memory there is
    scaled /= scale
    return scaled


def projected(rows: Any, low: Array | None, high: Array | None, norm: float | None) -> Any:
    """Columns clipped, then rows projected on a ball and divided by its radius, shape (m, d), norms at most 1; CSR stays CSR."""
    clipped = rows if low is None else np.clip(rows, low, high)
    if norm is None:
        return clipped
    limit = 1.0 - (clipped.shape[1] + 16) * _EPS  # rounded inward: no row's true norm is above 1
    with np.errstate(over="ignore", divide="ignore"):
        factors = np.minimum(limit / norm, limit / row_norms(clipped))
    wide = clipped.astype(np.float64, copy=False)
    return (sparse.diags_array(factors) @ wide).tocsr() if sparse.issparse(clipped) else wide * factors[:, None]


def coordinates(rows: Values, mean: Array, components: Array) -> Array:
    """Coordinates of rows minus a mean, along some directions of shape (k, d): shape (m, k), float64."""
    return (rows - mean) @ components.T


@dataclass(frozen=True, slots=True, eq=False)
class TransformedReader(OuterReader):
    """Blocks of another reader, transformed row by row."""

    function: Callable[[Values], Values]  # of features, shape (m, d), to rows of `width`; it must pickle
    fitted: tuple[Any, ...]  # names of the columns that it was fitted on
    width: int  # how many columns it makes

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers, as of an array: what a step of a pipeline hands on has no names."""
        return tuple(range(self.width))

    def __call__(self, stored: Any, name: str) -> Block:
        """A block, transformed; refused where it has other features than were fitted, or NaN or infinity, which clipping would hide."""
        block = self.read(stored, name)
        if block.columns != self.fitted:
            raise InputError(
                f"{name}: has {len(block.columns)} features from {block.columns[0]!r} on; fitted were {len(self.fitted)} from "
                f"{self.fitted[0]!r} on.",
                source=f"{name}; nothing was released",
                remedy="name the same target in every step, such as by Pipeline([...]).fit(table, 'label')",
            )
        block.refuse_not_finite()
        return replace(block, columns=self.columns, features=self.function(readable(block.features) if len(block) else block.features))


def transformed(
    table: PartitionedTable, function: Callable[[Values], Values], fitted: tuple[Any, ...], *, width: int | None = None
) -> PartitionedTable:
    """A table whose blocks are transformed as they are read, as by `TransformedReader`; nothing is computed before."""
    return replace(table, read=TransformedReader(table.read, function, fitted, len(fitted) if width is None else width))
