"""Which transformers learn nothing from records, so that fitting them costs no privacy.

The number, the names and the types of columns are public, and a step may keep them. Where a step stops at a record, or warns of it, that
it did not is no more than is known of every estimator here: none fits what it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, OneHotEncoder, OrdinalEncoder, PolynomialFeatures

from lethe.estimators.features.images import RandomConvolutionFeatures
from lethe.estimators.features.record_features import RandomFourierFeatures, RecordNormalizer
from lethe.estimators.features.scattering import ScatteringFeatures
from lethe.estimators.features.whitening import PublicWhitening
from lethe.estimators.preprocessing.public_scaler import PublicScaler


class Lesson(NamedTuple):
    """What a step may have learned: a clause about the step, and how it would learn nothing."""

    what: str
    remedy: str


def learns_nothing(step: object) -> bool:
    """Whether a step, fitted or not, is known to learn nothing. By its type and not that of a subclass, which may do anything."""
    return type(step) in _RULES and lesson_of(step) is None


def lesson_of(step: object) -> Lesson | None:
    """What a step of a known type learns as it is set, or has learned as it was; None: nothing, or its type is not known."""
    rule = _RULES.get(type(step))
    return rule(step) if rule else None


def _function(step: Any) -> Lesson | None:
    """A function of one entry at a time; and no check of an inverse looks at records and warns.

    NumPy's own and SciPy's: one made of a Python function may remember what it saw.
    """
    function: Any = step.func
    known = isinstance(function, np.ufunc) and any(getattr(library, function.__name__, None) is function for library in (np, special))
    one_entry = known and (function.nin, function.nout, function.signature) == (1, 1, None)
    if (function is None or one_entry) and not step.kw_args and step.inverse_func is None:
        return None
    return Lesson(
        what="nothing shows that its function treats every record by itself",
        remedy="give it a ufunc of one argument of NumPy or SciPy, such as numpy.log1p, without kw_args and inverse_func",
    )


def _encoder(step: Any) -> Lesson | None:
    """With given categories fit copies them, in the type of the column; which is dropped, if any, is read off them.

    Rare categories are found by counting records, so they must not be asked for, nor be left over from another fit.
    """
    given = step.categories
    remedy = "give categories=[...], for each column the public list of those that could occur, and no min_frequency or max_categories"
    if not isinstance(given, list | tuple):
        return Lesson(what="it reads its categories off the records", remedy=remedy)
    if step.min_frequency is not None or step.max_categories is not None or hasattr(step, "infrequent_categories_"):
        return Lesson(what="it finds rare categories by counting records", remedy=remedy)
    kept = getattr(step, "categories_", None)
    if kept is None or (len(kept) == len(given) and all(_copied(one, own) for one, own in zip(given, kept, strict=True))):
        return None
    return Lesson(what="its categories are not those that it was given", remedy="fit it again")


def _imputer(step: Any) -> Lesson | None:
    """A constant is kept once a column; without keep_empty_features a column goes where no record has an entry in it.

    An indicator keeps which columns have entries missing.
    """
    remedy = 'take SimpleImputer(strategy="constant", fill_value=..., keep_empty_features=True), its value known without the records'
    if step.strategy != "constant":
        return Lesson(what=f"it learns from the records what to fill in: strategy = {step.strategy!r}", remedy=remedy)
    if step.fill_value is None:
        return Lesson(what="it is given no fill_value", remedy=remedy)
    if not step.keep_empty_features:
        return Lesson(what="it drops columns in which no record has an entry", remedy=remedy)
    if step.add_indicator or getattr(step, "indicator_", None) is not None:
        return Lesson(what="it adds a column where a record has an entry missing", remedy=remedy)
    if all(_same(step.fill_value, kept) for kept in getattr(step, "statistics_", ())):
        return None
    return Lesson(what="what it fills in is not the fill_value that it was given", remedy="fit it again")


def _hasher(step: Any) -> Lesson | None:
    """Words are hashed a text at a time; a function of one's own may remember them."""
    own = [name for name in ("analyzer", "tokenizer", "preprocessor") if callable(getattr(step, name))]
    if not own:
        return None
    return Lesson(what=f"nothing shows that its {own[0]} treats every record by itself", remedy="leave it at scikit-learn's own")


def _copied(given: Any, kept: Any) -> bool:
    """Whether categories are those given, in the type of the column."""
    expected = np.array(given, dtype=kept.dtype)
    return expected.shape == kept.shape and all(_same(one, own) for one, own in zip(expected, kept, strict=True))


def _same(given: Any, kept: Any) -> bool:
    """Whether two entries are equal; what is missing is what is missing."""
    try:
        missing = all(isinstance(entry, float | np.floating) and np.isnan(entry) for entry in (given, kept))
        return bool(given is kept or missing or given == kept)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor different
        return False


FEATURES = (PublicWhitening, RandomConvolutionFeatures, RandomFourierFeatures, RecordNormalizer, ScatteringFeatures)
"""Those of `lethe.features`: each record by itself, by parameters, the number of columns and a public seed; they give dense tables."""

_RULES: Mapping[type, Callable[[Any], Lesson | None] | None] = {
    # Their fit checks parameters and keeps the columns; their transform treats every row by itself.
    Binarizer: None,
    Normalizer: None,
    PolynomialFeatures: None,
    PublicScaler: None,
    **dict.fromkeys(FEATURES),
    FeatureHasher: None,
    HashingVectorizer: _hasher,
    FunctionTransformer: _function,
    OneHotEncoder: _encoder,
    OrdinalEncoder: _encoder,
    SimpleImputer: _imputer,
}
