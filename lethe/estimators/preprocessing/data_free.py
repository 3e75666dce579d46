"""PublicScaler; and which transformers of scikit-learn learn nothing from records, so that fitting them costs no privacy.

`privacy_of` and `PrivateSearch` ask here of every step of a pipeline that has no statement: a step that learned from records without noise
would void the guarantee, and is refused.

The number, the names and the types of columns are public, and a step may keep them. Where a step stops at a record, or warns of it, that
it did not is no more than is known of every estimator here: none fits what it refuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse, special
from sklearn import preprocessing
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.utils import Tags
from sklearn.utils.validation import check_array

from lethe.calculus.domains import require_switch
from lethe.errors import InputError
from lethe.errors.names import ABSENT, answering
from lethe.estimators.features.images import RandomConvolutionFeatures, ScatteringFeatures
from lethe.estimators.features.record_features import PublicWhitening, RandomFourierFeatures, RecordNormalizer
from lethe.estimators.inputs.tables import FLOATS, read_table
from lethe.mechanisms.base import Array
from lethe.mechanisms.tables import ordered_bounds


@answering(ABSENT)
@dataclass(eq=False, repr=False)
class PublicScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Columns mapped from public ranges to [-1, 1]: $x \mapsto \frac{2x - (\mathrm{low} + \mathrm{high})}{\mathrm{high} - \mathrm{low}}$.

    `fit` keeps the number and the names of the columns alone, so `privacy_of` counts it as free, and `PrivateSearch` takes it. That
    rests on the ranges being known without a look at the records: of a form, an instrument, a law. Missing entries stay missing.

    Args:
        low: where a column's range begins, a finite number, or one a column.
        high: where it ends, above low.
        clip: whether an entry beyond its range becomes -1 or 1. Otherwise it makes a long row, and a model that shortens long rows shrinks
            all the other entries of it too. Of d columns rows then have norm at most $\sqrt d$, by construction.
    Attributes: `n_features_in_`, `feature_names_in_`.
    """

    low: Any
    high: Any
    _: KW_ONLY
    clip: bool = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = self.keeps_zeros
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the ranges, and keep the columns, of records, shape (n, d); a CSR table where every range is symmetric about 0."""
        require_switch("clip", self.clip)
        self._ranges(self._rows(X, reset=True).shape[1])
        return self

    def transform(self, X: Any) -> Any:
        """Rows mapped, shape (n, d), a CSR table if they came as one."""
        rows, clips = self._rows(X, reset=False), require_switch("clip", self.clip)
        middle, half = self._ranges(rows.shape[1])
        if not isinstance(rows, np.ndarray):  # sparse: every middle is 0, so zeros stay zeros
            scaled = rows.astype(np.float64)
            entries, width = scaled.data, half[scaled.indices]
        else:
            scaled = entries = rows - middle
            width = half
        if clips:
            np.clip(entries, -width, width, out=entries)  # before a quotient could overflow
        entries /= width
        return scaled

    def inverse_transform(self, X: Any) -> Array:
        """Rows in the units they came in, shape (n, d); what was clipped stays clipped."""
        rows = np.asarray(check_array(X, dtype="float64", ensure_all_finite="allow-nan"))  # pyright: ignore[reportArgumentType]
        middle, half = self._ranges(rows.shape[1])
        return rows * half + middle

    def _rows(self, X: Any, *, reset: bool) -> Any:
        if not self.keeps_zeros and sparse.issparse(X):
            raise InputError(
                "X: got a sparse table; a range that is not symmetric about 0 would leave no zeros.",
                source="the argument X and the parameters low and high",
                remedy="give ranges from -b to b, or a dense table",
            )
        return read_table(
            self, X, reset=reset, accept_sparse="csr" if self.keeps_zeros else False, dtype=FLOATS, ensure_all_finite="allow-nan"
        )

    @property
    def keeps_zeros(self) -> bool:
        """Whether every range is symmetric about 0; False of what are no ranges."""
        try:
            return bool(np.all(np.asarray(self.low, dtype=np.float64) == -np.asarray(self.high, dtype=np.float64)))
        except (TypeError, ValueError):
            return False

    def _ranges(self, columns: int) -> tuple[Array, Array]:
        """The middle and half the width of each, shape (d,)."""
        remedy = "give ranges known without looking at the records, numbers or one a column"
        low, high = ordered_bounds("low", self.low, "high", self.high, columns, remedy=remedy)
        half = (high - low) / 2.0
        if not half.all():
            raise InputError("low and high: a range is too narrow for floating-point numbers.", source="the parameters low and high")
        return (low + high) / 2.0, half


class Lesson(NamedTuple):
    """What a step may have learned: a clause about the step, and how it would learn nothing."""

    what: str
    remedy: str


def learns_nothing(step: object) -> bool:
    """Whether a step, fitted or not, is known to learn nothing. By its type and not that of a subclass, which may do anything."""
    return type(step) in _RULES and lesson_of(step) is None


def lesson_of(step: object) -> Lesson | None:
    """What a step of a known type learns as it is set, or has learned as it was; None: nothing, or its type is not known."""
    rule = _RULES.get(type(step)) or _WRAPPERS.get(type(step), ("", None))[1]
    return rule(step) if rule else None


def wrapped_model(step: object) -> str | None:
    """The attribute with the model that a wrapper has fitted, beside which it learns nothing; None: it is no such wrapper."""
    return _WRAPPERS[type(step)][0] if type(step) in _WRAPPERS and lesson_of(step) is None else None


def _of_one_entry(function: Any) -> bool:
    """Whether it is a ufunc of NumPy or SciPy of one argument: one made of a Python function may remember what it saw."""
    is_library_ufunc = isinstance(function, np.ufunc) and any(
        getattr(library, function.__name__, None) is function for library in (np, special)
    )
    return is_library_ufunc and (function.nin, function.nout, function.signature) == (1, 1, None)


def _function(step: Any) -> Lesson | None:
    """A ufunc; and no check of an inverse warns of records."""
    if (step.func is None or _of_one_entry(step.func)) and not step.kw_args and step.inverse_func is None:
        return None
    return Lesson(
        what="nothing shows that its function treats every record by itself",
        remedy="give it a ufunc of one argument of NumPy or SciPy, such as numpy.log1p, without kw_args and inverse_func",
    )


def _encoder(step: Any) -> Lesson | None:
    """With given categories fit copies them, in the type of the column; rare ones are found by counting records, now or in another fit."""
    categories = step.categories
    remedy = "give categories=[...], for each column the public list of those that could occur, and no min_frequency or max_categories"
    if not isinstance(categories, list | tuple):
        return Lesson(what="it reads its categories off the records", remedy=remedy)
    if step.min_frequency is not None or step.max_categories is not None or hasattr(step, "infrequent_categories_"):
        return Lesson(what="it finds rare categories by counting records", remedy=remedy)
    fitted = getattr(step, "categories_", None)
    if fitted is None or (
        len(fitted) == len(categories)
        and all(_copied(expected, fitted_column) for expected, fitted_column in zip(categories, fitted, strict=True))
    ):
        return None
    return Lesson(what="its categories are not those that it was given", remedy="fit it again")


def _imputer(step: Any) -> Lesson | None:
    """A constant is kept once a column; no column may go where no record has an entry in it, nor be marked as having gaps."""
    remedy = 'take SimpleImputer(strategy="constant", fill_value=..., keep_empty_features=True), its value known without the records'
    if step.strategy != "constant":
        return Lesson(what=f"it learns from the records what to fill in: strategy = {step.strategy!r}", remedy=remedy)
    if step.fill_value is None:
        return Lesson(what="it is given no fill_value", remedy=remedy)
    if not step.keep_empty_features:
        return Lesson(what="it drops columns in which no record has an entry", remedy=remedy)
    if step.add_indicator or getattr(step, "indicator_", None) is not None:
        return Lesson(what="it adds a column where a record has an entry missing", remedy=remedy)
    if all(_same(step.fill_value, statistic) for statistic in getattr(step, "statistics_", ())):
        return None
    return Lesson(what="what it fills in is not the fill_value that it was given", remedy="fit it again")


def _indicator(step: Any) -> Lesson | None:
    """A column each, whether or not a record has an entry missing there."""
    what = "it keeps the columns in which a record has an entry missing"
    return None if step.features == "all" else Lesson(what=what, remedy='take MissingIndicator(features="all")')


def _splines(step: Any) -> Lesson | None:
    """With given knots fit copies them."""
    if isinstance(step.knots, str):
        remedy = "give knots=[...], an array of a row a knot and a column a column, known without the records"
        return Lesson(what=f"it reads its knots off the records: knots = {step.knots!r}", remedy=remedy)
    inner_knots = [spline.t[spline.k : len(spline.t) - spline.k] for spline in getattr(step, "bsplines_", ())]
    if not inner_knots or np.array_equal(np.array(inner_knots).T, np.asarray(step.knots, dtype=np.float64)):
        return None
    return Lesson(what="its knots are not those that it was given", remedy="fit it again")


def _target(step: Any) -> Lesson | None:
    """Two ufuncs, and no transformer, which would be fitted on the targets; a check of the inverse would warn of records."""
    if step.transformer is None and _of_one_entry(step.func) and _of_one_entry(step.inverse_func) and not step.check_inverse:
        return None
    remedy = "give it func and inverse_func, ufuncs of NumPy or SciPy such as numpy.log1p and numpy.expm1, and check_inverse=False"
    return Lesson(what="nothing shows that it transforms every target by itself", remedy=remedy)


def _hasher(step: Any) -> Lesson | None:
    """Words are hashed a text at a time; a function of one's own may remember them."""
    callables = [name for name in ("analyzer", "tokenizer", "preprocessor") if callable(getattr(step, name))]
    if not callables:
        return None
    return Lesson(what=f"nothing shows that its {callables[0]} treats every record by itself", remedy="leave it at scikit-learn's own")


