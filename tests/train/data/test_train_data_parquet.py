"""Parquet and memory maps: the rows asked for, and never more of the file than the design needs."""

from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from data_cases import numbered
from hypothesis import given
from hypothesis import strategies as st

from lethe.errors import InputError
from lethe.train.data import ParquetSource

RECORDS = 23


def table(records: int = RECORDS, first: int = 0) -> pa.Table:
    features, targets = (array[first:] for array in numbered(first + records))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(features.reshape(-1)), 2)
    return pa.table(
        {
            "left": features[:, 0],
            "right": features[:, 1].astype(np.float32),
            "fixed": fixed,
            "free": pa.array(features.tolist()),
            "target": targets,
            "flag": targets > 3,
            "text": [str(target) for target in targets],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """23 records in two files, row groups of 4 and 5, and a file without records between them."""
    path = tmp_path_factory.mktemp("parquet")
    pq.write_table(table(14), path / "a.parquet", row_group_size=4)
    pq.write_table(table(1).slice(0, 0), path / "b.parquet")
    pq.write_table(table(9, first=14), path / "c.parquet", row_group_size=5)
    return path


@pytest.mark.nightly(by_day="test_random_access_reads_a_row_group_once_a_batch_at_most")
@pytest.mark.slow
@given(data=st.data(), groups=st.integers(1, 3))
def test_rows_in_any_order_and_form(folder: Path, data: st.DataObject, groups: int) -> None:
    source = ParquetSource(folder, [["left", "right"], "target", "fixed", "free", "flag"], cached_groups=groups)
    features, targets = (torch.from_numpy(array) for array in numbered(RECORDS))
    assert len(source) == RECORDS
    for _ in range(4):
        ends = sorted([data.draw(st.integers(0, RECORDS - 1)), data.draw(st.integers(0, RECORDS))])
        some = data.draw(st.lists(st.integers(0, RECORDS - 1), min_size=1, max_size=12))
        for rows in (slice(ends[0], ends[1] + 1), torch.tensor(some, dtype=torch.int64), slice(min(ends[1], RECORDS - 1), ends[1] + 3)):
            both, target, fixed, free, flag = source.fetch(rows)
            assert torch.equal(target, targets[rows])
            assert torch.equal(flag, targets[rows] > 3)
            assert torch.equal(fixed, features[rows])
            assert len(free) == len(target)
            assert not len(target) or torch.equal(free, features[rows])
            assert torch.equal(both, features[rows])
            assert both.dtype == torch.float64


class Watched(pq.ParquetFile):
    """Counts the rows that leave the file, by row group for random access."""

    streamed = 0
    groups: ClassVar[Counter[int]] = Counter()

    def iter_batches(self, *args: Any, **options: Any) -> Any:
        for batch in super().iter_batches(*args, **options):
            Watched.streamed += batch.num_rows
            yield batch

    def read_row_group(self, number: int, *args: Any, **options: Any) -> Any:
        Watched.groups[number] += 1
        return super().read_row_group(number, *args, **options)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(pq, "ParquetFile", Watched)
    Watched.streamed, Watched.groups = 0, Counter()
    return Watched


def test_random_access_reads_a_row_group_once_a_batch_at_most(folder: Path, watched: type[Watched]) -> None:
    source = ParquetSource(folder / "a.parquet", ["target"], cached_groups=1)
    source.fetch(torch.tensor([13, 0, 12, 1, 2]))
    assert watched.groups == {0: 1, 3: 1}
    source.fetch(torch.tensor([12, 13]))
    assert watched.groups == {0: 1, 3: 1}  # the last group is still there
    source.fetch(torch.tensor([0]))
    assert watched.groups == {0: 2, 3: 1}


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([], "columns"),
        ("target", "columns"),
        ([[]], "columns"),
        ([3], "columns"),
        (None, "columns"),
        (["unknown"], "has the columns left"),
        (["text"], "not numbers"),
        ([["fixed", "left"]], "side by side"),
    ],
)
def test_bad_columns_are_refused(folder: Path, columns: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        ParquetSource(folder, columns)


def test_bad_files_are_refused(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "empty").mkdir()
    pq.write_table(pa.table({"target": [1.5]}), tmp_path / "other.parquet")
    for paths, why in [
        (tmp_path / "bad.parquet", "cannot be read"),
        (tmp_path / "missing.parquet", "cannot be read"),
        (tmp_path / "empty", "no Parquet file"),
        ([], "no Parquet file"),
        (3, "path"),
        (folder / "b.parquet", "no records"),
        ([folder / "a.parquet", tmp_path / "other.parquet"], "other types than"),
    ]:
        with pytest.raises(InputError, match=why):
            ParquetSource(paths, ["target"])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cached_groups"):
        ParquetSource(folder, ["target"], cached_groups=0)


def test_missing_values_and_uneven_lists_are_refused_when_met(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, None], "y": [[1.0], [1.0, 2.0]], "z": [[1.0], [None]]}), tmp_path / "x.parquet")
    for column, why in [("x", "missing"), ("y", "lists of 1 to 2"), ("z", "missing")]:
        with pytest.raises(InputError, match=why):
            ParquetSource(tmp_path / "x.parquet", [column]).fetch(slice(0, 2))
        with pytest.raises(InputError, match=why):
            ParquetSource(tmp_path / "x.parquet", [column]).fetch(torch.tensor([1, 0]))
