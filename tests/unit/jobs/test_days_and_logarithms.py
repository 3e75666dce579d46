"""Columns of days and of amounts with a long tail, mapped by public constants."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import lethe
from lethe.jobs.datasets import load_table
from lethe.jobs.tables.columns import NumberColumn, PublicColumns
from lethe.jobs.tables.reading import ColumnTable


def in_memory(entries: Any) -> ColumnTable:
    return ColumnTable(file=Path("t.parquet"), names=("a",), content=pa.table({"a": entries}))


def test_logarithms_and_days_are_scaled_by_what_was_stated_of_them(tmp_path: Path) -> None:
    amounts = NumberColumn(range=(1, 1e4), log=True, missing=100).encode(in_memory([1.0, 100.0, 1e4, 1e9, -5.0, None]), "a")
    assert amounts[:, 0] == pytest.approx([-1, 0, 1, 1, -1, 0], abs=1e-15)  # a few roundings
    from_zero = NumberColumn(range=(0, 3), log=True).encode(in_memory([0.0, 1.0, 3.0]), "a")
    assert from_zero[:, 0] == pytest.approx([-1, 0, 1], abs=1e-15)
    wide = NumberColumn(range=(1e-300, 1e299), log=True).encode(in_memory(np.geomspace(1e-310, 1e300, 999)), "a")
    assert np.abs(wide).max() == 1.0  # no row is longer than it is said to be
    stated = {"when": {"dates": ["2024-01-01", "2024-01-31"], "missing": "2024-01-16"}}
    days = "when,label\n2024-01-01,no\n2024-01-16 23:59:59,no\n2024-01-31T00:00:00Z,no\n1999-12-31,no\n,yes\n"
    (tmp_path / "t.csv").write_text(days)
    columns = PublicColumns.parse(stated)
    table = load_table(tmp_path / "t.csv", "label", task="classification", classes=["no", "yes"], columns=columns)
    assert table.features[:, 0].tolist() == [-1, 0, 1, -1, 0]
    moments = pa.array([1704067200, 1705363200], pa.timestamp("s"))
    pyarrow.parquet.write_table(pa.table({"when": moments, "label": ["no", "yes"]}), tmp_path / "t.parquet")
    table = load_table(tmp_path / "t.parquet", "label", task="classification", classes=["no", "yes"], columns=columns)
    assert table.features[:, 0].tolist() == [-1, 0]
    assert PublicColumns.parse(json.loads(json.dumps(columns.to_document()))) == columns
    assert columns.describe() == ["when: 2024-01-01 to 2024-01-31, 2024-01-16 where there is no date"]


REFUSED: list[tuple[Any, str]] = [
    ({"a": {"range": [-1, 5], "log": True}}, "log: got a range from -1; a logarithm needs one from 0 or more"),
    ({"a": {"range": [1e10, 1e10 + 1e-5], "log": True}}, "it is too narrow|low must be below high"),
    ({"a": {"range": [0, 5], "log": 1}}, "log: got 1"),
    ({"a": {"dates": ["2024-01-01", "2024-01-01"]}}, "the first must be before the last"),
    ({"a": {"dates": ["31.12.2024", "2025-01-01"]}}, "got '31.12.2024'; it needs a date, such as"),
    ({"a": {"dates": ["2024-01-01"]}}, "two dates"),
    ({"a": {"dates": ["2024-01-01", "2024-02-01"], "missing": "2025-01-01"}}, "missing: got 2025-01-01; it needs a day from 2024-01-01"),
    ({"a": {"dates": ["2024-01-01", "2024-02-01"], "range": [0, 1]}}, "it needs range: .* dates: "),
]


@pytest.mark.parametrize(("stated", "message"), REFUSED)
def test_what_is_stated_of_them(stated: Any, message: str) -> None:
    with pytest.raises(lethe.InputError, match=message):
        PublicColumns.parse(stated)


@pytest.mark.parametrize("entry", ["31.12.2024", "2024-02-30", "soon"])
def test_an_entry_that_is_no_date(tmp_path: Path, entry: str) -> None:
    (tmp_path / "t.csv").write_text(f"day,label\n{entry},no\n")
    columns = PublicColumns.parse({"day": {"dates": ["2024-01-01", "2025-01-01"]}})
    with pytest.raises(lethe.InputError, match="row 0, column 'day': the entry is no date"):
        load_table(tmp_path / "t.csv", "label", classes=["no"], columns=columns)
