"""Data sets that fill one array anew for each record: each row of a batch must still be its own record."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.data import MapStyleSource

ROWS = torch.arange(24.0).reshape(6, 4)


class Reusing:
    """Returns what `returned` makes of one array, which is filled anew for each record."""

    def __init__(self, returned: Callable[[Tensor, int], Any], held: Tensor | None = None) -> None:
        self._held, self._returned = torch.zeros(4) if held is None else held, returned

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> Any:
        self._held.copy_(ROWS[index])
        return self._returned(self._held, index)


RETURNED: dict[str, Callable[[Tensor, int], Any]] = {
    "tensor": lambda held, index: (held, index),
    "array": lambda held, index: (held.numpy(), index),
    "view": lambda held, index: (held[:3], index),
    "nested": lambda held, index: [[held, held[1:]], index],
}


@pytest.mark.parametrize("name", RETURNED)
def test_an_array_that_is_filled_anew_gives_each_record_its_own_row(name: str) -> None:
    def collate(records: list[Any]) -> tuple[Tensor, Tensor]:
        parts = [record[0][0] if isinstance(record[0], list) else record[0] for record in records]
        return torch.stack([torch.as_tensor(part) for part in parts]), torch.tensor([record[1] for record in records])

    source = MapStyleSource(Reusing(RETURNED[name]), collate=collate)
    for wanted in (slice(0, 5), torch.tensor([3, 1, 4])):
        rows, indices = source.fetch(wanted)
        assert torch.equal(rows, ROWS[indices][:, : rows.shape[1]])
        assert indices.tolist() == (list(range(5)) if isinstance(wanted, slice) else wanted.tolist())


def test_arrays_used_in_turn_are_noticed_too() -> None:
    held = torch.zeros(2, 4)

    def returned(_: Tensor, index: int) -> Tensor:
        held[index % 2] = ROWS[index]
        return held[index % 2]

    (rows,) = MapStyleSource(Reusing(returned)).fetch(slice(0, 6))
    assert torch.equal(rows, ROWS)


def test_a_copy_of_a_part_of_a_large_tensor_is_as_small_as_the_part() -> None:
    """Views of one record are parts of one tensor, and are copied; a copy of the whole for each took minutes a step."""
    large = torch.arange(4000.0).reshape(1000, 4)
    records: list[Tensor] = []

    def collate(some: list[Tensor]) -> Tensor:
        records.extend(some)
        return torch.stack(some)

    (rows,) = MapStyleSource(Reusing(lambda _, index: large[index]), collate=collate).fetch(torch.tensor([2, 2, 5]))
    assert torch.equal(rows, large[[2, 2, 5]])
    assert [record.untyped_storage().nbytes() for record in records[-3:]] == [16, 16, 16]


def test_what_cannot_be_copied_is_refused() -> None:
    def collate(records: list[Any]) -> Tensor:
        return torch.stack([record[0].clone() for record in records])

    lock = threading.Lock()
    source = MapStyleSource(Reusing(lambda held, _: (held, lock)), collate=collate)
    with pytest.raises(InputError, match="returns parts of one record for another"):
        source.fetch(slice(0, 3))


def test_records_of_their_own_are_read_once() -> None:
    read: list[int] = []

    class Counting:
        def __len__(self) -> int:
            return len(ROWS)

        def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
            read.append(index)
            return ROWS[index].numpy(), 3

    source = MapStyleSource(Counting())
    read.clear()
    source.fetch(slice(0, 5))
    assert read == list(range(5))


class Several(Reusing):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [ROWS[index] for index in indices]


def test_batches_that_were_not_checked_are_declared_by_name() -> None:
    """A collate function that mixes at step 37 only is found by chance: what was not looked at is said."""
    plain = MapStyleSource(Reusing(RETURNED["tensor"]))
    assert "other than those that were checked" not in plain.declared[0]
    collated = MapStyleSource(Reusing(RETURNED["tensor"]), collate=torch.utils.data.default_collate)
    assert "collate make each row of its own record alone in batches other than those that were checked" in collated.declared[0]
    assert "Several.__getitems__ make each row" in MapStyleSource(Several(RETURNED["tensor"])).declared[0]
