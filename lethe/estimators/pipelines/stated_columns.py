"""stated_columns: which ranges and categories a fitted pipeline takes as public of the columns of its table, as rows for the report.

`lethe.report` calls it with the pipeline: what `PublicScaler` and encoders were given must be known without the records, so a reader of the
report has to see it. It walks the steps in order as long as columns keep their names.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from lethe.estimators.preprocessing.data_free import PublicScaler, learns_nothing, wrapped_model


def stated_columns(fitted: Any) -> list[tuple[str, str]]:
    """(column, what was stated of it), of steps that see columns as they came: behind an encoder or a private step there are others."""
    return list(_walk(fitted, None, "")[0])


def _walk(step: Any, names: Sequence[str] | None, applied: str) -> tuple[Iterator[tuple[str, str]], Sequence[str] | None, str]:
    """Its (column, words) rows; the names of its output columns, None: they are new; the name of the function applied before."""
    names = _names(step) if names is None else names
    if (attribute := wrapped_model(step)) is not None:
        return _walk(getattr(step, attribute, None), names, applied)
    if type(step) is Pipeline:
        rows: list[tuple[str, str]] = []
        for _, inner in step.steps:
            inner_rows, remaining_names, applied = _walk(inner, names, applied)
            rows += inner_rows
            if remaining_names is None:
                return iter(rows), None, applied
            names = remaining_names
        return iter(rows), names, applied
    if type(step) is FeatureUnion:
        return (row for _, inner in step.transformer_list for row in _walk(inner, names, applied)[0]), None, applied
    if type(step) is ColumnTransformer and names is not None:
        return (
            (row for _, inner, columns in step.transformers_ for row in _walk(inner, _selected(names, columns), applied)[0]),
            None,
            applied,
        )
    suffix = f", {applied} of it" if applied else ""
    if type(step) is PublicScaler and names is not None:
        ends = (np.broadcast_to(np.asarray(end, dtype=np.float64), len(names)) for end in (step.low, step.high))
        return ((name, f"{low:g} to {high:g}{suffix}") for name, low, high in zip(names, *ends, strict=True)), names, applied
    if isinstance(step, OneHotEncoder | OrdinalEncoder) and names is not None and learns_nothing(step):
        return ((name, ", ".join(map(str, listed))) for name, listed in zip(names, step.categories, strict=True)), None, applied
    if type(step) is FunctionTransformer and learns_nothing(step):
        return (
            iter(()),
            names,
            f"{step.func.__name__} of the {applied}" if applied and step.func else getattr(step.func, "__name__", applied),
        )
    # Free steps that treat each entry by itself leave columns where they were; of others nothing is known.
    return iter(()), names if learns_nothing(step) and getattr(step, "strategy", "") == "constant" else None, applied


def _names(step: Any) -> Sequence[str] | None:
    """The names of the columns a step was fitted on, or their numbers; None where it does not say."""
    count = getattr(step, "n_features_in_", None)
    return getattr(step, "feature_names_in_", None if count is None else [f"column {index}" for index in range(count)])


def _selected(names: Sequence[str], columns: Any) -> Sequence[str]:
    """Of all columns those of a branch, by names, places, a slice or a mask."""
    if isinstance(columns, str):
        return [columns]
    if not isinstance(columns, slice) and all(isinstance(column, str) for column in columns):
        return list(columns)
    return np.asarray(names)[columns if isinstance(columns, slice) else np.asarray(columns)].reshape(-1).tolist()
