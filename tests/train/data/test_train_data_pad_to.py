"""Padding to one fixed length: rows are functions of their records alone, and training takes them whatever the model does with padding."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

import lethe
from lethe.errors import InputError
from lethe.train import fit
from lethe.train.core.comparison import chance
from lethe.train.data import MapStyleSource, PadTo

RECORDS = 24


class Sentences:
    """Words 1..6 of many lengths, and a class; the first records are all of one length."""

    def __init__(self, alike: int = 0) -> None:
        self.alike = alike

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        length = 9 if index < self.alike else 1 + 2 * (index % 5)
        return torch.from_numpy(np.random.default_rng(index).integers(1, 7, size=length)), torch.tensor(index % 3)


def tensors_of(pad: PadTo, records: list[Any]) -> tuple[Tensor, ...]:
    """What it makes of records without names."""
    padded = pad(records)
    assert isinstance(padded, tuple)
    return padded


class Mean(nn.Module):
    """A mean of the words' vectors that counts the padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(7, 5), nn.Linear(5, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words).mean(1))


def longest(records: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return pad_sequence([words for words, _ in records], batch_first=True), torch.stack([kind for _, kind in records])


def run() -> lethe.Run:
    fields: dict[str, Any] = {"records": RECORDS, "batches": lethe.Cyclic(size=4), "passes": 1, "step_size": 0.1, "clip_norm": 1.0}
    return lethe.Run(**fields, noise_multiplier=1.0, release="all")


def entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def trained(collate: Any, alike: int = 0) -> list[int]:
    done: list[int] = []
    fit(Mean(), entropies, MapStyleSource(Sentences(alike), collate=collate), run(), progress=lambda step, steps: done.append(step))
    return done


@pytest.mark.slow
def test_a_mean_over_the_padding_is_trained_where_all_are_padded_to_one_length() -> None:
    assert trained(PadTo(length=9)) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_padding_to_the_longest_is_refused_in_the_first_batch_that_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number 5, of a shape that was there before, at which nothing else looks."""
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)
    done: list[int] = []
    sentences = Sentences(alike=17)
    with pytest.raises(InputError, match="depends on how far its batch is padded"):
        fit(
            Mean(), entropies, MapStyleSource(sentences, collate=longest), run(), progress=lambda step, steps: done.append(step)
        )  # records 17 and 18 have 5 and 7 words, 19 has 9
    assert done == [1, 2, 3, 4]


def test_rows_are_what_the_records_say() -> None:
    pad = PadTo(length=4, values={1: -1})
    words, weights, kind = tensors_of(pad, [([1, 2], np.ones((2, 3)), 7), (torch.tensor([3]), torch.zeros(1, 3), 8)])
    assert words.tolist() == [[1, 2, 0, 0], [3, 0, 0, 0]]
    assert weights.shape == (2, 4, 3)
    assert weights[1, :, 0].tolist() == [0, -1, -1, -1]
    assert kind.tolist() == [7, 8]
    left = PadTo(length=3, side="left", truncate=True)
    assert tensors_of(left, [[1, 2, 3, 4]])[0].tolist() == [1]  # a record that is a list holds entries, not places
    assert tensors_of(left, [torch.tensor([1, 2, 3, 4]), torch.tensor([5])])[0].tolist() == [[2, 3, 4], [0, 0, 5]]


def test_mappings_are_taken_by_their_keys() -> None:
    records = [{"input_ids": [1, 2], "label": 1, "text": "ab"}, {"input_ids": [3], "label": 0, "text": "c"}]
    words, label = tensors_of(PadTo(length=3, keys=("input_ids", "label"), value=9), records)
    assert words.tolist() == [[1, 2, 9], [3, 9, 9]]
    assert label.tolist() == [1, 0]
    assert pickle.loads(pickle.dumps(PadTo(length=3))) == PadTo(length=3)


REFUSED: dict[str, tuple[Any, str]] = {
    "no length": (lambda: PadTo(length=0), "length"),
    "a side": (lambda: PadTo(length=2, side="middle"), "side"),
    "truncate": (lambda: PadTo(length=2, truncate=1), "truncate"),  # pyright: ignore[reportArgumentType]
    "too long": (lambda: PadTo(length=1)([torch.tensor([1, 2])]), "at most 1"),
    "no records": (lambda: PadTo(length=1)([]), "records"),
    "words": (lambda: PadTo(length=1)([("a",)]), "no tensor"),
    "other keys": (lambda: PadTo(length=1, keys=("a",))([{"b": [1]}]), "no entry"),
    "another mask": (lambda: PadTo(length=4)([{"input_ids": [1, 2], "attention_mask": [1]}]), "disagree in length"),
    "keys of a tuple": (lambda: PadTo(length=1, keys=("a",))([([1],)]), "only mappings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_padded_is_refused(name: str) -> None:
    made, match = REFUSED[name]
    with pytest.raises(InputError, match=match):
        made()
