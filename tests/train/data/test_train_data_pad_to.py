"""Padding to one fixed length: rows are functions of their records alone, and training takes them whatever the model does with padding."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.train.data import PadTo

RECORDS = 24


def tensors_of(pad: PadTo, records: list[Any]) -> tuple[Tensor, ...]:
    """What it makes of records without names."""
    padded = pad(records)
    assert isinstance(padded, tuple)
    return padded


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
    "words": (lambda: PadTo(length=1)([("a",)]), "no list of numbers"),
    "other keys": (lambda: PadTo(length=1, keys=("a",))([{"b": [1]}]), "has not the entries"),
    "another mask": (lambda: PadTo(length=4)([{"input_ids": [1, 2], "attention_mask": [1]}]), "disagree in length"),
    "keys of a tuple": (lambda: PadTo(length=1, keys=("a",))([([1],)]), "only mappings"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_padded_is_refused(name: str) -> None:
    made, match = REFUSED[name]
    with pytest.raises(InputError, match=match):
        made()
