"""Estimators with a user as the unit: the mean over its rows, bounded as one row is, and stated by users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lethe
from lethe.certificates.statement import Statement
from lethe.estimators import HuberRegressor, LinearSVC, LogisticRegression, Ridge, SoftmaxRegression, privacy_of
from lethe.estimators.inputs.records import Records, UserRecords, UserRows, row_norms, rows_of_users
from lethe.estimators.options import EstimatorOptions
from lethe.run.losses import Logistic

RANDOM = np.random.default_rng(0)
ROWS = 600
TABLE = RANDOM.normal(size=(ROWS, 3)) / 3
LABELS = (TABLE[:, 0] > 0).astype(int)
IDS = RANDOM.integers(200, size=ROWS)
PUBLIC: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-4, "feature_norm": 1.0}


def _records(users: UserRows, table: Any = TABLE, labels: Any = LABELS, weights: Any = None, order: Any = None) -> UserRecords:
    known: dict[str, Any] = {"loss": Logistic(feature_norm=1.0), "feature_norm": 1.0, "intercept": True, "norms": row_norms(table)}
    return UserRecords(users, table, labels * 1.0, weights=weights, order=order, **known)


def _rows(most: int | None = None, ids: Any = IDS) -> UserRows:
    return rows_of_users(ids, count=len(ids), most=most, generator=np.random.default_rng(1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("most", [None, 2])
def test_a_users_gradient_is_the_mean_of_its_rows(most: int | None, weighted: bool) -> None:
    users = _rows(most)
    weights = np.linspace(0.1, 1.0, ROWS) if weighted else None
    order = np.random.default_rng(3).permutation(users.users)
    records = _records(users, weights=weights, order=order)
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
    users = _rows(ids=np.array([1] * 100 + [2]))
    records = _records(users, table, np.ones(101))
    bound = Logistic(feature_norm=1.0).on_rows(np.sqrt(1.09)).row_gradient_bound
    weights = np.array([[-40.0], [-40.0], [-40.0], [0.0]])
    longest = 0.0
    for sign in (-1.0, 1.0):
        length = float(np.linalg.norm(records.gradient_sum(sign * weights, np.array([0]))))
        assert length <= bound
        longest = max(longest, length)
    assert longest > 0.95 * bound


def test_rows_of_a_user_are_chosen_with_equal_chance() -> None:
    ids, seen = np.array([7, 8, 7, 7, 7]), np.zeros(5)
    generator = np.random.default_rng(0)
    for _ in range(2000):
        users = rows_of_users(ids, count=5, most=2, generator=generator)
        assert users.starts.tolist() == [0, 2, 3]
        seen[users.rows] += 1
    assert seen[1] == 2000
    assert np.all(np.abs(seen[[0, 2, 3, 4]] - 1000) < 5 * np.sqrt(500))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(**PUBLIC, classes=[0, 1], options=EstimatorOptions(rows_per_user=2)),
        SoftmaxRegression(**PUBLIC, classes=[0, 1]),
        LinearSVC(**PUBLIC, classes=[0, 1]),
        Ridge(**PUBLIC, target_bound=1.0, options=EstimatorOptions(mechanism="cyclic")),
        HuberRegressor(**PUBLIC, target_bound=1.0),
    ],
)
def test_what_is_stated_is_about_users(model: Any, tmp_path: Path) -> None:
    model.fit(TABLE, LABELS, users=IDS)
    people = len(np.unique(IDS))
    assert model.n_samples_seen_ == people
    assert (model.run_.unit, model.run_.records) == ("user", people)
    stated = model.statement_
    assert (stated.unit, stated.records) == ("user", people)
    assert any(finding.name == "users" and finding.evidence == "declared" for finding in stated.findings)
    assert f"for one user's contribution set to zero; the number of users, {people}, is public" in model.privacy_report_
    assert "zero out one user" in stated.explain()
    assert f"{people} users" in model._repr_html_()
    stated.save(tmp_path / "statement.json")
    again = Statement.load(tmp_path / "statement.json")
    assert again.unit == "user"
    assert lethe.verify(again).follows.yes
    assert privacy_of(model).unit == "user"
    certificate = model.certificate_
    assert certificate.run.unit == "user"
    assert certificate.seal.holds
    assert certificate.epsilon <= 2.0
    assert lethe.verify(certificate).follows.yes
    assert lethe.total([stated], 1e-4).unit == "user"
