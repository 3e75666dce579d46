"""privacy_of: the joint privacy of everything that was fitted on the same data, part by part of a fitted pipeline.

Called by users with a fitted pipeline: every step has a statement of its own only. callers.py walks pipelines with it too.

A part is a private release, declared, or learned nothing; everything else is refused. Only what was fitted is looked at: of a
`ColumnTransformer` its `transformers_`, remainder and all, of a `FeatureUnion` its `transformer_list`. Branches see the same records, so
each counts in full, as a step behind another does.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, SplineTransformer
from sklearn.utils import get_tags

from lethe.calculus.domains import require_delta
from lethe.calculus.large_delta import delta_for
from lethe.certificates.findings import OTHER_RELEASES, holds
from lethe.certificates.privacy_report import privacy_report
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.preprocessing.data_free import FEATURES, PublicScaler, learns_nothing, lesson_of, wrapped_model
from lethe.estimators.preprocessing.moments import PrivatePCA, PrivateWhitening
from lethe.estimators.preprocessing.scaler import PrivateStandardScaler
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.mechanisms.base import joint

_ONE_RECORD = "taken to look at one record at a time, with constants that were not read off these records"
_FROZEN = "taken to have been fitted before, on records that are not these, and to look at one record at a time"
_COLUMNS = "its columns were chosen by a function, taken to look at their names and types alone"
_NOT_FITTED = "it is not fitted; a clone is not either", "call fit first"
_CONTAINERS = (Pipeline, ColumnTransformer, FeatureUnion)
_DENSE = (OrdinalEncoder, PrivatePCA, PrivateStandardScaler, PrivateWhitening, *FEATURES)
LABEL_LEARNERS = (CalibratedClassifierCV, TunedThresholdClassifierCV)
LABELS_REMEDY = "take LogisticRegression, which predicts true probabilities, and FixedThresholdClassifier with a public threshold"

Path = tuple[str, ...]
"""The names of the steps, from the outermost to the one spoken of."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPart:
    """One part, which learned nothing from records if it has neither of the two."""

    where: str  # the names of the steps it is in, and where nothing is declared its type
    statement: Statement | None = None  # what it released
    declared: str = ""  # what is taken on the user's word
    records: int | None = None  # how many the statement is about, where that is known


def parts_of(fitted: Any, path: Path = ()) -> Iterator[FittedPart]:
    """The parts of a fitted pipeline, of an estimator, or of a list of them, at a path, in the order of the steps."""
    if isinstance(fitted, list | tuple):
        for index, member in enumerate(fitted):
            yield from parts_of(member, (*path, f"[{index}]"))
    elif isinstance(fitted, PrivateEstimator):
        if not isinstance(getattr(fitted, "statement_", None), Statement):
            raise _refusal(fitted, path, *_NOT_FITTED)
        best = getattr(fitted, "best_estimator_", None)  # of a search: whatever was fitted since to the model that it found
        yield from _with_own(fitted, () if best is None else parts_of(best, (*path, "best_estimator_")), path)
    elif type(fitted) in _CONTAINERS:
        inside = _branches if isinstance(fitted, ColumnTransformer) else _inside
        yield from _with_own(fitted, inside(fitted, path), path)
    elif type(fitted) is FrozenEstimator:
        yield from _fitted_before(fitted.estimator, fitted, path)
    elif (attribute := wrapped_model(fitted)) is not None:
        model = getattr(fitted, attribute, getattr(fitted, attribute[:-1]))  # or its parameter, which is not fitted
        yield from _with_own(fitted, parts_of(model, (*path, attribute)), path)
    elif not (fitted is None or _is_word(fitted, "passthrough")):
        yield from _foreign(fitted, path)


def _with_own(fitted: Any, parts: Iterable[FittedPart], path: Path) -> Iterator[FittedPart]:
    """The parts, and the statement that is about all of them: a private search sets it on the pipeline that it found and on its steps."""
    # scikit-learn's own classes never take it off. A step that was fitted since has another statement, and both count.
    statement = getattr(fitted, "statement_", None)
    if isinstance(statement, Statement):
        yield FittedPart(where=_named(fitted, path), statement=statement, records=getattr(fitted, "n_samples_seen_", None))
        parts = (part for part in parts if part.statement is not statement)
    yield from parts


def _inside(fitted: Any, path: Path) -> Iterator[FittedPart]:
    steps = fitted.steps if isinstance(fitted, Pipeline) else fitted.transformer_list
    for name, step in steps:
        if isinstance(fitted, Pipeline) or not _is_word(step, "drop"):
            yield from parts_of(step, (*path, str(name)))


