"""Error messages of `privacy_of` for parts that it cannot account for."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline

from lethe.errors import InputError
from lethe.estimators.preprocessing.data_free import lesson_of
from lethe.estimators.private_estimator import PrivateEstimator

Path = tuple[str, ...]
"""The names of the steps, from the outermost to the one spoken of."""

_CONTAINERS = (Pipeline, ColumnTransformer, FeatureUnion)


def named(part: object, path: Path) -> str:
    """Where a part is, and its type, as in "columntransformer > c > OneHotEncoder"."""
    return " > ".join((*path, type(part).__name__))


def not_fitted(part: object, path: Path) -> InputError:
    """The refusal of a part that is not fitted, and so cannot say what it cost."""
    return _refusal(part, path, "it is not fitted; a clone is not either", "call fit first")


def searched(part: object, search: str, path: Path) -> InputError:
    """The refusal of an estimator that a search by cross-validation fitted on the records that it was chosen by.

    Args:
        part: the fitted estimator.
        search: the name of the search's class.
        path: where in the pipeline the part is.
    """
    why = f"{search} fitted it, and others on the same records, and chose this one by scores that have no noise"
    remedy = "take PrivateSearch of lethe.estimators, which pays for the choice; or choose on public records, and fit once on these"
    return _refusal(part, path, why, remedy)


def refused(part: Any, path: Path) -> InputError:
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
    if isinstance(part, _CONTAINERS):
        why = "it is a subclass, which may do anything with the records"
        return _refusal(part, path, why, "take scikit-learn's own class")
    if any(isinstance(value, PrivateEstimator) for value in part.get_params().values()):
        why = "it fits private estimators as often as it likes, and may learn beside them"
        return _refusal(
            part,
            path,
            why,
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
        f"privacy_of: {named(part, path)}: {why}.", source=f"step {' > '.join(path)!r}" if path else "the argument fitted", remedy=remedy
    )
