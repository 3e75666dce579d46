"""Ids of users: compared exactly, of one type, none missing; users stand in the order of their ids, whatever the records are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from how_many import by_night

from lethe.errors import InputError
from lethe.train.data import ParquetSource
from lethe.train.data.members import Members
from lethe.train.data.user_ids import Owners, ids_of, owners_of


@pytest.mark.parametrize(
    "ids",
    [
        [7, 3, 7, 5],
        (7, 3, 7, 5),
        np.array([7, 3, 7, 5], dtype=np.uint8),
        np.array([7, 3, 7, 5], dtype=object),
        torch.tensor([7, 3, 7, 5]),
        ["c", "a", "c", "b"],
        np.array(["c", "a", "c", "b"]),
        np.array(["c", "a", "c", "b"], dtype=object),
    ],
)
def test_users_stand_in_the_order_of_their_ids(ids: Any) -> None:
    owners = owners_of(ids)
    assert owners.places.tolist() == [2, 0, 2, 1]
    assert owners.users == 3


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1, "1"], "whole numbers and texts"),
        ([1, 1.0], "a float, at record 1"),
        ([1.0, 2.0], "a float"),
        (np.array([1.0, 2.0]), "a float"),
        (torch.tensor([1.0, 2.0]), "a float"),
        ([1, float("nan")], "missing id, at record 1"),
        (["a", None], "missing id, at record 1"),
        (np.array(["NaT", "2020-01-01"], dtype="datetime64[D]"), "missing id, at record 0"),
        (["a", float("nan")], "missing id"),
        (["a", ""], "an empty text, at record 1"),
        (np.array(["", "a"]), "an empty text, at record 0"),
        ([True, False], "a bool, at record 0"),
        (np.array([True, False]), "a bool, at record 0"),
        ([b"a", b"b"], "a bytes"),
        ([(1, 2), (1, 2)], "a tuple, at record 0"),
        (np.zeros((2, 1), dtype=int), "shape"),
        (np.ma.masked_array([1, 2], mask=[False, True]), "MaskedArray"),
        ([2**63, 1], "64 bits"),
        (["a\0", "a"], "zero character"),
        ([], "got none"),
        (3, "got int"),
        (None, "got NoneType"),
        ("abc", "got 'abc', and no table"),
        ({"a": 1}, "got dict"),
    ],
)
def test_ids_that_do_not_tell_users_apart_are_refused(ids: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        owners_of(ids)


def test_ids_come_from_a_column(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for number, names in enumerate((["b", "a"], ["b"])):
        parquet.write_table(arrow.table({"x": [1.0] * len(names), "who": names}), tmp_path / f"{number}.parquet")
    source = ParquetSource(tmp_path, ["x"])
    assert ids_of("who", source, source) == ["b", "a", "b"]
    with pytest.raises(InputError, match="got 'whom'"):
        ids_of("whom", source, source)


def test_ids_come_from_records_that_are_mappings_and_from_loaders_of_them() -> None:
    records = [{"x": 1.0, "who": "b"}, {"x": 2.0, "who": "a"}]
    loader = torch.utils.data.DataLoader(records)  # pyright: ignore[reportArgumentType]
    assert ids_of("who", records) == ids_of("who", loader) == ["b", "a"]
    with pytest.raises(InputError, match="'who' names a column"):
        ids_of("who", [*records, {"x": 3.0}])
    assert ids_of(None, records) is None


def _members(**options: Any) -> Members:
    return Members(Owners(torch.tensor([1, 0, 1, 1, 2, 1]), 3), **options)


def test_all_records_of_a_user_are_read_in_their_order() -> None:
    rows = _members().rows_of(torch.tensor([2, 1]), 1)
    assert isinstance(rows.records, torch.Tensor)
    assert rows.places is not None
    assert rows.records.tolist() == [4, 0, 2, 3, 5]
    assert rows.places.tolist() == [0, 1, 1, 1, 1]


@pytest.mark.slow
def test_at_most_so_many_records_of_a_user_are_read_each_as_often_as_any_other() -> None:
    members = _members(most=2)
    seen = np.zeros(6)
    steps = 2000 if by_night() else 500
    for step in range(1, steps + 1):
        rows = members.rows_of(slice(0, 3), step)
        assert isinstance(rows.records, torch.Tensor)
        assert rows.places is not None
        assert rows.places.tolist() == [0, 1, 1, 2]
        chosen = rows.records.tolist()
        assert chosen[1] < chosen[2]
        np.add.at(seen, chosen, 1)
    assert seen[1] == seen[4] == steps
    # Each of four is among the two with probability 1/2: within five standard deviations of a binomial count.
    assert np.all(np.abs(seen[[0, 2, 3, 5]] - steps / 2) < 5 * np.sqrt(steps / 4))


@pytest.mark.slow
def test_a_choice_depends_on_seed_step_and_user_alone() -> None:
    def chosen(seed: int | None, batch: Any, step: int) -> list[int]:
        records = _members(most=2, seed=seed).rows_of(batch, step).records
        assert isinstance(records, torch.Tensor)
        return records.tolist()

    steps = range(1, 60)
    assert [chosen(5, slice(1, 2), step) for step in steps] == [chosen(5, torch.tensor([0, 1, 2]), step)[1:3] for step in steps]
    assert [chosen(5, slice(1, 2), step) for step in steps] != [chosen(6, slice(1, 2), step) for step in steps]
    assert len({tuple(chosen(5, slice(1, 2), step)) for step in steps}) == 6  # all pairs of four
    assert [chosen(None, slice(1, 2), step) for step in steps] != [chosen(None, slice(1, 2), step) for step in steps]
