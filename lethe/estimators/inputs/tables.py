"""Reading and checking the arguments of `fit` and `predict` as scikit-learn does (tables, targets, labels, weights), and the checks of
parameters that may be "auto" (`declared_*`).

Every estimator calls these at the start of `fit`, before anything is planned or paid, so that what is refused has cost nothing. Neighbours
are data sets that differ in one record.

Tables are made safe for products: duplicate entries of sparse rows summed, rows with enormous entries scaled down. Both look at one row at
a time, so neighbours stay neighbours. Without them one record could show, though its norm is bounded: an entry of 1e308 makes a product
infinite before it is scaled down, and two entries of one sparse column may be enormous and cancel, so that their sum has a small norm, and
what they do to a sum over records in between has none.
"""

from numbers import Number
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d, validate_data

from lethe.calculus.domains import outside, require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.records import require_radius
from lethe.mechanisms.base import Array
from lethe.partitions.dask_tables import is_dask
from lethe.partitions.table import PartitionedTable

FEWEST_RECORDS = 2
FLOATS = [np.float64, np.float32]
SPARSE: dict[str, Any] = {"accept_sparse": "csr", "accept_large_sparse": True, "dtype": FLOATS}
"""Checks of `validate_data` where a CSR table may be given."""
FRAME = {"skip_check_array": True}  # checks where a frame is passed on as it is, to steps that select its columns by name
LARGEST_ENTRY = 1e150  # its square does not overflow, nor does a sum of a hundred million of them

Labels = np.ndarray[Any, Any]


def read_table(estimator: BaseEstimator, X: Any, *, reset: bool = True, **checks: Any) -> Any:
    """X as scikit-learn's `validate_data` reads it, with its `checks`; sets (in fit) or compares n_features_in_ and feature_names_in_."""
    _refuse_blocks(X)
    with config_context(assume_finite=False):  # one record that is not finite would break the model, and so show
        table = validate_data(estimator, X, reset=reset, **checks)
    return table if checks == FRAME or checks.get("ensure_all_finite") == "allow-nan" else readable(table)


def read_rows(X: Any) -> Array:
    """X as a dense float64 table, whatever its columns are called."""
    _refuse_blocks(X)
    return np.asarray(check_array(X, dtype="float64"))


def read_table_and_targets(estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool, **checks: Any) -> tuple[Any, Any]:
    """X as `read_table` reads it in fit, and y as one column, float64 where `numeric`."""
    _refuse_blocks(X)
    with config_context(assume_finite=False):
        read: Any = validate_data(estimator, X, y, y_numeric=numeric, ensure_min_samples=FEWEST_RECORDS, **checks)
    table, targets = read
    if checks == FRAME:
        check_consistent_length(table, targets)
        targets = column_or_1d(targets, warn=True)
    if numeric:
        if targets.dtype.kind in "Mm":
            raise InputError("y: got dates or durations.", source="the argument y", remedy="give numbers of a public unit, such as days")
        with np.errstate(over="ignore"):  # of more than double precision
            targets = np.asarray(targets, dtype=np.float64)
        if not np.isfinite(targets).all():  # of objects scikit-learn looks for NaN before it reads them, and for None not at all
            raise InputError(
                "y: got missing values or infinity; it needs finite numbers.",
                source="the argument y",
                remedy="leave those records out of X and of y before; how many are left counts as public",
            )
    return table if checks == FRAME else readable(table), targets


def _refuse_blocks(X: Any) -> None:
    """Refuse a table in blocks where one in memory is needed, before anything collects it."""
    if is_dask(X) or isinstance(X, PartitionedTable):
        raise InputError(
            f"X: got {type(X).__name__}, a table in blocks; this needs one in memory.",
            source="the argument X",
            remedy="fit linear models, PrivateMean or private preprocessing on it; predict by frame.map_partitions(model.predict).",
        )


def readable(table: Any) -> Any:
    """A table that is safe to multiply: duplicate entries summed, enormous rows scaled down (see the head); itself if it is so."""
    if isinstance(table, np.ndarray):
        return table * _factors(np.abs(table).max(axis=1))[:, None] if _has_larger(table) else table
    # A new table object: the flags of the old one (sorted, no duplicates) may no longer be true.
    once = type(table)((table.data, table.indices, table.indptr), shape=table.shape)
    if not once.has_canonical_format:
        once = once.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            once.sum_duplicates()
        once.data = np.nan_to_num(once.data, copy=False)
    if not _has_larger(once.data):
        return once
    once = once.copy()
    once.data *= np.repeat(_factors(np.asarray(abs(once).max(axis=1).todense()).ravel()), np.diff(once.indptr))
    return once


def _has_larger(entries: np.ndarray[Any, Any]) -> bool:
    """Whether an entry is larger than `LARGEST_ENTRY`, which single precision cannot be."""
    return entries.dtype == np.float64 and entries.size > 0 and max(float(entries.max()), -float(entries.min())) > LARGEST_ENTRY