def _branches(fitted: ColumnTransformer, path: Path) -> Iterator[FittedPart]:
    """Weights of branches are public numbers, and how many jobs there were changes nothing: private noise is drawn anew in each."""
    if not hasattr(fitted, "transformers_"):
        raise _refusal(fitted, path, *_NOT_FITTED)
    # Of no columns a step is not fitted.
    branches = [(str(name), step) for name, step, columns in fitted.transformers_ if not _is_word(step, "drop") and not _is_empty(columns)]
    for name, step in branches:
        yield from parts_of(step, (*path, name))
    _require_public_density(fitted, [step for _, step in branches], path)
    for name, _, columns in fitted.transformers:
        if callable(columns) and type(columns) is not make_column_selector:  # scikit-learn's looks at names and types
            yield FittedPart(where=_step(fitted, (*path, str(name))), declared=_COLUMNS)


def _is_empty(columns: Any) -> bool:
    """Whether the columns of a branch are none, an empty list or a mask of all False: it is then not fitted."""
    if isinstance(columns, str) or not hasattr(columns, "__len__"):
        return False
    mask = np.asarray(columns)
    return mask.size == 0 or (mask.dtype.kind == "b" and not mask.any())


def _require_public_density(fitted: ColumnTransformer, branches: Sequence[Any], path: Path) -> None:
    """Refuse one whose result may be sparse or dense as the records are: where a branch is sparse the share of entries decides it."""
    frame = hasattr(fitted, "feature_names_in_")  # names are kept of a frame only, and where they are text
    if fitted.sparse_threshold == 0 or all(_is_dense(step, frame=frame) for step in branches):
        return
    raise InputError(
        f"privacy_of: {_named(fitted, path)}: whether its result is a sparse table depends on the share of zeros in the records.",
        source="its parameter sparse_threshold",
        remedy="set sparse_threshold=0, or sparse_output=False of its OneHotEncoder if no other part gives sparse tables, and fit it again",
    )


def _is_dense(step: Any, *, frame: bool) -> bool:
    """Whether it is sure that a fitted step, of a branch that is given a frame for sure or not, gives no sparse table."""
    if type(step) is Pipeline:
        return _is_dense(step.steps[-1][1], frame=False)
    if type(step) in (OneHotEncoder, SplineTransformer):
        return step.sparse_output is False
    if type(step) is PublicScaler:
        return not step.keeps_zeros
    if type(step) is FunctionTransformer:
        # Of a frame, unless it is made an array: of one with sparse columns only that would be a sparse table.
        return frame and not step.validate and learns_nothing(step)
    return type(step) in _DENSE


def _foreign(fitted: Any, path: Path) -> Iterator[FittedPart]:
    """The part of a step that is not of this package: learned nothing, declared to treat each record by itself, or refused."""
    if learns_nothing(fitted):
        yield FittedPart(where=_named(fitted, path))
        return
    method = fitted.func if isinstance(fitted, FunctionTransformer) else None
    owner = getattr(method, "__self__", None)
    if isinstance(owner, BaseEstimator):  # a method of an estimator does what that learned, or learns
        if str(getattr(method, "__name__", "")).startswith("fit"):
            raise _refused(owner, path)
        yield from _fitted_before(owner, fitted, path)
        return
    if not isinstance(fitted, BaseEstimator) or get_tags(fitted).requires_fit:
        raise _refused(fitted, path)
    yield FittedPart(where=_step(fitted, path), declared=_ONE_RECORD)


def _fitted_before(inner: Any, outer: Any, path: Path) -> Iterator[FittedPart]:
    """What an estimator inside is made of, counted as if these had been the records; what it would be refused for is taken on trust."""
    try:
        yield from list(parts_of(inner, path))
    except InputError:
        yield FittedPart(where=_step(outer, path), declared=_FROZEN)


def _named(part: object, path: Path) -> str:
    """Where a part is, and its type, as in "columntransformer > c > OneHotEncoder"."""
    return " > ".join((*path, type(part).__name__))


def _step(part: object, path: Path) -> str:
    return " > ".join(path) or type(part).__name__


def _is_word(step: object, word: str) -> bool:
    return isinstance(step, str) and step == word


