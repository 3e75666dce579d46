"""Collate functions and `__getitems__`: refused where a row is made of other records than its own, left alone where it is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

import lethe
from lethe.errors import InputError
from lethe.train.data import BatchStream, MapStyleSource
from lethe.train.data.sources.apart import CollateCheck
from lethe.train.data.sources.padding import Padding

Records = list[tuple[Tensor, Tensor]]
FOUND = r"of more than that record|cannot be found out"


class Sequences:
    """Records of 3 numbers, or of a length of their own, with a class each."""

    def __init__(self, records: int = 24, *, lengths: bool = False) -> None:
        generator = torch.Generator().manual_seed(0)
        sizes = [(1 + 2 * (record % 4) if lengths else 3) for record in range(records)]
        self.rows = [(1 + torch.rand(size, generator=generator), torch.tensor(record % 3)) for record, size in enumerate(sizes)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.rows[index]


class ByLists(Sequences):
    """Reads several records at once, by a function of them."""

    def __init__(self, function: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self.function = function

    def __getitems__(self, indices: list[int]) -> Any:
        return self.function([self.rows[index] for index in indices])


def features(records: Records) -> Tensor:
    return torch.stack([row for row, _ in records])


def classes(records: Records) -> Tensor:
    return torch.stack([kind for _, kind in records])


def mixed_up(records: Records) -> tuple[Tensor, Tensor]:
    """torchvision's MixUp does the same: each record with its neighbour in the batch, by a share that is drawn."""
    share = random.betavariate(1, 1)
    return share * features(records) + (1 - share) * features(records).roll(1, 0), classes(records)


def mixed_evenly(records: Records) -> tuple[Tensor, Tensor]:
    return features(records) / 2 + features(records).roll(1, 0) / 2, classes(records)


def centred(records: Records) -> tuple[Tensor, Tensor]:
    return features(records) - features(records).mean(0), classes(records)


def slightly_centred(records: Records) -> tuple[Tensor, Tensor]:
    return features(records) - 1e-6 * features(records).mean(0), classes(records)


def first_again(records: Records) -> tuple[Tensor, Tensor]:
    return default_collate([records[0], records[0], *records[2:]]) if len(records) > 2 else default_collate(records)


def reversed_order(records: Records) -> tuple[Tensor, Tensor]:
    return default_collate(records[::-1])


def of_their_number(records: Records) -> tuple[Tensor, Tensor]:
    return features(records) / len(records), classes(records)


def filled_with_the_mean(records: Records) -> tuple[Tensor, Tensor]:
    rows = [row for row, _ in records]
    return pad_sequence(rows, batch_first=True, padding_value=float(torch.cat(rows).mean())), classes(records)


def cut_to_the_shortest(records: Records) -> tuple[Tensor, Tensor]:
    shortest = min(len(row) for row, _ in records)
    return torch.stack([row[:shortest] for row, _ in records]), classes(records)


class WithTheLast:
    """Adds what the batch before held."""

    def __init__(self) -> None:
        self.last: Tensor | None = None

    def __call__(self, records: Records) -> tuple[Tensor, Tensor]:
        rows, before = features(records), self.last
        self.last = rows.mean(0)
        return (rows if before is None else rows + before), classes(records)


MIXING: dict[str, Callable[[Records], Any]] = {
    "MixUp": mixed_up,
    "mixed evenly": mixed_evenly,
    "centred": centred,
    "slightly centred": slightly_centred,
    "a record twice": first_again,
    "another order": reversed_order,
    "by their number": of_their_number,
    "with the last batch": WithTheLast(),
}


def refused(source: MapStyleSource, rows: int = 8) -> bool:
    with pytest.raises(InputError, match=FOUND):
        source.fetch(slice(0, rows))
    return True


@pytest.mark.parametrize("name", MIXING)
def test_a_collate_function_that_mixes_records_is_refused(name: str) -> None:
    assert refused(MapStyleSource(Sequences(), collate=MIXING[name]))


@pytest.mark.parametrize("collate", [filled_with_the_mean, cut_to_the_shortest])
def test_padding_made_of_the_records_is_refused(collate: Callable[[Records], Any]) -> None:
    assert refused(MapStyleSource(Sequences(lengths=True), collate=collate))


@pytest.mark.parametrize("name", [name for name in MIXING if name != "with the last batch"])
def test_a_data_set_whose_getitems_mixes_records_is_refused(name: str) -> None:
    def split(records: Records) -> Any:
        return list(zip(*MIXING[name](records), strict=True))

    assert refused(MapStyleSource(ByLists(split)))


def tokens(records: Records) -> tuple[Tensor, ...]:
    rows = pad_sequence([row for row, _ in records], batch_first=True)
    sizes = torch.tensor([len(row) for row, _ in records])
    return rows, torch.arange(rows.shape[1])[None] < sizes[:, None], sizes, classes(records)


def padded_left(records: Records) -> tuple[Tensor, Tensor]:
    return pad_sequence([row.flip(0) for row, _ in records], batch_first=True, padding_value=-1.0).flip(1), classes(records)


def normed(records: Records) -> tuple[Tensor, Tensor]:
    rows = pad_sequence([row for row, _ in records], batch_first=True)
    return rows / rows.norm(dim=1, keepdim=True), classes(records)


