"""One record that is enormous, or that stores a column twice, must not show: its norm is bounded, and so must be what it does."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from lethe.estimators import LogisticRegression
from lethe.estimators.inputs.records import Records
from lethe.estimators.inputs.tables import LARGEST_ENTRY, readable
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import Logistic

HUGE = [[1.7e308, -1.7e308], [1.7e308, 1.7e308], [1e160, -1e155], [1e308, 0.0]]
SEEDED = {"random_state": 0, "seed_noise": True, "delta": 1e-5}


def table_with(last: list[float], records: int = 200) -> np.ndarray:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (records, 2))
    rows[-1] = last
    return rows


def stored_twice(last: list[tuple[int, float]], records: int = 1000) -> Any:
    """Rows (1, 0), and a last one given by its entries; the table believes that every column is stored once."""
    columns, entries = zip(*last, strict=True) if last else ((), ())
    data, places = np.array([1.0] * (records - 1) + list(entries)), np.array([0] * (records - 1) + list(columns))
    table = sparse.csr_array((data, places, np.array([*range(records), records - 1 + len(last)])), shape=(records, 2))
    table.has_canonical_format = True
    return table


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("last", HUGE)
def test_huge_rows_keep_their_direction_and_the_others_their_entries(make: Any, last: list[float]) -> None:
    rows = table_with(last)
    found = readable(make(rows))
    dense = found if isinstance(found, np.ndarray) else found.toarray()
    np.testing.assert_array_equal(dense[:-1], rows[:-1])
    assert np.abs(dense[-1]).max() == pytest.approx(LARGEST_ENTRY)
    np.testing.assert_allclose(dense[-1] / LARGEST_ENTRY, rows[-1] / np.abs(rows[-1]).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_others_are_not_copied(make: Any, dtype: type) -> None:
    table = make(table_with([1e30, 0.0]).astype(dtype))
    found = readable(table)
    assert found is table if isinstance(table, np.ndarray) else np.shares_memory(found.data, table.data)


@pytest.mark.parametrize(
    ("last", "sums"),
    [
        ([(0, 1e300), (0, -1e300)], [0.0, 0.0]),
        ([(0, 1e300), (1, 0.5), (0, -1e300)], [0.0, 0.5]),
        ([(1, 1.7e308), (1, 1.7e308)], [0.0, LARGEST_ENTRY]),
        ([(0, 0.25), (0, 0.25)], [0.5, 0.0]),
    ],
)
def test_columns_stored_twice_are_added_up_first(last: list[tuple[int, float]], sums: list[float]) -> None:
    """A stale mark does not help, and the caller's table is left alone."""
    table = stored_twice(last)
    before = table.data.copy()
    np.testing.assert_allclose(readable(table).toarray()[-1], sums)
    np.testing.assert_array_equal(table.data, before)
    nothing, one = (
        Records(readable(each), np.ones(1000), loss=Logistic(feature_norm=1.0), feature_norm=1.0, intercept=False)
        for each in (stored_twice([]), table)
    )
    weights = np.zeros((2, 1))
    moved = one.gradient_sum(weights, slice(0, 1000)) - nothing.gradient_sum(weights, slice(0, 1000))
    assert np.linalg.norm(moved) <= 1.0


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["cyclic", "pass_ends", "poisson", "full_batch", "objective_perturbation"])
@pytest.mark.parametrize("last", HUGE[:2])
def test_a_fit_does_not_tell_that_a_record_is_huge(mechanism: str, last: list[float]) -> None:
    rows = table_with(last)
    labels = (rows[:, 0] > 0).astype(int)
    model = LogisticRegression(**SEEDED, options=EstimatorOptions(mechanism=mechanism), feature_norm=1.0, classes=[0, 1], C=1e3).fit(
        rows, labels
    )
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.decision_function(rows)).all()
    np.testing.assert_allclose(
        model.coef_,
        LogisticRegression(**SEEDED, options=EstimatorOptions(mechanism=mechanism), feature_norm=1.0, classes=[0, 1], C=1e3)
        .fit(np.where(np.abs(rows) > 2.0, np.sign(rows) * 1e100 * np.abs(last / np.max(np.abs(last))), rows), labels)
        .coef_,
        rtol=1e-9,
    )
