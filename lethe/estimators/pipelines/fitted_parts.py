"""The parts of a fitted pipeline: private releases, declared parts, and parts that learned nothing. Everything else is refused.

Only what was fitted is looked at: of a `ColumnTransformer` its `transformers_`, remainder and all, of a `FeatureUnion` its
`transformer_list`. Branches see the same records, so each counts in full, as a step behind another does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.estimators.pipelines.dense_results import require_public_density
from lethe.estimators.pipelines.fitted_refusals import Path, named, not_fitted, refused, searched
from lethe.estimators.preprocessing.data_free import learns_nothing
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.estimators.surrounding import others_around, search_around
from lethe.estimators.unseen_costs import no_columns

_ONE_RECORD = "taken to look at one record at a time, with constants that were not read off these records"
_FROZEN = "taken to have been fitted before, on records that are not these, and to look at one record at a time"
_WITHIN = "fitted within {name}: all that it fitted on these records is taken to be listed, and to be all that it learned of them"
_COLUMNS = "its columns were chosen by a function, taken to look at their names and types alone"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedPart:
    """One part, which learned nothing from records if it has neither of the two.

    Args:
        where: the names of the steps it is in, and where nothing is declared its type.
        statement: what it released.
        declared: what is taken on the user's word.
        records: how many the statement is about, where that is known.
    """

    where: str
    statement: Statement | None = None
    declared: str = ""
    records: int | None = None


def parts_of(fitted: Any, path: Path = ()) -> Iterator[FittedPart]:
    """The parts of a fitted pipeline, of an estimator, or of a list of them, in the order of the steps.

    Args:
        fitted: it, as it is now.
        path: where it is.
    Raises:
        InputError: a part that is not fitted, that learned without privacy, or that may have.
    """
    if isinstance(fitted, list | tuple):
        for place, one in enumerate(fitted):
            yield from parts_of(one, (*path, f"[{place}]"))
    elif isinstance(fitted, PrivateEstimator):
        yield from _private(fitted, path)
    elif type(fitted) in (Pipeline, ColumnTransformer, FeatureUnion):
        own = getattr(fitted, "statement_", None)
        records = getattr(fitted, "n_samples_seen_", None)
        yield from _with_own(own if isinstance(own, Statement) else None, _inside(fitted, path), named(fitted, path), records)
    elif type(fitted) is FrozenEstimator:
        yield from _fitted_before(fitted.estimator, fitted, path)
    elif not _is_nothing(fitted):
        yield from _foreign(fitted, path)


def _private(fitted: PrivateEstimator, path: Path) -> Iterator[FittedPart]:
    """Its own statement; and of a search whatever was fitted since to the model that it found."""
    own = getattr(fitted, "statement_", None)
    if not isinstance(own, Statement):
        raise not_fitted(fitted, path)
    search = search_around(fitted)
    if search is not None:
        raise searched(fitted, search, path)
    for name in others_around(fitted):
        yield FittedPart(where=_step(fitted, path), declared=_WITHIN.format(name=name))
    found = getattr(fitted, "best_estimator_", None)
    inner = () if found is None else parts_of(found, (*path, "best_estimator_"))
    yield from _with_own(own, inner, named(fitted, path), getattr(fitted, "n_samples_seen_", None))


def _with_own(own: Statement | None, parts: Iterable[FittedPart], where: str, records: int | None) -> Iterator[FittedPart]:
    """The parts, and the statement that is about all of them: a private search sets it on the pipeline that it found and on its steps.

    scikit-learn's own classes never take it off again. A step that was fitted since has another statement, and that counts too; that of the
    search does as well, since what it chose is still in there.
    """
    if own is not None:
        yield FittedPart(where=where, statement=own, records=records)
    yield from (part for part in parts if own is None or part.statement is not own)


def _inside(fitted: Any, path: Path) -> Iterator[FittedPart]:
    if isinstance(fitted, ColumnTransformer):
        yield from _branches(fitted, path)
        return
    steps = fitted.steps if isinstance(fitted, Pipeline) else fitted.transformer_list
    for name, step in steps:
        if isinstance(fitted, Pipeline) or not _is_word(step, "drop"):
            yield from parts_of(step, (*path, str(name)))


def _branches(fitted: ColumnTransformer, path: Path) -> Iterator[FittedPart]:
    """Weights of branches are public numbers, and how many jobs there were changes nothing: private noise is drawn anew in each."""
    if not hasattr(fitted, "transformers_"):
        raise not_fitted(fitted, path)
    # Of no columns a step is not fitted.
    branches = [(str(name), step) for name, step, columns in fitted.transformers_ if not _is_word(step, "drop") and not no_columns(columns)]
    for name, step in branches:
        yield from parts_of(step, (*path, name))
    require_public_density(fitted, [step for _, step in branches], path)
    for name, _, columns in fitted.transformers:
        if callable(columns) and type(columns) is not make_column_selector:  # scikit-learn's looks at names and types
            yield FittedPart(where=_step(fitted, (*path, str(name))), declared=_COLUMNS)


def _foreign(fitted: Any, path: Path) -> Iterator[FittedPart]:
    if learns_nothing(fitted):
        yield FittedPart(where=named(fitted, path))
        return
    method = fitted.func if isinstance(fitted, FunctionTransformer) else None
    owner = getattr(method, "__self__", None)
    if isinstance(owner, BaseEstimator):  # a method of an estimator does what that learned, or learns
        if str(getattr(method, "__name__", "")).startswith("fit"):
            raise refused(owner, path)
        yield from _fitted_before(owner, fitted, path)
        return
    if not isinstance(fitted, BaseEstimator) or get_tags(fitted).requires_fit:
        raise refused(fitted, path)
    yield FittedPart(where=_step(fitted, path), declared=_ONE_RECORD)


def _fitted_before(inner: Any, outer: Any, path: Path) -> Iterator[FittedPart]:
    """What an estimator inside is made of, counted as if these had been the records; what it would be refused for is taken on trust."""
    try:
        yield from list(parts_of(inner, path))
    except InputError:
        yield FittedPart(where=_step(outer, path), declared=_FROZEN)


def _step(part: object, path: Path) -> str:
    return " > ".join(path) or type(part).__name__


def _is_nothing(step: object) -> bool:
    return step is None or _is_word(step, "passthrough")


def _is_word(step: object, word: str) -> bool:
    return isinstance(step, str) and step == word