def taken_apart(records: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Some libraries' collators take labels out of the records that they are given."""
    labels = torch.stack([record.pop() for record in records])
    return torch.stack([record[0] for record in records]), labels


def nothing_known(records: Records) -> tuple[Tensor, Tensor]:
    return torch.where(features(records) > 1.5, torch.nan, features(records)), classes(records)


HONEST: dict[str, Callable[[Any], Any]] = {"padded": tokens, "padded left": padded_left, "normed": normed, "NaN": nothing_known}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_collate_function_passes(name: str) -> None:
    source = MapStyleSource(Sequences(lengths=name != "NaN"), collate=HONEST[name])
    for first in (0, 3, 7, 0, 5, 1, 9):
        assert len(source.fetch(slice(first, first + 7))[0]) == 7


def test_a_collate_function_that_takes_its_records_apart_passes() -> None:
    class Lists(Sequences):
        def __getitem__(self, index: int) -> Any:
            return list(self.rows[index])

    source = MapStyleSource(Lists(), collate=taken_apart)
    assert len(source.fetch(slice(0, 6))[1]) == 6


def test_padded_records_come_alone_as_well() -> None:
    batch = MapStyleSource(Sequences(lengths=True), collate=tokens).fetch(slice(0, 8))
    alone: dict[int, Any] = batch.alone  # pyright: ignore[reportAttributeAccessIssue]
    assert alone
    for record, (rows, mask, sizes, kind) in alone.items():
        assert rows.shape[1] == int(sizes[0]) == int(batch[1][record].sum())
        assert bool(mask.all())
        assert torch.equal(rows[0], batch[0][record, : rows.shape[1]])
        assert kind[0] == batch[3][record]


def test_random_numbers_are_to_be_declared_and_are_named() -> None:
    def noisy(records: Records) -> tuple[Tensor, Tensor]:
        return features(records) + torch.rand(len(records), 1), classes(records)

    with pytest.raises(InputError, match="cannot be found out: it makes another batch") as caught:
        MapStyleSource(Sequences(), collate=noisy).fetch(slice(0, 4))
    assert "declared_apart=True" in str(caught.value)
    source = MapStyleSource(Sequences(), collate=noisy, declared_apart=True)
    assert len(source.fetch(slice(0, 4))[0]) == 4
    assert "declared_apart=True: not looked at" in source.declared[0]
    assert "collate make" in source.declared[0]
    assert "not looked at" not in MapStyleSource(Sequences()).declared[0]
    assert "record i of Sequences" in MapStyleSource(Sequences()).declared[0]
    with pytest.raises(InputError, match="needs True or False"):
        MapStyleSource(Sequences(), declared_apart=1)  # pyright: ignore[reportArgumentType]


def test_random_augmentation_of_one_record_passes() -> None:
    class Noisy(Sequences):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return self.rows[index][0] + torch.rand(3), self.rows[index][1]

    for collate in (None, normed):
        source = MapStyleSource(Noisy(), collate=collate)
        assert len(source.fetch(slice(0, 9))[0]) == 9


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_it_is_found_while_a_run_reads_and_in_worker_processes(workers: int) -> None:
    run = lethe.Run(records=24, batches=lethe.Cyclic(size=8), passes=1, step_size=0.1, clip_norm=1.0, noise_multiplier=1.0, release="all")
    stream = BatchStream(run, MapStyleSource(Sequences(), collate=centred, workers=workers))
    with pytest.raises(InputError, match="of more than that record"):
        list(stream)


def often(source: MapStyleSource) -> None:
    for _ in range(100):
        source.fetch(slice(0, 8))


class Late:
    """Begins to mix at a batch of its own choice."""

    def __init__(self, begin: int) -> None:
        self.begin, self.seen = begin, 0

    def __call__(self, records: Records) -> tuple[Tensor, Tensor]:
        self.seen += len(records) == 8
        return (centred if self.seen >= self.begin else default_collate)(records)


def test_what_begins_late_is_found_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources.apart._ODDS", 2)
    source = MapStyleSource(Sequences(), collate=Late(40))
    with pytest.raises(InputError, match=FOUND):
        often(source)


def test_which_batches_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.core.comparison.chance.randrange", lambda count: count - 1, raising=False)
    apart, same = CollateCheck("collate"), (torch.zeros(8, 3),)
    assert [number for number in range(1, 40) if apart.due(same)] == [1, 2, 3, 4, 8, 16, 32]
    assert apart.due((torch.zeros(8, 4),))  # a new length
    assert not apart.due((torch.zeros(8, 4),))
    assert not apart.due((torch.zeros(1, 5),))


def test_padding_is_one_number_in_all_batches() -> None:
    padding, row = Padding(), torch.tensor([1.0, 2.0])
    assert padding.agree(row, torch.tensor([1.0, 2.0, 7.0]), 0)
    assert padding.agree(row, torch.tensor([7.0, 7.0, 1.0, 2.0]), 0)
    assert not padding.agree(row, torch.tensor([1.0, 2.0, 8.0]), 0)
    assert padding.agree(row, torch.tensor([1.0, 2.0, 8.0]), 1)
    assert not padding.agree(row, torch.tensor([1.0, 2.0, 8.0, 9.0]), 2)
    assert not padding.agree(row, torch.tensor([1.0, 2.5, 8.0]), 1)
    assert padding.agree(torch.ones(2, 2), torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0.0]]), 3)
    assert not padding.agree(row, torch.tensor([[1.0, 2.0]]), 4)
