"""Input checks of estimators: tables, weights and public facts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from lethe.calculus.domains import outside, require_positive
from lethe.errors import InputError
from lethe.estimators.inputs.records import require_radius
from lethe.estimators.inputs.tables import read_table, read_table_and_targets
from lethe.mechanisms.base import Array

FEWEST_RECORDS = 2
_EITHER: dict[str, Any] = {"accept_sparse": "csr", "accept_large_sparse": True, "dtype": [np.float64, np.float32]}


def table_and_targets(estimator: BaseEstimator, X: Any, y: Any, *, numeric: bool, frame: bool = False) -> tuple[Any, Any]:
    """X as a float64 or float32 array or CSR table, y as one column; sets n_features_in_ and feature_names_in_.

    Args:
        estimator: sets n_features_in_ and feature_names_in_ of it.
        X: the table, shape (n, d); a float64 or float32 array or CSR table is returned.
        y: numbers or labels, shape (n,) or (n, 1).
        numeric: whether the targets must be numbers.
        frame: whether y may be a frame of one column; else scikit-learn warns of one.
    Raises:
        InputError, ValueError, TypeError: as `tables.read_table_and_targets`.
    """
    return read_table_and_targets(estimator, X, y, numeric=numeric, frame=frame, ensure_min_samples=FEWEST_RECORDS, **_EITHER)


def table_for_prediction(estimator: BaseEstimator, X: Any) -> Any:
    """X with the columns that were fitted, in the same order."""
    return read_table(estimator, X, reset=False, **_EITHER)


def bounded_weights(sample_weight: Any, *, count: int, max_weight: Any) -> Array | None:
    """Weights over their public bound, in [0, 1], shape (n,); None where none were given.

    A weight scales a record's loss, so its gradient: with weights of at most `max_weight` the loss over that bound keeps every bound.

    Args:
        sample_weight: None, one number, or shape (n,), >= 0.
        count: n.
        max_weight: the public bound, > 0.
    Raises:
        InputError: not one finite number >= 0 a record, or one above the bound.
    """
    bound = require_positive("max_weight", max_weight)
    if sample_weight is None:
        return None
    needed = f"{count} finite numbers >= 0, one a record, or one for all"
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise outside("sample_weight", type(sample_weight).__name__, needed) from None
    if weights.ndim == 0:
        weights = np.full(count, float(weights))
    if weights.shape != (count,):
        raise InputError(
            f"sample_weight: got shape {weights.shape}; sample_weights must be 1D, of shape ({count},).",
            source="the argument sample_weight",
        )
    if not np.isfinite(weights).all() or weights.min() < 0.0:
        raise outside("sample_weight", "an entry that is NaN, infinite or below 0", needed)
    if weights.max() > bound:
        raise InputError(
            f"sample_weight: a weight is above max_weight = {bound:g}; unbounded weights let one record move the model without bound.",
            source="the argument sample_weight and the option max_weight",
            remedy="set max_weight to a bound known without looking at the data; noise grows with it",
        )
    return weights / bound


def declared_norm(feature_norm: Any) -> float | None:
    """The public bound on the rows' norms, or None where it is to be a private quantile.

    Raises:
        InputError: none was given, or it is out of range.
    """
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
    """Whether something is asked for, or None where the estimator decides.

    Args:
        name: of the parameter.
        value: of it.
    Raises:
        InputError: neither "auto" nor True nor False.
    """
    if isinstance(value, str) and value == "auto":
        return None
    if not isinstance(value, bool | np.bool_):
        raise outside(name, value, '"auto", True or False')
    return bool(value)


def declared_passes(passes: Any) -> int | None:
    """The passes asked for, or None where the rule decides.

    Raises:
        InputError: neither "auto" nor a whole number >= 1.
    """
    if isinstance(passes, str) and passes == "auto":
        return None
    if isinstance(passes, bool | np.bool_) or not isinstance(passes, int | np.integer) or passes < 1:
        raise outside("passes", passes, '"auto", or a whole number >= 1')
    return int(passes)
