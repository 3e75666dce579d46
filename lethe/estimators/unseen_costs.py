"""Warnings of what a private estimator's own epsilon does not count: other fits on the same records, and steps that learned from them.

Both can be seen only in the frames of the call, as in `lethe.estimators.surrounding`. Not seen are fits in a loop of one's own, and in
another process the number of fits; a pipeline that hands its rows on by itself; and rows that were scaled before any of it was called.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from lethe.errors import RepeatedFitWarning, UncoveredStepWarning

_FOLDS = "sklearn.model_selection."
_FITS = ("_fit_and_score", "_fit_and_predict", "_incremental_fit_estimator")
"""The functions of scikit-learn that fit an estimator for one fold; each process that fits folds calls one of them."""

_told: set[str] = set()
_judges: list[Callable[[Any], bool | None]] = []


def judged_by(judge: Callable[[Any], bool | None]) -> Callable[[Any], bool | None]:
    """Let a function say whether a step learned from the records (None: it does not know); it knows types that are made further up."""
    _judges.append(judge)
    return judge


def warn_of_repeated_fits(epsilon: float) -> None:
    """Warn once a process where scikit-learn fits the estimator for a fold of a cross-validation.

    Args:
        epsilon: of one fit.
    """
    if "folds" in _told:
        return
    for frame in _frames():
        if str(frame.f_globals.get("__name__", "")).startswith(_FOLDS) and frame.f_code.co_name in _FITS:
            _told.add("folds")
            count = _number_of_fits(frame)
            times = "k folds of c candidates cost k c times as much" if count is None else f"{count} fits cost up to {count} times as much"
            total = "" if count is None else f": epsilon = {count * epsilon:.4g} for {epsilon:.4g}"
            warnings.warn(
                f"a private estimator is fitted by scikit-learn's cross-validation, once for each fold and each candidate, on overlapping "
                f"records: {times}{total}, which nothing adds up, and the scores have no noise. PrivateSearch of "
                "lethe.estimators chooses within one epsilon; or cross-validate on public records.",
                RepeatedFitWarning,
                stacklevel=2,
            )
            return


def steps_that_learned() -> list[str]:
    """Earlier steps of the pipelines whose fit this is a part of, by name and type, that learned from the records without privacy."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    for frame in _frames():
        owner = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
        if type(owner) is not Pipeline or id(owner) in seen:
            continue
        seen.add(id(owner))
        place = frame.f_locals.get("step_idx") if frame.f_code.co_name == "_fit" else len(owner.steps) - 1
        if isinstance(place, int):
            for name, step in owner.steps[:place]:
                found |= dict.fromkeys(_learned(str(name), step))
    return list(found)


def warn_of_steps(steps: list[str], owner: str) -> None:
    """Warn where earlier steps learned from the records."""
    if steps:
        warnings.warn(
            f"{', '.join(steps)} learned, or may have, from the records without privacy before {owner} was fitted: the epsilon of "
            f"{owner} says nothing of that, and privacy_of(pipeline) refuses it. Take PrivateStandardScaler, or PublicScaler for "
            "public ranges.",
            UncoveredStepWarning,
            stacklevel=2,
        )


def _learned(name: str, step: Any) -> Iterator[str]:
    """Those parts of a fitted step that learned; what `privacy_of` takes as declared is not among them."""
    if step is None or isinstance(step, str) or type(step) is FrozenEstimator or hasattr(step, "privacy_report_"):
        return
    if type(step) in (Pipeline, FeatureUnion, ColumnTransformer):
        for inner, part in _parts(step):
            yield from _learned(f"{name} > {inner}", part)
        return
    if not isinstance(step, BaseEstimator) or not get_tags(step).requires_fit:
        return
    if next((answer for judge in _judges if (answer := judge(step)) is not None), True):
        yield f"step {name!r} ({type(step).__name__})"


def _parts(step: Any) -> list[tuple[str, Any]]:
    if isinstance(step, ColumnTransformer):
        return [(str(name), part) for name, part, columns in getattr(step, "transformers_", ()) if not no_columns(columns)]
    return [(str(name), part) for name, part in (step.steps if isinstance(step, Pipeline) else step.transformer_list)]


def no_columns(columns: Any) -> bool:
    """Whether the columns of a branch are none, an empty list or a mask of all False: it is then not fitted."""
    if isinstance(columns, str) or not hasattr(columns, "__len__"):
        return False
    mask = np.asarray(columns)
    return mask.size == 0 or (mask.dtype.kind == "b" and not mask.any())


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _number_of_fits(fold: FrameType) -> int | None:
    """How many fits the whole cross-validation makes, where the call says so; scikit-learn's searches tell each of their fits."""
    told = [fold.f_locals.get(name) for name in ("split_progress", "candidate_progress")]
    if all(isinstance(one, tuple) for one in told):
        return int(told[0][1]) * int(told[1][1])  # pyright: ignore[reportOptionalSubscript]
    frame = fold.f_back
    while frame is not None:
        if frame.f_code.co_name in ("cross_validate", "cross_val_predict") and str(frame.f_globals.get("__name__", "")).startswith(_FOLDS):
            splits = frame.f_locals.get("splits", frame.f_locals.get("indices"))
            if isinstance(splits, list):
                return len(splits)
            cv = frame.f_locals.get("cv")
            count = getattr(cv, "n_splits", None)
            return count if isinstance(count, int) else None
        frame = frame.f_back
    return None
