"""Findings on the code that called a fit, read off the stack: earlier steps of its pipeline, a search, earlier fits.

An estimator within a pipeline or a grid search cannot see that others were fitted on the same records; `PrivateEstimator.fit` asks here
(through `KNOWN_AT_FIT`), and its report then says that its epsilon is not the whole.

What did this in another process or thread is not on the stack, and rows that were transformed before fit was called say nothing of it.
"""

import inspect
import warnings
from collections.abc import Iterator
from types import FrameType

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline

from lethe.certificates.findings import OTHER_RELEASES, UNCOVERED, Finding, holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError, LetheWarning
from lethe.estimators.pipelines.privacy import LABEL_LEARNERS, LABELS_REMEDY, parts_of, release_mark
from lethe.estimators.preprocessing.data_free import learns_nothing, lesson_of, wrapped_model
from lethe.estimators.private_estimator import KNOWN_AT_FIT, PrivateEstimator

_FITS = frozenset({"fit", "_fit", "fit_transform", "fit_predict", "partial_fit"})
_FOLDS = frozenset({"_fit_and_score", "_fit_and_predict"})


def known_at_fit(estimator: PrivateEstimator) -> tuple[Finding, ...]:
    """A declared finding for each thing that the guarantee of this fit leaves out, as far as its callers show."""
    findings, before = list[Finding](), vars(estimator).get("statement_")
    if isinstance(before, Statement):
        words = f"this object was fitted before{release_mark(before)}: what that released counts too, if it was from these records"
        findings.append(_besides(words))
    frame, owners, folds = inspect.currentframe(), {id(estimator)}, False
    while frame is not None:
        code = frame.f_code
        if code.co_name in _FOLDS and frame.f_globals.get("__name__") == "sklearn.model_selection._validation":
            findings.append(_besides("this fit is one of those of a cross-validation, each of which costs as much"))
            folds = True
        elif code.co_name in _FITS and code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
            if isinstance(owner, PrivateEstimator) and id(owner) not in owners:
                break  # a private search, which states what it is part of itself
            if isinstance(owner, BaseEstimator) and id(owner) not in owners:
                owners.add(id(owner))
                findings += _of_owner(owner, frame, folds=folds)
        frame = frame.f_back
    return tuple(dict.fromkeys(findings))


def _of_owner(owner: BaseEstimator, frame: FrameType, *, folds: bool) -> Iterator[Finding]:
    """Findings on one estimator whose method is on the stack; `folds`: whether a search fits on parts of the records there."""
    name = type(owner).__name__
    if isinstance(owner, Pipeline):
        yield from _steps_before(owner, frame)
    if type(owner) in (Pipeline, ColumnTransformer, FeatureUnion) or learns_nothing(owner) or wrapped_model(owner):
        return
    if isinstance(owner, LABEL_LEARNERS):
        words = f"{name} learned from the labels of these records too, without noise"
        warnings.warn(f"{words}: it is NOT PRIVATE. Do: {LABELS_REMEDY}.", LetheWarning, stacklevel=2)
        yield holds(UNCOVERED, words, evidence="declared")
    elif not isinstance(owner, GridSearchCV | RandomizedSearchCV) and not hasattr(owner, "cv_results_"):
        yield _besides(f"it was fitted within {name}, which may fit others, and learn by itself from these records")
    elif not folds:
        yield holds(UNCOVERED, f"{name} chose what was fitted, by scores of these records without noise", evidence="declared")


def _steps_before(pipeline: Pipeline, frame: FrameType) -> Iterator[Finding]:
    """What the steps learned that made the rows: all but the last, where it is the last that is fitted."""
    # A local name of scikit-learn: were it another one, too many steps would be named, and none left out.
    for name, step in pipeline.steps[: frame.f_locals.get("step_idx", len(pipeline.steps) - 1)]:
        try:
            parts = list(parts_of(step, (str(name),)))
        except InputError:
            lesson = lesson_of(step)
            why = "it may have learned from these records, without privacy" if lesson is None else lesson.what
            reason = "what is proved is about the rows that it made, and nothing is proved of the records"
            yield holds(UNCOVERED, f"step '{name}' ({type(step).__name__}): {why}; {reason}", evidence="declared")
            continue
        for part in parts:
            if part.statement is not None:
                mark = release_mark(part.statement)
                yield _besides(f"step '{part.where}' released from these records too{mark}, and privacy_of counts both")
            elif part.declared:
                yield holds(f"step '{part.where}'", part.declared, evidence="declared")


def _besides(words: str) -> Finding:
    """The finding that these records were released from elsewhere too."""
    return holds(OTHER_RELEASES, f"{words}; not in this guarantee", evidence="declared")


KNOWN_AT_FIT.append(known_at_fit)
