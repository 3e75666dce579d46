"""Steps that are said to learn nothing: with one record changed, all that they keep and give for the others is the same."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import preprocessing
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import FixedThresholdClassifier

from lethe.estimators import PublicScaler
from lethe.estimators.preprocessing.data_free import learns_nothing, wrapped_model
from lethe.features import PublicWhitening, RandomConvolutionFeatures, RandomFourierFeatures, RecordNormalizer, ScatteringFeatures

RECORDS = 30
KNOWN: Any = [["a", "b", "c"], ["x", "y", "z"]]
CODED: Any = [[0.0, 1.0], [0.0, 1.0, 5.0]]
KNOTS: Any = [[-1.0, -2.0, -3.0], [0.0, 0.5, 0.0], [1.0, 1.0, 2.0]]
FILLED: dict[str, Any] = {"strategy": "constant", "fill_value": 0.5, "keep_empty_features": True}


def numbers() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((RECORDS, 3))
    other = table.copy()
    other[0] = [1e6, -3.0, 0.0]
    return table, other


def pictures() -> tuple[Any, Any]:
    images = np.random.default_rng(4).random((RECORDS, 9, 8))
    other = images.copy()
    other[0] = 1e5
    return images, other


def gaps() -> tuple[Any, Any]:
    """Columns in which one record alone has an entry, and in which it alone has none."""
    table = np.random.default_rng(1).standard_normal((RECORDS, 3))
    table[1:, 1] = np.nan
    other = table.copy()
    other[0] = [5.0, np.nan, np.nan]
    return table, other


def sparse_gaps() -> tuple[Any, Any]:
    first, second = (sparse.csc_array(table) for table in gaps())
    return first, second


def categories() -> tuple[Any, Any]:
    """One record has a category that no other has, and then one that was never heard of; of x and y it decides which is seen more often."""
    table = pd.DataFrame({"p": np.resize(["a", "b"], RECORDS), "q": np.resize(["y", "x"], RECORDS)})
    table.loc[0] = ["c", "x"]
    other = table.copy()
    other.loc[0] = ["new", "y"]
    return table, other


def codes() -> tuple[Any, Any]:
    table = np.random.default_rng(3).integers(0, 2, (RECORDS, 2)).astype(float)
    other = table.copy()
    other[0] = [2.0, 9.0]
    return table, other


def words() -> tuple[Any, Any]:
    texts = [f"{place % 3} brown fox" for place in range(RECORDS)]
    return texts, ["a quick quick dog", *texts[1:]]


def counts() -> tuple[Any, Any]:
    rows = [{"fox": 1.0, "dog": float(place)} for place in range(RECORDS)]
    return rows, [{"cat": 7.0}, *rows[1:]]


def differs(step: Any, data: Any) -> bool:
    """Whether anything kept, or given for the records that are the same, is another."""
    kept, given = [], []
    for table in data():
        # Python keeps equal strings as one object or as two; a copy has them as one.
        fitted = pickle.loads(pickle.dumps(step)).fit(table)
        kept.append(pickle.dumps(pickle.loads(pickle.dumps(fitted))))
        rows = fitted.transform(table)
        dense = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
        given.append((type(rows), dense[1:]))
    (one, first), (other, second) = given
    return kept[0] != kept[1] or one is not other or first.tobytes() != second.tobytes()


FREE: list[tuple[Any, Any]] = [
    (preprocessing.Normalizer(), numbers),
    (preprocessing.Binarizer(threshold=0.2), numbers),
    (preprocessing.PolynomialFeatures(3), numbers),
    (PublicScaler(-2.0, 2.0), numbers),
    (PublicScaler([0.0, -1.0, -2.0], 3.0, clip=False), numbers),
    (PublicScaler(-2.0, 2.0), sparse_gaps),
    (PublicScaler(-2.0, 3.0), gaps),
    (PublicWhitening(np.zeros(3), np.diag([1.0, 2.0, 3.0])), numbers),
    (RecordNormalizer(2.0, groups=1), numbers),
    (RandomFourierFeatures(10, gamma=0.1), numbers),
    (ScatteringFeatures(angles=4), pictures),
    (RandomConvolutionFeatures(filters=6, kernel_size=3), pictures),
    (preprocessing.FunctionTransformer(), numbers),
    (preprocessing.FunctionTransformer(np.tanh), numbers),
    (SimpleImputer(**FILLED), gaps),
    (SimpleImputer(**FILLED), sparse_gaps),
    (SimpleImputer(**{**FILLED, "missing_values": "b", "fill_value": "?"}), categories),
    (preprocessing.OneHotEncoder(categories=KNOWN, handle_unknown="ignore"), categories),
    (preprocessing.OneHotEncoder(categories=KNOWN, handle_unknown="infrequent_if_exist", sparse_output=False), categories),
    (preprocessing.OneHotEncoder(categories=CODED, handle_unknown="ignore"), codes),
    (preprocessing.OrdinalEncoder(categories=KNOWN, handle_unknown="use_encoded_value", unknown_value=-1), categories),
    (MissingIndicator(features="all"), gaps),
    (preprocessing.SplineTransformer(knots=KNOTS), numbers),
    (preprocessing.SplineTransformer(knots=KNOTS, degree=2, extrapolation="periodic"), numbers),
    (HashingVectorizer(n_features=32), words),
    (FeatureHasher(n_features=32), counts),
]

LEARN: list[tuple[Any, Any]] = [
    (SimpleImputer(), gaps),
    (SimpleImputer(strategy="median"), gaps),
    (SimpleImputer(**{**FILLED, "keep_empty_features": False}), gaps),
    (SimpleImputer(**FILLED, add_indicator=True), gaps),
    (preprocessing.OneHotEncoder(handle_unknown="ignore"), categories),
    (preprocessing.OneHotEncoder(categories=KNOWN, handle_unknown="ignore", min_frequency=1), categories),
    (preprocessing.OneHotEncoder(categories=KNOWN, handle_unknown="ignore", max_categories=2), categories),
    (preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), categories),
    (MissingIndicator(), gaps),
    (preprocessing.SplineTransformer(), numbers),
    (preprocessing.FunctionTransformer(preprocessing.MinMaxScaler().fit_transform), numbers),
    (preprocessing.FunctionTransformer(np.cumsum), numbers),
    (preprocessing.StandardScaler(), numbers),
    (preprocessing.MinMaxScaler(), numbers),
    (PCA(1), numbers),
    (preprocessing.KBinsDiscretizer(), numbers),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("step", "data"), FREE)
def test_another_record_changes_nothing_of_a_step_that_learns_nothing(step: Any, data: Any) -> None:
    assert learns_nothing(step)
    assert learns_nothing(step.fit(data()[0]))
    assert not differs(step, data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("step", "data"), LEARN)
def test_a_step_that_another_record_changes_is_not_among_them(step: Any, data: Any) -> None:
    """And the comparison above finds it."""
    assert differs(step, data)
    assert not learns_nothing(step)
    assert not learns_nothing(preprocessing.SplineTransformer(knots=KNOTS).fit(numbers()[0]).set_params(knots=KNOTS[:2]))  # of another fit


class _Normalizer(preprocessing.Normalizer):
    """A subclass may learn."""


@pytest.mark.parametrize(
    "step",
    [
        _Normalizer(),
        preprocessing.FunctionTransformer(lambda rows: rows),
        preprocessing.FunctionTransformer(np.frompyfunc(abs, 1, 1)),
        preprocessing.FunctionTransformer(np.log, inverse_func=np.exp),
        preprocessing.FunctionTransformer(np.log, kw_args={"where": True}),
        HashingVectorizer(tokenizer=str.split),
        FrozenEstimator(preprocessing.Normalizer()),
        SimpleImputer(strategy="constant", keep_empty_features=True),
        "passthrough",
    ],
)
def test_what_may_do_anything_is_not_among_them(step: Any) -> None:
    assert not learns_nothing(step)
    assert not learns_nothing(preprocessing.SplineTransformer(knots=KNOTS).fit(numbers()[0]).set_params(knots=KNOTS[:2]))  # of another fit


@pytest.mark.parametrize("changed", [{}, {"func": abs}, {"inverse_func": None}, {"check_inverse": True}, {"transformer": object()}])
def test_a_wrapper_is_no_free_step_but_is_known(changed: dict[str, Any]) -> None:
    step = TransformedTargetRegressor(**{"func": np.log1p, "inverse_func": np.expm1, "check_inverse": False, **changed})
    assert (wrapped_model(step), learns_nothing(step)) == (None if changed else "regressor_", False)
    assert wrapped_model(FixedThresholdClassifier(LinearRegression())) == "estimator_"
