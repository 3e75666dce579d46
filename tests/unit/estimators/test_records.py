"""Records as training reads them: gradients, bounds that are reached and not passed, enormous and doubled entries, rows of users."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from lethe.estimators.choice.risk import cut_losses
from lethe.estimators.inputs.facts import CONSTANT, PublicFacts
from lethe.estimators.inputs.records import Records, UserRecords, UserRows, row_norms, rows_of_users
from lethe.estimators.inputs.tables import LARGEST_ENTRY, bounded_weights, readable
from lethe.run.losses import LeastSquares, Logistic, OneVersusRest, SmoothedHinge, Softmax
from lethe.run.losses.linear import LinearLoss


@pytest.mark.parametrize("intercept", [True, False])
def test_gradients_of_records_are_those_of_scaled_rows(intercept: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 4)) * rng.lognormal(sigma=2.0, size=(50, 1)), rng.integers(3, size=50).astype(float)
    order, weights = rng.permutation(50), rng.random(50)
    records = Records(X, y, loss=Softmax(feature_norm=1.0, classes=3), feature_norm=1.5, intercept=intercept, weights=weights, order=order)
    W = rng.standard_normal((4 + intercept, 3))
    rows = X / np.maximum(1.5, np.linalg.norm(X, axis=1))[:, None]
    if intercept:
        rows = np.hstack([rows, np.full((50, 1), CONSTANT)])
    loss = Softmax(feature_norm=1.0, classes=3)
    for batch in (slice(0, 50), slice(10, 30), np.array([3, 9, 20]), np.array([], dtype=np.intp)):
        places = order[batch]
        wanted = rows[places].T @ (weights[places, None] * loss.slopes(rows[places] @ W, y[places]))
        np.testing.assert_allclose(records.gradient_sum(W, batch), wanted, atol=1e-12)


HUGE = [[1.7e308, -1.7e308], [1.7e308, 1.7e308], [1e160, -1e155], [1e308, 0.0]]


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


RANDOM = np.random.default_rng(0)
ROWS = 600
TABLE = RANDOM.normal(size=(ROWS, 3)) / 3
LABELS = (TABLE[:, 0] > 0).astype(int)
IDS = RANDOM.integers(200, size=ROWS)


def user_records(users: UserRows, table: Any = TABLE, labels: Any = LABELS, weights: Any = None, order: Any = None) -> UserRecords:
    known: dict[str, Any] = {"loss": Logistic(feature_norm=1.0), "feature_norm": 1.0, "intercept": True, "norms": row_norms(table)}
    return UserRecords(users, table, labels * 1.0, weights=weights, order=order, **known)


def rows_of_each(most: int | None = None, ids: Any = IDS) -> UserRows:
    return rows_of_users(ids, count=len(ids), rows_per_user=most, generator=np.random.default_rng(1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most", [None, 2])
def test_a_users_gradient_is_the_mean_of_its_rows(most: int | None, weighted: bool) -> None:
    users = rows_of_each(most)
    weights = np.linspace(0.1, 1.0, ROWS) if weighted else None
    order = np.random.default_rng(3).permutation(users.users)
    records = user_records(users, weights=weights, order=order)
    known: dict[str, Any] = {"loss": Logistic(feature_norm=1.0), "feature_norm": 1.0, "intercept": True}
    plain = Records(TABLE, LABELS * 1.0, weights=weights, **known)
    parameters = np.random.default_rng(2).normal(size=(4, 1))
    names = np.unique(IDS)
    batch = np.array([5, 0, 17])
    expected = np.zeros((4, 1))
    for place in batch:
        mine = users.rows[users.starts[order[place]] : users.starts[order[place] + 1]]
        assert np.all(IDS[mine] == names[order[place]])
        assert len(mine) == min(most or ROWS, int((names[order[place]] == IDS).sum()))
        expected += sum(plain.gradient_sum(parameters, np.array([row])) for row in mine) / len(mine)
    np.testing.assert_allclose(records.gradient_sum(parameters, batch), expected, rtol=1e-9)
    whole = sum(records.gradient_sum(parameters, np.array([user])) for user in range(users.users))
    np.testing.assert_allclose(records.gradient_sum(parameters, slice(0, users.users)), whole, rtol=1e-9)
    assert len(records) == users.users


def test_a_users_gradient_is_no_longer_than_one_rows_bound() -> None:
    """100 rows, huge or alike: the mean is bounded by G of one row, and one row attains it, nearly."""
    table = np.concatenate([1e9 * np.ones((100, 3)), TABLE[:1]])
    users = rows_of_each(ids=np.array([1] * 100 + [2]))
    records = user_records(users, table, np.ones(101))
    bound = Logistic(feature_norm=1.0).on_rows(np.sqrt(1.09)).row_gradient_bound
    weights = np.array([[-40.0], [-40.0], [-40.0], [0.0]])
    longest = 0.0
    for sign in (-1.0, 1.0):
        length = float(np.linalg.norm(records.gradient_sum(sign * weights, np.array([0]))))
        assert length <= bound
        longest = max(longest, length)
    assert longest > 0.95 * bound


def test_a_weight_at_its_bound_counts_one() -> None:
    weights = bounded_weights([0.0, 0.5, 2.0], count=3, max_weight=2.0)
    assert weights is not None
    assert weights.tolist() == [0.0, 0.25, 1.0]


def test_rows_of_a_user_are_chosen_with_equal_chance() -> None:
    ids, seen = np.array([7, 8, 7, 7, 7]), np.zeros(5)
    generator = np.random.default_rng(0)
    for _ in range(2000):
        users = rows_of_users(ids, count=5, rows_per_user=2, generator=generator)
        assert users.starts.tolist() == [0, 2, 3]
        seen[users.rows] += 1
    assert seen[1] == 2000
    assert np.all(np.abs(seen[[0, 2, 3, 4]] - 1000) < 5 * np.sqrt(500))


FACTS = (
    PublicFacts(records=100, columns=4, loss=Logistic(feature_norm=1.0)),
    PublicFacts(records=100, columns=4, loss=Softmax(feature_norm=1.0, classes=3)),
    PublicFacts(records=100, columns=4, loss=LeastSquares(feature_norm=1.0, residual_bound=2.0), target_bound=2.0),
    PublicFacts(records=100, columns=4, loss=Softmax(feature_norm=1.0, classes=3), intercept=False),
    PublicFacts(records=100, columns=4, loss=SmoothedHinge(feature_norm=1.0, width=0.5)),
    PublicFacts(records=100, columns=4, loss=OneVersusRest(feature_norm=1.0, classes=3, width=0.5)),
)
CUT = [one for facts in FACTS for one, _ in cut_losses(facts)]


def thirty_records(facts: PublicFacts, rng: np.random.Generator) -> Records:
    rows = rng.standard_normal((30, 4)) * rng.lognormal(sigma=3.0, size=(30, 1))
    targets = (
        rng.uniform(-2, 2, 30) if isinstance(facts.loss, LeastSquares) else rng.integers(max(facts.loss.outputs, 2), size=30).astype(float)
    )
    return Records(rows, targets, loss=facts.loss, feature_norm=1.5, intercept=facts.intercept)


@pytest.mark.sampled(3)
@given(seed=st.integers(0, 10**6), size=st.floats(0.01, 1000.0))
@pytest.mark.parametrize("facts", CUT, ids=lambda facts: repr(facts.loss))
def test_no_record_has_a_longer_gradient_than_the_facts_say(facts: PublicFacts, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    records = thirty_records(facts, rng)
    weights = size * rng.standard_normal((facts.rows, facts.loss.outputs))
    lengths = [np.linalg.norm(records.gradient_sum(weights, slice(place, place + 1))) for place in range(30)]
    assert max(lengths) <= facts.gradient_bound
    assert np.linalg.norm(records.dense(), axis=1).max() <= facts.norm


def test_the_bound_is_reached_with_the_constant() -> None:
    facts = cut_losses(FACTS[0])[1][0]
    records = Records(np.array([[1e6, 0.0]]), np.ones(1), loss=facts.loss, feature_norm=1.0, intercept=True)
    found = records.gradient_sum(np.array([[-50.0], [0.0], [0.0]]), slice(0, 1))
    assert np.linalg.norm(found) == pytest.approx(facts.gradient_bound, rel=1e-12)
    assert found[-1, 0] / found[0, 0] == pytest.approx(CONSTANT)


@pytest.mark.parametrize("loss", [SmoothedHinge(feature_norm=1.0, width=0.5), LeastSquares(feature_norm=1.0, residual_bound=1.0)])
def test_a_loss_that_was_asked_for_is_not_cut(loss: LinearLoss) -> None:
    """A hinge, and a Huber loss whose bound is well inside that of the targets."""
    facts = PublicFacts(records=100, columns=4, loss=loss, target_bound=5.0 if isinstance(loss, LeastSquares) else None)
    assert cut_losses(facts) == [(facts, 0.0)]
