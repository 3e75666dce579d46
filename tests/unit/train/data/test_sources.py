"""Every source gives the rows that were asked for, and what cannot be a source is refused with a reason; whose each record is."""

from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from data_cases import NAMED, RECORDS, SCORES, TOKENS, Listed, listed, numbered, rows, same
from how_many import by_night
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset

from lethe.errors import InputError, LetheWarning
from lethe.train.data.loaders import as_source
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.sources import Source, TensorSource, fetched, fields_of
from lethe.train.data.users import Members, ids_of, owners_of

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


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([1])


class Given:
    """A data set of whatever records and length."""

    def __init__(self, records: Any, size: Any = None) -> None:
        self.records, self.size = records, len(records) if size is None else size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.records[index]


PARTS = "it needs a dense tensor or a NumPy array of numbers of at most 64 bits"
REFUSED: list[tuple[Any, str]] = [
    (Endless(), "(?s)Endless, which is a stream.*batch design"),
    (torch.zeros(0, 3), "no records"),
    ((torch.zeros(4), torch.zeros(5)), "differ in their number of records"),
    (torch.eye(3).to_sparse(), PARTS),
    (np.array(["a", "b"]), f"of <U1.*{PARTS}"),
    (np.array([None, 1], dtype=object), PARTS),
    (np.zeros(3, dtype=np.longdouble), PARTS),
    ({"x": torch.zeros(3), "y": torch.zeros(4)}, r"differ in their number of records \(x: 3, y: 4\)"),
    ({"x": torch.zeros(3), "y": {"z": 1}}, "(?s)field y is dict.*of a DatasetDict"),
    ({"x": [[1, 2], [3]]}, "field x cannot become a tensor"),
    ({3: torch.zeros(3)}, "field 3 is Tensor"),
    ({}, "no array"),
    ([(1.0, 2), (3.0, 4)], r"(?s)got list.*lethe\.train\.data\.map_style\.MapStyleSource\(data\)"),
    (pd.DataFrame({"x": [1.0, 2.0]}), "(?s)got DataFrame.*to_numpy"),
    ((), "it needs arrays"),
    (None, "NoneType"),
    ((row for row in "ab"), "generator"),
    ("table.parquet", "(?s)cannot be read.*Dataset.from_parquet"),
    ("/", "no array"),
    (Given([1.0], size=0), "no batch"),
    (Given([1.0], size="3"), "no length"),
    (Given(["text"]), "part 0 of a batch is str; it needs a tensor"),
    (Given([object()]), "of 1 records it makes no batch: TypeError: default_collate"),
    (Given([{"x": "text"}]), r"(?s)field x cannot become a tensor: str.*remove_columns\(\['x'\]\)"),
    (Given([{}]), "made a batch of nothing"),
]


