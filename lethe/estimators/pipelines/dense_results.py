"""Whether what a `ColumnTransformer` gives is dense or sparse depends on records.

If a branch gives a sparse table, it compares the share of entries that are not 0 with `sparse_threshold`, and keeps the answer. So that
must be 0, which no share is below, or no branch may give a sparse table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

from lethe.errors import InputError
from lethe.estimators.pipelines.fitted_refusals import Path, named
from lethe.estimators.preprocessing.components import PrivatePCA
from lethe.estimators.preprocessing.data_free import FEATURES, learns_nothing
from lethe.estimators.preprocessing.private_whitening import PrivateWhitening
from lethe.estimators.preprocessing.public_scaler import PublicScaler
from lethe.estimators.preprocessing.scaler import PrivateStandardScaler

_DENSE = (OrdinalEncoder, PrivatePCA, PrivateStandardScaler, PrivateWhitening, *FEATURES)


def require_public_density(fitted: ColumnTransformer, branches: Sequence[Any], path: Path) -> None:
    """Refuse one whose result may be sparse or dense as the records are.

    Args:
        fitted: it.
        branches: its fitted steps.
        path: where it is.
    Raises:
        InputError: it is.
    """
    frame = hasattr(fitted, "feature_names_in_")  # names are kept of a frame only, and where they are text
    if fitted.sparse_threshold == 0 or all(_is_dense(step, frame=frame) for step in branches):
        return
    raise InputError(
        f"privacy_of: {named(fitted, path)}: whether its result is a sparse table depends on the share of zeros in the records.",
        source="its parameter sparse_threshold",
        remedy="set sparse_threshold=0, or sparse_output=False of its OneHotEncoder if no other part gives sparse tables, and fit it again",
    )


def _is_dense(step: Any, *, frame: bool) -> bool:
    """Whether it is sure that a fitted step gives no sparse table.

    Args:
        step: of a branch.
        frame: whether it is sure that what it is given is a frame.
    """
    if type(step) is Pipeline:
        return _is_dense(step.steps[-1][1], frame=False)
    if type(step) is OneHotEncoder:
        return step.sparse_output is False
    if type(step) is PublicScaler:
        return not step.keeps_zeros
    if type(step) is FunctionTransformer:
        # Of a frame, unless it is made an array: of one with sparse columns only that would be a sparse table.
        return frame and not step.validate and learns_nothing(step)
    return type(step) in _DENSE
