"""Statements and totals of files in which one entry after the other is nonsense: refused, or true, and never a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from every_release import fitted
from how_many import by_night

import lethe
from lethe.accounting.recheck import recheck_statement
from lethe.certificates.statement import Statement

ODD: list[Any] = [None, -1, "x", [], 1e308, 10**400, 5e-324, float("inf")]
DELTA = 5e-5


def places(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands, in lists of many entries the first two."""
    if at:
        yield at
    entries = content.items() if isinstance(content, dict) else enumerate(content[:2]) if isinstance(content, list) else ()
    for key, value in entries:
        yield from places(value, (*at, key))


def with_odd(content: dict[str, Any], at: tuple[Any, ...], odd: Any) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    inner: Any = changed
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = odd
    return changed


def odd_at(number: int) -> list[Any]:
    """What is tried at a place: by day two of them, others at the next place."""
    return ODD if by_night() else ODD[number % 4 :: 4]


@pytest.mark.parametrize("name", ["LinearRegression", "PrivateMean"])
@pytest.mark.filterwarnings("ignore")  # of ranges that may be too small
def test_a_statement_with_a_nonsense_entry_is_refused_or_no_smaller(name: str) -> None:
    model = fitted(name)
    content = model.statement_.to_dict()
    refused = 0
    for number, at in enumerate(places(content)):
        for odd in odd_at(number):
            try:
                read = recheck_statement(Statement.from_dict(with_odd(content, at, odd))).statement
            except lethe.LetheError:
                refused += 1
            else:
                read.explain()
                assert read.epsilon(DELTA) >= model.epsilon_ * (1 - 1e-6)
    assert refused > (200 if by_night() else 50)
