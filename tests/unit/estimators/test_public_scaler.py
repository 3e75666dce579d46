"""PublicScaler: an affine map of public ranges, clipped, in scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from lethe.errors import InputError
from lethe.estimators import PublicScaler

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


def test_sparse_tables_stay_sparse_where_zeros_stay_zeros() -> None:
    table = np.array([[0.0, 3.0], [-8.0, 0.0], [1.0, -0.5]])
    symmetric = PublicScaler([-4.0, -1.0], [4.0, 1.0])
    for rows in (sparse.csr_array(table), sparse.csc_array(table), sparse.csr_matrix(table).astype(np.float32)):
        scaled: Any = symmetric.fit_transform(rows)
        assert not isinstance(scaled, np.ndarray)
        assert np.array_equal(scaled.toarray(), symmetric.transform(table))
    with pytest.raises(InputError, match=r"(?s)sparse table; a range that is not symmetric.*from -b to b"):
        PublicScaler([-4.0, 0.0], [4.0, 1.0]).fit(sparse.csr_array(table))