def _refused(part: Any, path: Path) -> InputError:
    """The refusal of a part that is neither a fitted private estimator nor known to learn nothing."""
    if not isinstance(part, BaseEstimator):
        got = repr(part) if isinstance(part, str | int | float | type) else type(part).__name__
        where = f" at {' > '.join(path)}" if path else ""
        return InputError(
            f"privacy_of: got {got}{where}; it takes a fitted estimator of lethe.estimators, a pipeline of them, or a list of those.",
            source="the argument fitted",
            remedy="give what fit was called on",
        )
    lesson = lesson_of(part)
    if lesson is not None:
        return _refusal(part, path, lesson.what, lesson.remedy)
    if isinstance(part, GridSearchCV | RandomizedSearchCV) or hasattr(part, "cv_results_"):
        why = "every candidate saw the records again, in every fold, and which was best was chosen by them"
        return _refusal(part, path, why, "take PrivateSearch of lethe.estimators")
    if isinstance(part, LABEL_LEARNERS):
        return _refusal(part, path, "it learns from the labels of the records too, without noise", LABELS_REMEDY)
    if isinstance(part, _CONTAINERS):
        return _refusal(part, path, "it is a subclass, which may do anything with the records", "take scikit-learn's own class")
    if any(isinstance(value, PrivateEstimator) for value in part.get_params().values()):
        return _refusal(
            part,
            path,
            "it fits private estimators as often as it likes, and may learn beside them",
            "take an estimator of lethe.estimators itself, of which LogisticRegression and SoftmaxRegression take many classes; or "
            "call privacy_of on the list of all that was fitted, such as its estimators_: that adds up, if nothing else in it learned",
        )
    return _refusal(
        part,
        path,
        "it is not fitted, or it may have learned from the records without privacy",
        "put a private step of lethe.estimators in its place, or PublicScaler for ranges that everybody knows; or fit it on public "
        "data outside of the pipeline",
    )


def _refusal(part: object, path: Path, why: str, remedy: str) -> InputError:
    return InputError(
        f"privacy_of: {_named(part, path)}: {why}.", source=f"step {' > '.join(path)!r}" if path else "the argument fitted", remedy=remedy
    )


_PUBLIC = (
    "the names, the number and the types of the columns",
    "all parameters: among them the ranges, categories, values to fill in, means and covariances that were given",
    "what privacy_report_ of each private part lists",
)
_NO_OTHERS = holds(
    "no other fits",
    "no other fit on these records, or its score, is published or decided this one",
    evidence="declared",
)


def privacy_of(fitted: Any) -> Statement:
    """One statement for a fitted pipeline, or for several fitted estimators.

    Every private estimator counts as often as it is listed, in pipelines within lists too, and in the branches of a ColumnTransformer or a
    FeatureUnion, which see the same records. A step that is known to learn nothing from records is free
    (`lethe.estimators.preprocessing.data_free`). One that says it needs no fit, such as a FunctionTransformer of a function of one's own,
    is taken to treat every record by itself, with constants that were not read off them, and a FrozenEstimator to have been fitted on
    other records: the findings of the statement say so, as declared. All else is refused.

    What is looked at are the objects as they are now. How often something else was fitted on the same records they do not know: the
    statement says, as declared, that no other fit decided this one or is published. A `GridSearchCV` and its like are refused, since they
    choose by looking at the records; of its `best_estimator_` alone the statement says that nothing is proved of the records.

    Args:
        fitted: a pipeline, an estimator, or a list of them, all fitted on the same records.
    Raises:
        InputError: no private step, a step that learned from the data without privacy or may have, or two relations.
    """
    return _total(list(parts_of(fitted)), fitted)


def privacy_report_of(fitted: Any, delta: float, *, allow_large_delta: bool = False) -> str:
    r"""A page on a fitted pipeline: what `privacy_of` proves of it, which part costs what, what each rests on, and what is not covered.

    Args:
        fitted: as `privacy_of`.
        delta: $\delta \in [0, 1)$, and below 1/records, at which epsilons are shown.
        allow_large_delta: whether a delta >= 1/records is meant; the page then says so.
    Raises:
        InputError: as `privacy_of`, or a delta out of its range.
    """
    level = require_delta(delta)
    parts = list(parts_of(fitted))
    records = max((part.records for part in parts if part.records is not None), default=None)
    if records is not None and level > 0.0:
        delta_for(records, level, allow_large_delta=allow_large_delta)
    total = _total(parts, fitted)
    return privacy_report(
        total,
        [replace(part.statement, name=f"{part.where}: {part.statement.name}") for part in parts if part.statement is not None],
        delta=level,
        records=records,
        free=[part.where for part in parts if part.statement is None and not part.declared],
        public=_PUBLIC,
    )


def release_mark(stated: Statement) -> str:
    """What names a release within a sentence."""
    return f" (release {stated.release_id[:12]})"


def _total(parts: Sequence[FittedPart], fitted: Any) -> Statement:
    """The joint statement of all parts, with the findings of those that were declared."""
    statements = [part.statement for part in parts if part.statement is not None]
    if not statements:
        raise InputError(
            f"privacy_of: nothing in {type(fitted).__name__} has a statement_.", remedy="give fitted private estimators of lethe.estimators"
        )
    total = statements[0] if len(statements) == 1 else joint(statements)
    counted = tuple(release_mark(statement) for statement in statements)  # what a fit knew of these releases is in the sum now
    findings = [
        finding for finding in total.findings if finding.name != OTHER_RELEASES or not any(mark in finding.detail for mark in counted)
    ]
    step_findings = [_NO_OTHERS] + [holds(f"step '{part.where}'", part.declared, evidence="declared") for part in parts if part.declared]
    return replace(total, findings=tuple(dict.fromkeys((*findings, *step_findings))))
