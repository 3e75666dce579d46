"""What a fit on a table in blocks costs is reserved before a pass of which anything is released, and stays counted if it breaks off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import pytest
from partitioned_records import COLUMNS, frame

from lethe.estimators import LogisticRegression, PrivateMean, PrivateStandardScaler, Ridge
from lethe.estimators.options import EstimatorOptions
from lethe.partitions import dask_table


class Told:
    """A ledger that tells in which order it was asked."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def reserve_release(self, planned: Any, *, most: float | None = None) -> int:
        self.events.append("reserved")
        return 1

    def start_release(self, number: int) -> None:
        self.events.append("started")

    def settle_release(self, number: int, stated: Any) -> None:
        self.events.append("settled")

    def void_run(self, number: int, reason: str) -> None:
        self.events.append("given back")

    def address(self) -> dict[str, Any]:
        raise NotImplementedError


class Broken(Exception):
    """What goes wrong in a pass."""


# Each with the passes that only look: whether the table can be used, and whose its rows are.
FITS: dict[str, tuple[Callable[[Told, Any], Any], int]] = {
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


@pytest.mark.slow
@pytest.mark.parametrize("name", FITS)
def test_nothing_is_released_that_was_not_reserved_and_a_broken_fit_stays_counted(name: str) -> None:
    fit, looks = FITS[name]
    people = frame()[[*COLUMNS, "label"]].assign(visits=lambda rows: rows.index // 3)

    def fitted(breaks: int) -> list[str]:
        told = Told()

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
    assert whole[: looks + 2] == [*looked, "reserved", "started"]
    assert whole[-1] == "settled"
    assert passes > looks
    for breaks in {*range(1, looks + 2), passes}:
        events = fitted(breaks)
        assert events[-1] == "broken"
        assert not {"settled", "given back"} & set(events)
        assert ("started" in events) == (breaks > looks)
