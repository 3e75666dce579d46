"""Every source gives the rows that were asked for, and what cannot be a source is refused with a reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from data_cases import Listed, make_run, numbered
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

from lethe.errors import InputError
from lethe.train.data import BatchStream, MapStyleSource, Source, TensorSource, as_source

RECORDS = 11
ROWS = st.lists(st.integers(0, RECORDS - 1), min_size=1, max_size=15).map(torch.tensor) | st.tuples(
    st.integers(0, RECORDS), st.integers(0, RECORDS)
).map(lambda ends: slice(min(ends), max(ends) + 1 if min(ends) == max(ends) < RECORDS else max(ends)))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("npy")
    features, targets = numbered(RECORDS)
    np.save(folder / "a_features.npy", np.asfortranarray(features))
    np.save(folder / "b_targets.npy", targets.astype(">i8"))
    mapped = np.load(folder / "a_features.npy", mmap_mode="r")
    reverse = np.ascontiguousarray(features[::-1])[::-1]
    return {
        "arrays": as_source((features, targets)),
        "tensors": as_source((torch.from_numpy(features), torch.from_numpy(targets))),
        "reversed strides": as_source((reverse, targets.astype(">i8"))),
        "folder": as_source(folder),
        "files": as_source((folder / "a_features.npy", str(folder / "b_targets.npy"))),
        "memory map": as_source((mapped, torch.from_numpy(targets))),
        "TensorDataset": as_source(TensorDataset(torch.from_numpy(features), torch.from_numpy(targets))),
        "map-style": as_source(Listed(RECORDS)),
        "subset": as_source(Subset(Listed(RECORDS + 5), range(RECORDS))),
    }


@pytest.mark.slow
@given(rows=ROWS)
def test_every_source_gives_the_rows_asked_for(sources: dict[str, Source], rows: Any) -> None:
    features, targets = (torch.from_numpy(array) for array in numbered(RECORDS))
    if isinstance(rows, slice) and rows.start >= rows.stop:
        return
    for name, source in sources.items():
        assert len(source) == RECORDS
        got = source.fetch(rows)
        assert torch.equal(got[0], features[rows]), name
        assert torch.equal(got[1], targets[rows]), name
        assert got[0].dtype == torch.float64
        assert got[1].dtype == torch.int64


@pytest.mark.parametrize("name", ["arrays", "tensors", "memory map"])
@pytest.mark.parametrize("rows", [slice(0, 3), torch.tensor([0, 1, 2])])
def test_working_in_place_leaves_the_data_alone(sources: dict[str, Source], name: str, rows: Any) -> None:
    before = sources[name].fetch(rows)[0].clone()
    sources[name].fetch(rows)[0].zero_()
    assert torch.equal(sources[name].fetch(rows)[0], before)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([1])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (Endless(), "number of records is unknown"),
        (WeightedRandomSampler([0.5, 0.5], 2), "batch design"),
        (DataLoader(Listed(4), batch_size=None), "batches of its own"),
        (DataLoader(Listed(4), batch_sampler=[[0, 1], [2, 3]]), "a list .*: it makes batches of its own"),
        (DataLoader(Listed(4), sampler=SubsetRandomSampler([0, 3])), "draws 2 of 4 records"),
        (DataLoader(Endless()), "number of records is unknown"),
        (torch.zeros(0, 3), "no records"),
        ((torch.zeros(4), torch.zeros(5)), "differ in their number of records"),
        (torch.tensor(1.0), "single number"),
        (torch.eye(3).to_sparse(), "sparse"),
        (np.array(["a", "b"]), "needs numbers"),
        (np.array([None, 1], dtype=object), "needs numbers"),
        (np.array(3.0), "single number"),
        (np.zeros(3, dtype=np.longdouble), "64 bits"),
        ({"x": torch.zeros(3), "y": torch.zeros(4)}, r"differ in their number of records \(x: 3, y: 4\)"),
        ({"x": torch.zeros(3), "y": {"z": 1}}, "field y is dict"),
        ({"x": [[1, 2], [3]]}, r"field x is torch.int64 of shape \(1,\) in record 1"),
        ({"x": ["a", "b"]}, "field x cannot become a tensor"),
        ({"x": np.array(["a", "b"])}, "x: holds <U1"),
        ({3: torch.zeros(3)}, "field 3 is Tensor"),
        ({"input_ids": torch.zeros(3, 5), "attention_mask": torch.zeros(3, 4)}, "attention_mask .* disagree in length"),
        ({}, "at least one array"),
        ([1.0, 2.0], "list of float"),
        ([(1.0, 2), (3.0, 4)], r"(?s)list of tuple.*lethe\.train\.data\.MapStyleSource\(data\)"),
        (pd.DataFrame({"x": [1.0, 2.0]}), "(?s)got DataFrame.*to_numpy"),
        ((), "it needs arrays"),
        (None, "NoneType"),
        (7, "int"),
        ((row for row in "ab"), "generator"),
        ("table.csv", "only .npy"),
        ("missing.npy", "cannot be mapped"),
        ("table.parquet", "columns"),
        ("/", "no .npy files"),
    ],
)
def test_what_cannot_be_a_source_is_refused(data: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        as_source(data)


def test_damaged_and_pickled_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pickled.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "cut.npy", np.ones((100, 3)))
    whole = (tmp_path / "cut.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-10])
    for name in ("pickled.npy", "cut.npy"):
        with pytest.raises(InputError, match="cannot be mapped"):
            TensorSource(tmp_path / name)


class Odd:
    """A data set with whatever records and length."""

    def __init__(self, records: Any, size: Any = 3) -> None:
        self.records, self.size = records, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.records


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Odd("text"), "needs a tensor"),
        (Odd({"x": "text"}), r"field x cannot become a tensor: its first entry is str.*\n.*\n.*remove_columns\(\['x'\]\)"),
        (Odd({"x": None}), "field x cannot become a tensor"),
        (Odd({"x": [1.0, [2.0]]}), "field x cannot become a tensor"),
        (Odd({}), "made an empty batch"),
        (Odd({3: 1.0}), "the key 3"),
        (Odd(object()), "cannot be read"),
        (Odd(1.0, size=0), "no records"),
        (Odd(1.0, size=-1), "no length"),
        (Odd(1.0, size="3"), "no length"),
    ],
)
def test_data_sets_without_numbers_or_length_are_refused(dataset: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        as_source(dataset)


class Dropping(Listed):
    """Reads several records at once, and leaves out those it does not like."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices if index != 4]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_drops_records_is_refused(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.fingerprint._SAMPLES", 8)  # of 10 records
    source = MapStyleSource(Dropping(10), workers=workers)
    assert len(source.fetch(slice(5, 8))[1]) == 3
    with pytest.raises(InputError, match="3 rows, one for each record"):
        source.fetch(slice(3, 6))
    with pytest.raises(InputError, match="no record"):
        source.fetch(slice(4, 5))
    stream = BatchStream(make_run("cyclic", 10, 5, passes=1), source)
    with pytest.raises(InputError, match="5 rows, one for each record"):
        list(stream)
