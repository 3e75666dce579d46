"""Warnings of what a private estimator's own epsilon does not count: other fits on the same records, and steps that learned from them.

Both can be seen only in the frames of the call, as in `lethe.estimators.surrounding`. Not seen are fits in a loop of one's own or of
another library, and in another process the name of what fits; a pipeline that hands its rows on by itself; and rows that were scaled before
any of it was called.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.feature_selection import SelectFromModel
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from lethe.errors import RepeatedFitWarning, UncoveredStepWarning

_ONCE = (Pipeline, ColumnTransformer, FeatureUnion, TransformedTargetRegressor, SelectFromModel, FixedThresholdClassifier)
"""The estimators of scikit-learn that fit each one that they hold once, and of which nothing else learns that is not seen below."""
_HELPERS = ("sklearn.base", "sklearn.utils", "sklearn.pipeline", "sklearn.compose._column_transformer")
"""The modules whose functions these, and all others, fit by."""
_FOLDS = "sklearn.model_selection._validation"

_warned_of: set[str] = set()
_judges: list[Callable[[Any], bool | None]] = []


def judged_by(judge: Callable[[Any], bool | None]) -> Callable[[Any], bool | None]:
    """Let a function say whether a step learned from the records (None: it does not know); it knows types that are made further up."""
    _judges.append(judge)
    return judge


def warn_of_repeated_fits(fitted: Any, private: type, epsilon: float) -> None:
    """Warn where something of scikit-learn fits the estimator that may do so several times, once a process for each that does.

    Args:
        fitted: the estimator.
        private: the class of those that account for what they fit.
        epsilon: of one fit.
    """
    repeating = _repeating(fitted, private)
    names = [type(owner).__name__ if isinstance(owner := _owner(frame), BaseEstimator) else frame.f_code.co_name for frame in repeating]
    name = next((one for one in reversed(names) if not one.startswith("_")), "a parallel loop")
    if not repeating or name in _warned_of:
        return
    _warned_of.add(name)
    count = _number_of_fits(repeating)
    times = "k fits cost up to k times as much" if count is None else f"{count} fits cost up to {count} times as much"
    total = "" if count is None else f": epsilon = {count * epsilon:.4g} for {epsilon:.4g}"
    warnings.warn(
        f"a private estimator is fitted by {name} of scikit-learn, which may fit it several times, on overlapping records: {times}{total}. "
        f"Nothing adds that up, nor what {name} itself learns from the records without noise, such as scores, weights or thresholds. "
        "PrivateSearch of lethe.estimators chooses within one epsilon, and privacy_of([...]) adds up fits that are listed; or work on "
        "public records.",
        RepeatedFitWarning,
        stacklevel=2,
    )


def _repeating(fitted: Any, private: type) -> list[FrameType]:
    """The frames of scikit-learn's that may fit it several times, from the inside out; none where another private estimator fits it."""
    found: list[FrameType] = []
    for frame in _frames():
        owner, module = _owner(frame), str(frame.f_globals.get("__name__", ""))
        if owner is fitted or not (module.startswith("sklearn.") or isinstance(owner, private)):
            continue
        if isinstance(owner, private):
            return []
        if not isinstance(owner, _ONCE) if isinstance(owner, BaseEstimator) else not module.startswith(_HELPERS):
            found.append(frame)
    return found


def _owner(frame: FrameType) -> Any:
    """The object whose method a frame runs; None where it is no method."""
    return frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None


def steps_that_learned() -> list[str]:
    """Earlier steps of the pipelines whose fit this is a part of, by name and type, that learned from the records without privacy.

    What transformed the targets is one.
    """
    found: dict[str, None] = {}
    seen: set[int] = set()
    for frame in _frames():
        owner = _owner(frame)
        if id(owner) in seen:
            continue
        seen.add(id(owner))
        if type(owner) is TransformedTargetRegressor:
            found |= dict.fromkeys(_learned("transformer", owner.transformer_))
        if type(owner) is not Pipeline:
            continue
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


def _number_of_fits(repeating: list[FrameType]) -> int | None:
    """How many fits a cross-validation makes in all, where the call says so; scikit-learn's searches tell each of their fits."""
    fold = repeating[0]
    owners: list[Any] = list({id(owner): owner for frame in repeating if isinstance(owner := _owner(frame), BaseEstimator)}.values())
    within_one_loop = not owners or (len(owners) == 1 and type(owners[0]) in (GridSearchCV, RandomizedSearchCV))
    if fold.f_globals.get("__name__") != _FOLDS or not within_one_loop:
        return None
    told = [fold.f_locals.get(name) for name in ("split_progress", "candidate_progress")]
    if all(isinstance(one, tuple) for one in told):
        candidates = int(told[0][1]) * int(told[1][1])  # pyright: ignore[reportOptionalSubscript]
        return candidates + sum(1 for search in owners if search.refit)
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
