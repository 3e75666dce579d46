"""Collate functions and data sets: refused where a row is made of other records than its own, left alone where it is not."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from data_cases import make_run
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from lethe.errors import InputError
from lethe.train.data.batches import BatchStream
from lethe.train.data.map_style import MapStyleSource

Records = list[tuple[Tensor, Tensor]]
FOUND = "of more than that record"


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

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
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
    "slightly centred": lambda records: (features(records) - 1e-6 * features(records).mean(0), classes(records)),
    "a record twice": lambda records: default_collate([records[0], *records[:-1]]),
    "by their number": lambda records: (features(records) / len(records), classes(records)),
    "with the last batch": WithTheLast(),
    "random": lambda records: (features(records) + torch.rand(len(records), 1), classes(records)),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_function_of_several_records_that_mixes_them_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"collate makes .*{FOUND}"):
        MapStyleSource(Sequences(), collate=MIXING[name]).fetch(slice(0, 8))
    if name != "with the last batch":
        with pytest.raises(InputError, match=f"ByLists.__getitems__ makes .*{FOUND}"):
            MapStyleSource(ByLists(lambda records: list(zip(*MIXING[name](records), strict=True)))).fetch(slice(0, 8))
    declared = MapStyleSource(Sequences(), collate=MIXING[name], declared_apart=True)
    assert len(declared.fetch(slice(0, 4))[0]) == 4
    assert "declared_apart=True: not looked at" in declared.declared[1]


@pytest.mark.parametrize("collate", [filled_with_the_mean, cut_to_the_shortest])
def test_padding_made_of_the_records_is_refused(collate: Callable[[Records], Any]) -> None:
    source = MapStyleSource(Sequences(lengths=True), collate=collate)
    with pytest.raises(InputError, match=FOUND):
        [source.fetch(slice(first, first + 8)) for first in (0, 8)]  # one batch's mean may be a number


def tokens(records: Records) -> tuple[Tensor, ...]:
    rows = pad_sequence([row for row, _ in records], batch_first=True)
    sizes = torch.tensor([len(row) for row, _ in records])
    return rows, torch.arange(rows.shape[1])[None] < sizes[:, None], sizes, classes(records)


def padded_left(records: Records) -> tuple[Tensor, Tensor]:
    return pad_sequence([row.flip(0) for row, _ in records], batch_first=True, padding_value=-1.0).flip(1), classes(records)


HONEST: dict[str, Callable[[Any], Any]] = {
    "padded": tokens,
    "padded left": padded_left,
    "normed": lambda records: (functional.normalize(tokens(records)[0]), classes(records)),
    "NaN": lambda records: (torch.where(features(records) > 1.5, torch.nan, features(records)), classes(records)),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_collate_function_passes(name: str) -> None:
    source = MapStyleSource(Sequences(lengths=name != "NaN"), collate=HONEST[name])
    for number, first in enumerate((0, 3, 7, 0, 5, 1, 9), start=1):
        batch = source.fetch(slice(first, first + 7))
        assert len(batch[0]) == 7
        for record, (rows, mask, sizes, kind) in batch.alone.items() if name == "padded" else ():
            assert rows.shape[1] == int(sizes[0]) == int(batch[1][record].sum()) == int(mask.sum())
            assert torch.equal(rows[0], batch[0][record, : rows.shape[1]])
            assert kind[0] == batch[3][record]
        assert bool(batch.alone) == (name != "NaN" and number in (1, 2, 4))


class Following(Sequences):
    """Each record has something of the one that was read before it."""

    def __init__(self, *, records: int, noise: float = 0.0) -> None:
        super().__init__(records)
        self.before, self.noise = torch.zeros(3), noise

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        before, self.before = self.before, self.rows[index][0]
        return self.rows[index][0] + 0.1 * before + self.noise * torch.rand(1).round(), self.rows[index][1]


@pytest.mark.parametrize("records", [3, 24, 100])
def test_a_data_set_that_remembers_the_record_before_is_refused(records: int) -> None:
    run = make_run("cyclic", records, 1)
    with pytest.raises(InputError, match="another when another record was read before it"):
        BatchStream(run, Following(records=records))
    BatchStream(run, Following(records=records, noise=1.0))  # random augmentation is no memory


ROWS = torch.arange(24.0).reshape(6, 4)


class Reusing:
    """Returns what `returned` makes of one array, which is filled anew for each record."""

    def __init__(self, returned: Callable[[Tensor, int], Any]) -> None:
        self._held, self._returned = torch.zeros(4), returned

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> Any:
        self._held.copy_(ROWS[index])
        return self._returned(self._held, index)


HELD = torch.zeros(2, 4)
RETURNED: dict[str, Callable[[Tensor, int], Any]] = {
    "array": lambda held, index: (held.numpy(), index),
    "view": lambda held, index: (held[:3], index),
    "nested": lambda held, index: [[held, held[1:]], index],
    "two in turn": lambda held, index: (HELD[index % 2].copy_(held), index),
    "its own": lambda held, index: (held.clone(), index),
}


@pytest.mark.parametrize("name", RETURNED)
def test_an_array_that_is_filled_anew_gives_each_record_its_own_row(name: str) -> None:
    def collate(records: list[Any]) -> tuple[Tensor, Tensor]:
        parts = [record[0][0] if isinstance(record[0], list) and isinstance(record[0][0], Tensor) else record[0] for record in records]
        return torch.stack([torch.as_tensor(part) for part in parts]), torch.tensor([record[1] for record in records])

    source = MapStyleSource(Reusing(RETURNED[name]), collate=collate)
    for wanted in ([0, 1, 2, 3, 4], [3, 1, 4]):
        rows, indices = source.fetch(torch.tensor(wanted))
        assert indices.tolist() == wanted
        assert torch.equal(rows, ROWS[wanted][:, : rows.shape[1]])
