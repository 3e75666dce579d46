"""Detection of outer estimators, such as searches, inside whose fit a private estimator was fitted.

scikit-learn clones an estimator, fits the clones, and keeps one. What it keeps knows nothing of the others, so each private fit looks at
who called it: at the frames of the call, the only place where it can be seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline

# They fit each of their steps once, and `privacy_of` takes them apart.
_KNOWN = (Pipeline, ColumnTransformer, FeatureUnion)
_ATTRIBUTE = "_fitted_within"


def note_surrounding(fitted: Any, private: type) -> None:
    """Note on what is being fitted whose fit that is part of, or that it is nobody's. Those of class `private` account for themselves."""
    found = list(dict.fromkeys((type(outer).__name__, isinstance(outer, BaseSearchCV)) for outer in _callers(fitted, private)))
    if found:
        setattr(fitted, _ATTRIBUTE, tuple(found))
    elif hasattr(fitted, _ATTRIBUTE):
        delattr(fitted, _ATTRIBUTE)


def search_around(fitted: Any) -> str | None:
    """The search by cross-validation that fitted it, by its class; None: there was none."""
    return next((name for name, searches in getattr(fitted, _ATTRIBUTE, ()) if searches), None)


def others_around(fitted: Any) -> tuple[str, ...]:
    """Other estimators whose fit it was part of, the innermost first."""
    return tuple(name for name, searches in getattr(fitted, _ATTRIBUTE, ()) if not searches)


def _callers(fitted: Any, private: type) -> Iterator[Any]:
    """The estimators among those that call, from the inside out, but for private ones and those that fit each step once."""
    frame = sys._getframe(1)
    while frame is not None:
        names = frame.f_code.co_varnames
        if frame.f_code.co_argcount and names[0] == "self":
            caller = frame.f_locals.get("self")
            known = caller is fitted or isinstance(caller, private) or type(caller) in _KNOWN
            if isinstance(caller, BaseEstimator) and not known:
                yield caller
        frame = frame.f_back
