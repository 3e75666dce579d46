"""What a fit on a table in blocks costs is reserved before a pass of which anything is released, and stays counted if it breaks off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import pytest
from partitioned_records import COLUMNS, Payments, frame

from lethe.estimators import LogisticRegression, PrivateMean, PrivateStandardScaler, Ridge
from lethe.estimators.options import EstimatorOptions
from lethe.partitions import dask_table


class Broken(Exception):
    """What goes wrong in a pass."""


# Each with the passes that only look: whether the table can be used, and whose its rows are.
FITS: dict[str, tuple[Callable[[Payments, Any], Any], int]] = {
    "norm released": (lambda ledger, table: LogisticRegression(options=EstimatorOptions(passes=2), ledger=ledger).fit(table, "label"), 1),
    "range and norm released": (
        lambda ledger, table: Ridge(options=EstimatorOptions(mechanism="adassp"), ledger=ledger).fit(table, "label"),
        1,
    ),
    "users": (
        lambda ledger, table: LogisticRegression(
            options=EstimatorOptions(passes=2, mechanism="full_batch"), feature_norm=2.0, ledger=ledger
        ).fit(table, "label", users="visits"),
        2,
    ),
    "step": (lambda ledger, table: PrivateStandardScaler(ledger=ledger).fit(table), 1),
    "heavy tails": (lambda ledger, table: PrivateMean(ledger=ledger).fit(table), 1),
}


@pytest.mark.parametrize("name", FITS)
def test_nothing_is_released_that_was_not_reserved_and_a_broken_fit_stays_counted(name: str) -> None:
    fit, looks = FITS[name]
    people = frame()[[*COLUMNS, "label"]].assign(visits=lambda rows: rows.index // 3)

    def fitted(breaks: int) -> list[str]:
        told = Payments()

        def progress(number: int, done: int, blocks: int) -> None:
            if done == blocks:
                told.events.append(f"pass {number}")
            if number == breaks:
                raise Broken

        made = dask_table(dd.from_pandas(people, npartitions=2), workers=1, progress=progress)
        try:
            fit(told, made)
        except Broken:
            told.events.append("broken")
        return told.events

    whole = fitted(0)
    passes = sum(event.startswith("pass") for event in whole)
    looked = [f"pass {number}" for number in range(1, looks + 1)]
    assert whole[: looks + 2] == [*looked, "reserve", "start"]
    assert whole[-1] == "settle"
    assert passes > looks
    for breaks in {*range(1, looks + 2), passes}:
        events = fitted(breaks)
        assert events[-1] == "broken"
        assert not {"settle", "void"} & set(events)
        assert ("start" in events) == (breaks > looks)