def _copied(categories: Any, fitted: Any) -> bool:
    """Whether categories are those given, in the type of the column."""
    expected = np.array(categories, dtype=fitted.dtype)
    return expected.shape == fitted.shape and all(
        _same(category, fitted_category) for category, fitted_category in zip(expected, fitted, strict=True)
    )


def _same(expected: Any, fitted: Any) -> bool:
    """Whether two entries are equal; what is missing is what is missing."""
    try:
        missing = all(isinstance(entry, float | np.floating) and np.isnan(entry) for entry in (expected, fitted))
        return bool(expected is fitted or missing or expected == fitted)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor different
        return False


FEATURES = (PublicWhitening, RandomConvolutionFeatures, RandomFourierFeatures, RecordNormalizer, ScatteringFeatures)
"""Those of `lethe.features`: each record by itself, by parameters, the number of columns and a public seed; they give dense tables."""

_RULES: Mapping[type, Callable[[Any], Lesson | None] | None] = {
    # Their fit checks parameters and keeps the columns; their transform treats every row by itself.
    preprocessing.Binarizer: None,
    preprocessing.Normalizer: None,
    preprocessing.PolynomialFeatures: None,
    PublicScaler: None,
    **dict.fromkeys(FEATURES),
    FeatureHasher: None,
    HashingVectorizer: _hasher,
    preprocessing.FunctionTransformer: _function,
    preprocessing.OneHotEncoder: _encoder,
    preprocessing.OrdinalEncoder: _encoder,
    SimpleImputer: _imputer,
    MissingIndicator: _indicator,
    preprocessing.SplineTransformer: _splines,
}
# Around a model, which is looked at by itself: where it is kept, and what the wrapper learns.
_WRAPPERS: Mapping[type, tuple[str, Callable[[Any], Lesson | None] | None]] = {
    FixedThresholdClassifier: ("estimator_", None),
    TransformedTargetRegressor: ("regressor_", _target),
}