@pytest.mark.parametrize(("data", "why"), REFUSED)
def test_what_cannot_be_a_source_is_refused(data: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        as_source(data)


def test_damaged_and_pickled_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pickled.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "cut.npy", np.ones((100, 3)))
    whole = (tmp_path / "cut.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-10])
    for name in ("pickled.npy", "cut.npy"):
        with pytest.raises(InputError, match="cannot be read"):
            TensorSource(tmp_path / name)


def widened(records: list[Any]) -> dict[str, torch.Tensor]:
    """A collate function that pads to the longest."""
    longest = max(len(record["input_ids"]) for record in records)
    padded = [record["input_ids"] + [0] * (longest - len(record["input_ids"])) for record in records]
    return {"input_ids": torch.tensor(padded), "label": torch.tensor([record["label"] for record in records])}


def test_mappings_of_columns_and_records_that_are_mappings_go_by_name() -> None:
    frozen = SCORES.numpy().copy()
    frozen.flags.writeable = False
    expected = {"input_ids": TOKENS, "score": SCORES}
    for data in (expected, {"score": frozen, "input_ids": TOKENS.tolist()}, UserDict({**expected, "score": list(SCORES)})):
        same(source := as_source(data), expected)
        assert isinstance(source, TensorSource)
    assert fields_of(as_source(expected, leave_out=("score",))) == ("input_ids",)
    records = [{"x": TOKENS[place], "y": SCORES[place].numpy(), "z": place / 2, "w": place % 2 == 0} for place in range(RECORDS)]
    expected = {"x": TOKENS, "y": SCORES, "z": torch.arange(RECORDS) / 2, "w": torch.arange(RECORDS) % 2 == 0}
    for data in (Given(records), records, Given(list(map(UserDict, records)))):
        same(as_source(data), expected)


@pytest.mark.parametrize(
    ("records", "collate", "message"),
    [
        (rows(uneven=True), None, "(?s)of 2 records it makes no batch: RuntimeError: stack expects each tensor.*padding='max_length'"),
        ([{"x": 1.0}, {"y": 1.0}], None, "KeyError"),
        (rows(), lambda records: {"x": len(records)}, "part x of a batch is int"),
        (rows(), lambda records: {"x": torch.ones(3)}, "(?s)part x of a batch has shape .*packing=True"),
        (rows(), lambda records: {}, "made a batch of nothing"),
        (rows(), lambda records: {f"{len(records)}": torch.ones(len(records))}, "made a batch of 2; the first was of 1"),
        (rows(), lambda records: {"x": torch.ones(1)} if len(records) == 1 else torch.ones(2), "made a Tensor; the first batch was a"),
        (rows(uneven=True), lambda records: {"x": torch.tensor([record["input_ids"] for record in records])}, "no batch: ValueError"),
    ],
)
def test_records_that_make_no_batch_are_refused(records: list[Any], collate: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fetched(MapStyleSource(Given(records), collate=collate), slice(0, 2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 4, "shuffle": True, "drop_last": True, "generator": torch.Generator()},
        {"sampler": DistributedSampler(rows(uneven=True), num_replicas=2, rank=0)},
    ],
)
def test_a_loader_says_its_records_and_what_of_it_is_ignored_is_said_once(options: dict[str, Any]) -> None:
    sampler = options.get("sampler")
    data = sampler.dataset if isinstance(sampler, DistributedSampler) else rows(uneven=True)
    with pytest.warns(LetheWarning, match="batch_size, shuffle, sampler, drop_last, .* of the DataLoader are ignored") as said:
        source = as_source(DataLoader(data, collate_fn=widened, num_workers=1, prefetch_factor=3, **options))
    assert len(said) == 1
    assert source.reading["num_workers"] == 1  # pyright: ignore[reportAttributeAccessIssue]
    assert source.fetch(slice(2, 4))[0].tolist() == [[*TOKENS[2, :3].tolist(), 0, 0], TOKENS[3].tolist()]
    with pytest.warns(LetheWarning):  # of plain records it is what its data set is
        plain = [as_source(DataLoader(data), leave_out=("who",)) for data in (TensorDataset(TOKENS, SCORES), Given(rows(who="x")))]
    assert isinstance(plain[0], TensorSource)
    same(plain[1], NAMED)


@pytest.mark.parametrize(
    "ids",
    [
        (7, 3, 7, 5),
        torch.tensor([7, 3, 7, 5]),
        np.array([7, 3, 7, 5], dtype=np.uint8),
        np.array(["c", "a", "c", "b"]),
        np.array(["c", "a", "c", "b"], dtype=object),
        [2**64 + 1, 0, 2**64 + 1, 2**64],
        [2**63, -1, 2**63, 2**63 - 1],
    ],
)
def test_users_stand_in_the_order_of_their_ids_which_may_be_a_column(ids: Any) -> None:
    assert owners_of(ids).tolist() == [2, 0, 2, 1]
    records = [{"x": 1.0, "who": one} for one in ids]
    assert ids_of("who", records) == ids_of("who", DataLoader(records)) == list(ids)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="'who' names a column"):
        ids_of("who", [*records, {"x": 3.0}])
    assert ids_of(None, records) is None


def _members(**options: Any) -> Members:
    return Members(torch.tensor([1, 0, 1, 1, 2, 1]), **options)


def test_records_of_a_user_are_read_in_their_order_and_at_most_so_many_each_as_often_as_any_other() -> None:
    records, places = _members().rows_of(torch.tensor([2, 1]), 1)
    assert (listed(records), listed(places)) == ([4, 0, 2, 3, 5], [0, 1, 1, 1, 1])
    members, seen, steps = _members(records_per_user=2), np.zeros(6), 2000 if by_night() else 500
    for step in range(1, steps + 1):
        records, places = members.rows_of(slice(0, 3), step)
        assert listed(places) == [0, 1, 1, 2]
        chosen = listed(records)
        assert chosen[1] < chosen[2]
        np.add.at(seen, chosen, 1)
    assert seen[1] == seen[4] == steps
    # Each of four is among the two with probability 1/2: within five standard deviations of a binomial count.
    assert np.all(np.abs(seen[[0, 2, 3, 5]] - steps / 2) < 5 * np.sqrt(steps / 4))


def test_a_choice_depends_on_seed_step_and_user_alone() -> None:
    def chosen(seed: int | None, batch: Any, step: int) -> list[int]:
        return listed(_members(records_per_user=2, seed=seed).rows_of(batch, step)[0])

    steps = range(1, 60)
    assert [chosen(5, slice(1, 2), step) for step in steps] == [chosen(5, torch.tensor([0, 1, 2]), step)[1:3] for step in steps]
    assert [chosen(5, slice(1, 2), step) for step in steps] != [chosen(6, slice(1, 2), step) for step in steps]
    assert len({tuple(chosen(5, slice(1, 2), step)) for step in steps}) == 6  # all pairs of four
    assert [chosen(None, slice(1, 2), step) for step in steps] != [chosen(None, slice(1, 2), step) for step in steps]
