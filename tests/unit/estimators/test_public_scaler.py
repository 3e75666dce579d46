"""PublicScaler: an affine map of public ranges, clipped, in scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from private_cases import stated, two_blobs
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.errors import InputError
from lethe.estimators import LogisticRegression, PrivateSearch, PublicScaler
from lethe.estimators.options import EstimatorOptions

TABLE = np.array([[0.0, 10.0, -4.0], [50.0, 20.0, 4.0], [100.0, 40.0, 9.0], [200.0, 0.0, np.nan]])


@pytest.mark.sampled(5)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([PublicScaler(-1.0, 2.0), PublicScaler(-3.0, 3.0), PublicScaler(0.0, 1.0, clip=False)])
def test_it_is_an_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_ranges_become_minus_one_to_one_and_what_is_beyond_is_clipped() -> None:
    scaler = PublicScaler([0.0, 0.0, -8.0], [100.0, 40.0, 8.0])
    expected = np.array([[-1.0, -0.5, -0.5], [0.0, 0.0, 0.5], [1.0, 1.0, 1.0], [1.0, -1.0, np.nan]])
    assert np.array_equal(scaler.fit_transform(TABLE), expected, equal_nan=True)
    open_ended = PublicScaler(scaler.low, scaler.high, clip=False).fit(TABLE)
    assert open_ended.transform(TABLE)[3, 0] == 3.0
    assert np.allclose(open_ended.inverse_transform(open_ended.transform(TABLE)), TABLE, equal_nan=True)
    assert scaler.inverse_transform(expected)[3, 0] == 100.0
    learned = MinMaxScaler((-1, 1), clip=True).fit([[0.0, 0.0, -8.0], [100.0, 40.0, 8.0]])
    assert np.allclose(scaler.transform(TABLE), learned.transform(TABLE), equal_nan=True)
    # Nothing of the records is kept, so it need not be fitted.
    assert np.array_equal(PublicScaler(scaler.low, scaler.high).transform(TABLE), expected, equal_nan=True)
    assert set(vars(scaler)) == {"low", "high", "clip", "n_features_in_"}


@pytest.mark.slow
@given(
    low=st.floats(-1e100, 1e100),
    width=st.floats(1e-200, 1e100),
    entry=st.floats(allow_nan=False, allow_infinity=False),
    single=st.booleans(),
)
def test_entries_are_within_one_whatever_they_are(low: float, width: float, entry: float, single: bool) -> None:
    high = low + width
    if not low < high <= 1e100 or not (high - low) / 2.0 > 0.0:
        return
    with np.errstate(over="ignore"):
        table = np.array([[entry]], dtype=np.float32 if single else np.float64)
    if np.isfinite(table).all():
        assert abs(PublicScaler(low, high).transform(table)[0, 0]) <= 1.0


def test_frames_keep_their_names() -> None:
    frame = pd.DataFrame(TABLE, columns=["age", "pay", "gap"], index=[5, 3, 1, 7])
    scaler = PublicScaler(-10, 100).set_output(transform="pandas").fit(frame)
    scaled = scaler.transform(frame)
    assert list(scaled.columns) == list(scaler.get_feature_names_out()) == ["age", "pay", "gap"]
    assert list(scaled.index) == [5, 3, 1, 7]
    with pytest.raises(ValueError, match="feature names"):
        scaler.transform(frame[["pay", "age", "gap"]])


def test_sparse_tables_stay_sparse_where_zeros_stay_zeros() -> None:
    table = np.array([[0.0, 3.0], [-8.0, 0.0], [1.0, -0.5]])
    symmetric = PublicScaler([-4.0, -1.0], [4.0, 1.0])
    for rows in (sparse.csr_array(table), sparse.csc_array(table), sparse.csr_matrix(table).astype(np.float32)):
        scaled: Any = symmetric.fit_transform(rows)
        assert not isinstance(scaled, np.ndarray)
        assert np.array_equal(scaled.toarray(), symmetric.transform(table))
    with pytest.raises(InputError, match=r"(?s)sparse table; a range that is not symmetric.*from -b to b"):
        PublicScaler([-4.0, 0.0], [4.0, 1.0]).fit(sparse.csr_array(table))


@pytest.mark.parametrize(
    ("low", "high", "clip", "message"),
    [
        (1.0, 1.0, True, "low and high of column 0: got 1 and 1; low must be below high"),
        ([0.0, 2.0, 0.0], 1.0, True, "low and high of column 1"),
        ([0.0, 0.0], 1.0, True, "low = .*3 of them"),
        ("0", 1.0, True, "low = '0'"),
        (None, 1.0, True, "low = None"),
        (0.0, True, True, "high = True"),
        (0.0, np.nan, True, "high = nan"),
        (-np.inf, 0.0, True, "low = -inf|low and high"),
        (0.0, 1e200, True, "within 1e100"),
        (0.0, 5e-324, True, "too narrow"),
        (0.0, 1.0, 1, "clip = 1; it needs True or False"),
    ],
)
def test_what_are_no_ranges_are_refused(low: Any, high: Any, clip: Any, message: str) -> None:
    for call in (PublicScaler(low, high, clip=clip).fit, PublicScaler(low, high, clip=clip).transform):
        with pytest.raises(InputError, match=message):
            call(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"infinity|inf"):
        PublicScaler(0.0, 1.0).fit([[np.inf], [0.0]])


@pytest.mark.slow
def test_it_costs_nothing_alone_and_in_a_search() -> None:
    X, y = two_blobs()
    X = 50.0 + 10.0 * X
    model = LogisticRegression(feature_norm=1.0, options=EstimatorOptions(mechanism="pass_ends", passes=2), epsilon=4.0)
    whole: Any = make_pipeline(PublicScaler(0.0, 120.0), model).fit(X, y)
    assert stated(whole) == whole[-1].statement_
    assert whole.score(X, y) > 0.85
    grid = {"logisticregression__C": [1.0], "publicscaler__clip": [True, False]}
    search = PrivateSearch(whole, grid, tries=2.0).fit(X, y)
    assert stated(make_pipeline(PublicScaler(0.0, 1.0), search)) == search.statement_
