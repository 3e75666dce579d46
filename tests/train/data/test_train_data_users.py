"""Ids of users: compared exactly, of one type, none missing; users stand in the order of their ids, whatever the records are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from data_cases import listed
from how_many import by_night

from lethe.errors import InputError
from lethe.train.data.users import Members, ids_of, owners_of


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
        [2**64 + 1, 0, 2**64 + 1, 2**64],
        [2**63, -1, 2**63, 2**63 - 1],
    ],
)
def test_users_stand_in_the_order_of_their_ids(ids: Any) -> None:
    assert owners_of(ids).tolist() == [2, 0, 2, 1]


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1, "1"], "types int, str"),
        ([1, 1.0], "types int, float"),
        (np.array([1.0, 2.0]), "types float"),
        (torch.tensor([1.0, 2.0]), "types float"),
        (["a", None], "types str, NoneType"),
        (np.array(["NaT", "2020-01-01"], dtype="datetime64[D]"), "types NoneType, date"),
        (["a", ""], "an empty text, at record 1"),
        (np.array(["", "a"]), "an empty text, at record 0"),
        ([True, False], "types bool"),
        (np.array([1, True], dtype=object), "types int, bool"),
        ([b"a", b"b"], "types bytes"),
        (np.zeros((2, 1), dtype=int), r"ndarray \(2, 1\)"),
        (np.ma.masked_array([1, 2], mask=[False, True]), "MaskedArray"),
        ([], "got none"),
        (3, "got int"),
        ("abc", "got 'abc', and no such column"),
        ({"a": 1}, "got dict"),
    ],
)
def test_ids_that_do_not_tell_users_apart_are_refused(ids: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        owners_of(ids)


def test_ids_come_from_records_that_are_mappings_and_from_loaders_of_them() -> None:
    records = [{"x": 1.0, "who": "b"}, {"x": 2.0, "who": "a"}]
    loader = torch.utils.data.DataLoader(records)  # pyright: ignore[reportArgumentType]
    assert ids_of("who", records) == ids_of("who", loader) == ["b", "a"]
    with pytest.raises(InputError, match="'who' names a column"):
        ids_of("who", [*records, {"x": 3.0}])
    assert ids_of(None, records) is None


def _members(**options: Any) -> Members:
    return Members(torch.tensor([1, 0, 1, 1, 2, 1]), **options)


def test_all_records_of_a_user_are_read_in_their_order() -> None:
    records, places = _members().rows_of(torch.tensor([2, 1]), 1)
    assert (listed(records), listed(places)) == ([4, 0, 2, 3, 5], [0, 1, 1, 1, 1])


@pytest.mark.slow
def test_at_most_so_many_records_of_a_user_are_read_each_as_often_as_any_other() -> None:
    members = _members(most=2)
    seen = np.zeros(6)
    steps = 2000 if by_night() else 500
    for step in range(1, steps + 1):
        records, places = members.rows_of(slice(0, 3), step)
        assert listed(places) == [0, 1, 1, 2]
        chosen = listed(records)
        assert chosen[1] < chosen[2]
        np.add.at(seen, chosen, 1)
    assert seen[1] == seen[4] == steps
    # Each of four is among the two with probability 1/2: within five standard deviations of a binomial count.
    assert np.all(np.abs(seen[[0, 2, 3, 5]] - steps / 2) < 5 * np.sqrt(steps / 4))


@pytest.mark.slow
def test_a_choice_depends_on_seed_step_and_user_alone() -> None:
    def chosen(seed: int | None, batch: Any, step: int) -> list[int]:
        return listed(_members(most=2, seed=seed).rows_of(batch, step)[0])

    steps = range(1, 60)
    assert [chosen(5, slice(1, 2), step) for step in steps] == [chosen(5, torch.tensor([0, 1, 2]), step)[1:3] for step in steps]
    assert [chosen(5, slice(1, 2), step) for step in steps] != [chosen(6, slice(1, 2), step) for step in steps]
    assert len({tuple(chosen(5, slice(1, 2), step)) for step in steps}) == 6  # all pairs of four
    assert [chosen(None, slice(1, 2), step) for step in steps] != [chosen(None, slice(1, 2), step) for step in steps]
