"""Every sampler, loader and stream of the table is taken or refused as it says; what is in no table is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from data_cases import Listed
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lethe.errors import InputError
from lethe.train.data.foreign_order import READINGS, refuse_foreign_order

RECORDS = Listed(4)
TAKEN: dict[str, Sampler[Any]] = {
    "torch.SequentialSampler": SequentialSampler(RECORDS),
    "torch.RandomSampler": RandomSampler(RECORDS),
    "torch.DistributedSampler": DistributedSampler(RECORDS, num_replicas=2, rank=1),
}


class Own(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))

    def __len__(self) -> int:
        return 4


class Shuffles(RandomSampler):
    """Nobody knows what it does instead."""


class Imbalanced(WeightedRandomSampler):
    """As others have it."""


class Twice(DataLoader[Any]):
    def __iter__(self) -> Any:
        return iter([[0], [0]])


def test_the_table_is_taken_as_it_says() -> None:
    assert {name for name, reading in READINGS.items() if reading.instead is None} == TAKEN.keys()
    for sampler in TAKEN.values():
        refuse_foreign_order(DataLoader(RECORDS, batch_size=2, sampler=sampler))
        refuse_foreign_order(sampler, RECORDS)
    for data in ([1.0], DataLoader(RECORDS, shuffle=True, drop_last=True), None):
        refuse_foreign_order(data)


@pytest.mark.parametrize("name", sorted(READINGS.keys() - TAKEN.keys()))
def test_the_table_is_refused_as_it_says(name: str) -> None:
    package, _, kind = name.partition(".")
    made = type(kind, (Own,), {"__module__": f"{package}.some.where"})()
    for data in (made, DataLoader(RECORDS, sampler=made), DataLoader(made)):  # pyright: ignore[reportArgumentType]
        with pytest.raises(InputError) as said:
            refuse_foreign_order(data, RECORDS)
        does, instead = READINGS[name]
        assert f"got a {kind}, which {does}." in str(said.value)
        assert str(instead) in str(said.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (DataLoader(RECORDS, sampler=Own()), "Own, which reads in an order that Lethe does not know"),
        (DataLoader(RECORDS, sampler=Shuffles(RECORDS)), "Shuffles, which reads in an order that Lethe does not know"),
        (DataLoader(RECORDS, sampler=[3, 1, 2, 0]), "list, which reads in an order that Lethe does not know"),
        (DataLoader(RECORDS, sampler=Imbalanced([1.0] * 4, 4)), "Imbalanced, which draws some records more often"),
        (DataLoader(RECORDS, sampler=SubsetRandomSampler([0, 3])), r"(?s)leaves records out.*Subset\(dataset, indices\)"),
        (DataLoader(RECORDS, sampler=RandomSampler(RECORDS, replacement=True)), "RandomSampler, which draws with replacement"),
        (DataLoader(RECORDS, sampler=RandomSampler(RECORDS, num_samples=3)), "RandomSampler, which draws 3 of 4 records"),
        (DataLoader(RECORDS, batch_size=None), "a DataLoader, which makes batches of its own"),
        (DataLoader(RECORDS, batch_sampler=[[0, 1], [2, 3]]), "a list, which makes batches of its own"),
        (DataLoader(RECORDS, batch_sampler=BatchSampler(SequentialSampler(RECORDS), 2, False)), "a BatchSampler, which makes batches"),
        (DataLoader(RECORDS, batch_sampler=BatchSampler(Imbalanced([1.0] * 4, 4), 2, False)), "Imbalanced, which draws some"),
        (Twice(RECORDS), "Twice, which reads in an order"),
        (Own(), "Own, which reads in an order"),
    ],
)
def test_what_is_in_no_table_is_refused(data: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        refuse_foreign_order(data, RECORDS)
