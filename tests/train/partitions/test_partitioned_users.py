"""Weights and users of tables in blocks: columns of the table; rows of one user lie in several blocks, and count as in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from doors import fit_linear
from partitioned_records import COLUMNS, SETTINGS, frame, in_blocks, written
from sklearn.pipeline import Pipeline

import lethe
from lethe.errors import InputError, LetheError
from lethe.estimators import Lasso, LogisticRegression, PrivateMean, PrivateSearch, PrivateStandardScaler, Ridge
from lethe.estimators.options import EstimatorOptions
from lethe.estimators.partitioned import records
from lethe.estimators.partitioned.records import BlockRecords, PreparedRows, users_in_blocks
from lethe.estimators.partitioned.tables import as_numbers, nothing_else, standardised, transformed
from lethe.partitions import dask_table
from lethe.partitions.table import chosen_records
from lethe.run.losses import Logistic

BOUNDED: dict[str, Any] = {"feature_norm": 2.0, **SETTINGS}


def table(goal: str, *, texts: bool = False) -> pd.DataFrame:
    """Five rows of each of 300 users, far from each other, and weights up to 4."""
    rng = np.random.default_rng(3)
    users = rng.permutation(np.repeat(np.arange(300), 5)) * 7 - 400
    people = frame()[[*COLUMNS, goal]].assign(person=users, weight_of=np.where(rng.random(1500) < 0.1, 0.0, 4.0 * rng.random(1500)))
    return people.assign(person=[f"user {user}" for user in users]) if texts else people


FITS: dict[str, tuple[Callable[[], Any], str, dict[str, str]]] = {
    "users": (
        lambda: LogisticRegression(options=EstimatorOptions(mechanism="full_batch", passes=3), **BOUNDED),
        "label",
        {"users": "person"},
    ),
    "weights": (
        lambda: LogisticRegression(options=EstimatorOptions(mechanism="full_batch", passes=3, max_weight=4.0), **BOUNDED),
        "label",
        {"sample_weight": "weight_of"},
    ),
    "users and weights": (
        lambda: Ridge(target_bound=5.0, options=EstimatorOptions(passes=3, batches="full", max_weight=4.0), **BOUNDED),
        "amount",
        {"users": "person", "sample_weight": "weight_of"},
    ),
    "users, sparse": (
        lambda: Lasso(alpha=0.01, target_bound=5.0, options=EstimatorOptions(passes=2, mechanism="full_batch"), **BOUNDED),
        "amount",
        {"users": "person"},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_users_and_weights_of_blocks_are_those_of_memory(name: str, tmp_path: Path) -> None:
    make, goal, beside_them = FITS[name]
    people = table(goal)
    given = {argument: people[column] for argument, column in beside_them.items()}
    unused = [column for column in ("person", "weight_of") if column not in beside_them.values()]
    expected = make().fit(people[list(COLUMNS)], people[goal], **given)
    used = people.drop(columns=unused)
    for blocks in (written(tmp_path, a=used[:700], b=used[700:]), dd.from_pandas(used, npartitions=1)):
        found = make().fit(blocks, goal, **beside_them)
        np.testing.assert_allclose(found.coef_, expected.coef_, rtol=0.0, atol=1e-9)
        np.testing.assert_allclose(found.intercept_, expected.intercept_, rtol=0.0, atol=1e-9)
        assert (found.statement_.guarantee, found.statement_.findings) == (expected.statement_.guarantee, expected.statement_.findings)
        assert (found.statement_.unit, found.n_samples_seen_) == (expected.statement_.unit, expected.n_samples_seen_)
        assert list(found.feature_names_in_) == list(COLUMNS)


def test_all_rows_of_a_user_together_move_the_sum_by_no_more_than_one_record() -> None:
    """Rows of the first user pull in one direction with all their might; without the shares they would by five times the bound."""
    people = table("label", texts=True)
    hers = people["person"] == people["person"][0]
    people.loc[hers, list(COLUMNS)] = np.float32(100.0)
    people.loc[hers, "label"] = 1

    def gradient(rows: pd.DataFrame) -> tuple[Any, int]:
        made = dd.from_pandas(rows.drop(columns="weight_of"), npartitions=4, sort=False)
        blocks, _ = dask_table(made, workers=1).with_target("label").with_beside(users="person").examined(nothing_else)
        loss = Logistic(feature_norm=1.0)
        prepared = PreparedRows(targets=as_numbers, loss=loss, feature_norm=1.0, intercept=False, users=users_in_blocks(blocks, 1.0))
        found = BlockRecords(blocks, prepared)
        with pytest.raises(LetheError, match="a batch of some users"):
            found.gradient_sum(np.zeros((5, 1)), slice(0, 100))
        return found.gradient_sum(np.zeros((5, 1)), slice(0, len(found))), len(found)

    (whole, users), (without, fewer) = gradient(people), gradient(people[~hers])
    assert (users, fewer) == (300, 299)
    moved = float(np.linalg.norm(whole - without))
    assert 0.999 * 0.5 < moved <= 0.5  # the slope of the logistic loss at 0, on rows of norm 1


def ridge(people: pd.DataFrame, *, users: Any = None, sample_weight: Any = None, **parameters: Any) -> Any:
    model = Ridge(**{"target_bound": 5.0, **BOUNDED, **parameters})
    return model.fit(dd.from_pandas(people, npartitions=2), "amount", users=users, sample_weight=sample_weight)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an array of ids": (
        lambda people: ridge(people, users=people["person"]),
        "users: got Series; it needs names of columns, and the table has 'age'",
    ),
    "no such column": (
        lambda people: ridge(people, sample_weight="w"),
        "sample_weight: got 'w'; it needs names of columns, and the table has 'age'",
    ),
    "one column twice": (lambda people: ridge(people, users="amount"), "y, sample_weight, users: got .* each needs a column of its own"),
    "arrays": (
        lambda people: LogisticRegression(**BOUNDED).fit(in_blocks(2, "label"), None, users="person"),
        "users: got person; it needs a column's name",
    ),
    "a choice of rows": (
        lambda people: ridge(people, users="person", options=EstimatorOptions(rows_per_user=2)),
        "rows_per_user: rows of one user may lie in several blocks",
    ),
    "a bound that would be released": (
        lambda people: ridge(people, users="person", feature_norm="auto"),
        'feature_norm = "auto": that is released from single rows',
    ),
    "other batches": (
        lambda people: ridge(people, users="person", options=EstimatorOptions(mechanism="cyclic")),
        "of a table in blocks only full batches count users",
    ),
    "a weight above the bound": (
        lambda people: ridge(people, sample_weight="weight_of"),
        r"partition 0, column 'sample_weight': row \d+ holds [\d.]+; it needs a number from 0 to max_weight = 1",
    ),
    "a weight that is NaN": (
        lambda people: ridge(people.assign(weight_of=np.nan), sample_weight="weight_of"),
        "column 'sample_weight': row 0 holds nan",
    ),
    "ids that are not whole": (
        lambda people: ridge(people.assign(person=people["person"] + 0.5), users="person"),
        "partition 0, column 'users': got ids of the types float",
    ),
    "one user": (lambda people: ridge(people.assign(person=1), users="person"), "users: there are 1; a table in blocks takes 2 to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_weights_and_users_that_cannot_be_used_are_refused_by_name(case: str) -> None:
    attempt, words = REFUSED[case]
    with pytest.raises((InputError, LetheError), match=words):
        attempt(table("amount"))


def named(**columns: str) -> Any:
    """A table whose weights or users were named where it was made."""
    return dask_table(dd.from_pandas(table("label"), npartitions=2), workers=1).with_target("label").with_beside(**columns)


RUN = lethe.Run(
    records=1500,
    batches=lethe.batches.Full(),
    steps=1,
    step_size=0.5,
    noise_multiplier=1.0,
    loss=Logistic(feature_norm=1.0),
    release="last",
    neighbours="replace_one",
)
TAKES_NONE: dict[str, Callable[[Any], Any]] = {
    "search": lambda given: PrivateSearch(LogisticRegression(feature_norm=2.0), {"C": [1.0]}, tries=2.0, **SETTINGS).fit(given, None),
    "step": lambda given: PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS).fit(given),
    "transform": lambda given: PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS).fit(frame()[["age"]]).transform(given),
    "mean": lambda given: PrivateMean(
        options=EstimatorOptions(mechanism="multi_pass", passes=2), centre=[0.0] * 5, moment=3.0, **SETTINGS
    ).fit(given),
    "fit_linear": lambda given: fit_linear(RUN, given),
}


@pytest.mark.parametrize("fit", TAKES_NONE)
def test_weights_and_users_of_a_table_are_not_left_out_in_silence(fit: str) -> None:
    """Behind a search, or a step, weights scaled what a record does without bound."""
    for column, what in (("weights", "weights"), ("users", "users")):
        with pytest.raises(InputError, match=f"X: the table in blocks has {what}; only fit of the linear models"):
            TAKES_NONE[fit](named(**{column: "weight_of"}))


def test_weights_stay_known_where_records_are_chosen_or_transformed() -> None:
    given = named(weights="weight_of", users="person")
    found, _ = given.examined(nothing_else)
    same = partial(standardised, low=np.zeros(5), high=np.ones(5), mean=np.zeros(5), scale=np.ones(5))
    for made in (chosen_records(found, np.arange(1500) % 2 == 0), transformed(given, same, COLUMNS)):
        assert made.read.roles >= {"weights", "users"}
        with pytest.raises(InputError, match="it needs a number from 0 to max_weight = 1"):
            users_in_blocks(made.examined(nothing_else)[0], 1.0)


@pytest.mark.parametrize(("kind", "bound"), [(np.float32, 0.1), (np.float16, 0.3)])
def test_a_weight_is_compared_with_its_bound_as_it_is_divided_by_it(kind: Any, bound: float) -> None:
    """Of a narrower type NumPy rounds the bound to it: .3 in half precision is above .3 by 1.6e-4 of it."""
    people = table("label")[["age", "label"]].assign(weight_of=np.full(1500, bound, kind))
    found, _ = (
        dask_table(dd.from_pandas(people, npartitions=2)).with_target("label").with_beside(weights="weight_of").examined(nothing_else)
    )
    with pytest.raises(InputError, match=r"row 0 holds 0\.[13]000[\d]+; it needs a number from 0 to max_weight"):
        users_in_blocks(found, bound)


def test_what_a_table_was_told_of_its_columns_stands() -> None:
    given = named(weights="weight_of").with_beside(users="person")
    assert (given.read.roles, given.columns) == ({"weights", "users", "targets"}, COLUMNS)
    with pytest.raises(InputError, match="sample_weight: got 'age'; the table has 'weight_of' already"):
        given.with_beside(weights="age")
    unnamed = dask_table(dd.from_pandas(table("label"), npartitions=2)).with_beside(weights="label")
    with pytest.raises(InputError, match="each needs a column of its own"):
        unnamed.with_target("label")


def test_more_users_than_go_to_every_worker_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_USERS", 299)
    with pytest.raises(InputError, match="users: there are 300; a table in blocks takes 2 to 299"):
        ridge(table("amount"), users="person")


def test_what_a_step_of_a_pipeline_made_has_no_users() -> None:
    steps = Pipeline([("scale", PrivateStandardScaler(bounds=(-4.0, 4.0), **SETTINGS)), ("model", LogisticRegression(**BOUNDED))])
    numbered = table("label").drop(columns="weight_of")
    with pytest.raises(InputError, match="users: got person; it needs a column's name"):
        steps.fit(dd.from_pandas(numbered, npartitions=2), "label", model__users="person")


def test_a_user_that_changes_between_passes_is_noticed() -> None:
    people = table("label").drop(columns="weight_of")
    told: list[int] = []

    def changed(part: pd.DataFrame) -> pd.DataFrame:
        told.append(1)
        return part.assign(person=part["person"].where(np.arange(len(part)) > 0, len(told)))

    made = dd.from_pandas(people, npartitions=1).map_partitions(changed, meta=people[:0])
    told.clear()
    with pytest.raises(LetheError, match="partition 0: holds other records"):
        Ridge(target_bound=5.0, **BOUNDED).fit(made, "label", users="person")


def test_the_certificate_speaks_of_users() -> None:
    model = LogisticRegression(options=EstimatorOptions(mechanism="full_batch", passes=2), feature_norm=2.0, epsilon=4.0)
    model.fit(dd.from_pandas(table("label").drop(columns="weight_of"), npartitions=3), "label", users="person")
    assert isinstance(model.certificate_, lethe.Certificate)
    assert (model.certificate_.run.unit, model.certificate_.run.records) == ("user", 300)
    assert "300 users; of each all rows count by the mean of their losses" in model.privacy_report_