def _factors(largest: Array) -> Array:
    """By what each row is multiplied so that its largest entry is at most `LARGEST_ENTRY`."""
    return np.minimum(1.0, LARGEST_ENTRY / np.maximum(largest, 1.0))


def public_labels(classes: Any, y: Any) -> tuple[Labels, Array, str]:
    """The classes sorted, the place of every label among them, and how they are known: given, or read off y, which counts as declared."""
    labels = column_or_1d(y, warn=True)
    if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels):
        raise InputError(
            "y: Unknown label type: labels need to be all text or all numbers, and none may be missing.",
            source="the argument y",
            remedy="leave records without a label out, and convert the others, such as by y.astype(str)",
        )
    check_classification_targets(labels)
    if classes is None:
        values, codes = np.unique(labels, return_inverse=True)
        if len(values) < 2:
            raise InputError(
                f"y: got 1 class, {values.tolist()[0]!r}; a classifier needs at least 2 classes.",
                source="the argument y",
                remedy="give the classes that could occur as the parameter classes; not all of them need to occur",
            )
        return values, codes.astype(np.float64), "class labels read off the data and declared to be public"
    values = _declared_classes(classes)
    if strange := set(np.unique(labels).tolist()) - set(values.tolist()):
        raise InputError(
            f"y: got {next(iter(strange))!r}, which is not in the public list of classes, {', '.join(map(repr, values[:5].tolist()))}"
            f"{', ...' if len(values) > 5 else ''}.",
            source="the argument y and the parameter classes",
            remedy="list every class that could occur, and write the labels of both in the same way",
        )
    return values, np.searchsorted(values, labels).astype(np.float64), "class labels given as public"


def _declared_classes(classes: Any) -> Labels:
    """The classes that the caller gave as public, sorted."""
    needed = "a list of at least two different labels, all text or all numbers"
    try:
        array = np.asarray(classes)
        if array.ndim == 1 and (array.dtype.kind != "O" or all(isinstance(label, str) for label in array)):
            values = np.unique(array)
            if 2 <= len(values) == len(array) and bool(np.all(values == values)):  # NaN is not itself
                return values
    except (TypeError, ValueError):
        pass
    raise outside("classes", classes, needed)


def listed_classes(how: str, classes: Labels) -> str:
    """A line of the report on how the classes are known."""
    return f"{how}: {', '.join(map(str, classes[:20]))}{', ...' if len(classes) > 20 else ''}"


def bounded_weights(sample_weight: Any, *, count: int, max_weight: Any) -> Array | None:
    """Weights over their public bound, in [0, 1], shape (n,), with which a loss keeps every bound; None where none were given."""
    bound = require_positive("max_weight", max_weight)
    if sample_weight is None:
        return None
    array = np.full(count, sample_weight) if isinstance(sample_weight, Number) else sample_weight
    weights = np.asarray(check_array(array, dtype="float64", ensure_2d=False, allow_nd=True, input_name="sample_weight"))
    if weights.shape != (count,) or weights.min() < 0.0:
        needed = f"{count} finite numbers >= 0, one a record, or one for all; sample_weights must be 1D"
        raise outside("sample_weight", f"numbers of shape {weights.shape} from {weights.min():g} on", needed)
    if weights.max() > bound:
        raise InputError(
            f"sample_weight: a weight is above max_weight = {bound:g}; unbounded weights let one record move the model without bound.",
            source="the argument sample_weight and the option max_weight",
            remedy="set max_weight to a bound known without looking at the data; noise grows with it",
        )
    return weights / bound


def declared_norm(feature_norm: Any) -> float | None:
    """The public bound on the rows' norms, or None, of "auto", where it is to be a private quantile."""
    if isinstance(feature_norm, str) and feature_norm == "auto":
        return None
    if feature_norm is None:
        raise InputError(
            "feature_norm = None: without a bound on the features one record could move the model without bound.",
            source="the parameter feature_norm",
            remedy='give a bound known without looking at the data, or feature_norm="auto": a private quantile of the norms, paid for '
            "out of epsilon",
        )
    return require_radius(feature_norm)  # pyright: ignore[reportArgumentType]


def declared_switch(name: str, value: Any) -> bool | None:
    """The value of a parameter that is True, False or "auto"; None, of "auto": the estimator decides from public facts."""
    if isinstance(value, str) and value == "auto":
        return None
    if not isinstance(value, bool | np.bool_):
        raise outside(name, value, '"auto", True or False')
    return bool(value)


def declared_passes(passes: Any) -> int | None:
    """The passes asked for, a whole number >= 1, or None, of "auto", where the estimator's rule on public facts decides (`run_shapes`)."""
    if isinstance(passes, str) and passes == "auto":
        return None
    if isinstance(passes, bool | np.bool_) or not isinstance(passes, int | np.integer) or passes < 1:
        raise outside("passes", passes, '"auto", or a whole number >= 1')
    return int(passes)
