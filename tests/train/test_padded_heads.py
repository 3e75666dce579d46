"""Heads on frozen backbones: collate functions that mix records, and padding that counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.train import Fitted, fit_head
from lethe.train.data import MapStyleSource


class Sentences:
    """Words of different lengths, and a class."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.arange(1, 2 + index % 4).double() + index, torch.tensor(index % 2)


def padded(records: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    return nn.utils.rnn.pad_sequence([words for words, _ in records], batch_first=True), torch.stack([kind for _, kind in records])


class Pooled(nn.Module):
    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = (words != 0).double() if self.masked else torch.ones_like(words)
        mean = (words * mask).sum(1) / mask.sum(1)
        return torch.stack([mean, mean.cos()], dim=1)


def head_on(collate: Any, *, masked: bool = True) -> Fitted[nn.Sequential]:
    loss = lethe.losses.Softmax(feature_norm=1.0, intercept=True, evidence="enforced")
    run = lethe.Run(records=12, batches=lethe.Cyclic(size=4), passes=1, step_size=0.5, noise_multiplier=1.0, loss=loss, release="last")
    return fit_head(Pooled(masked=masked), nn.Linear(2, 2), MapStyleSource(Sentences(), collate=collate), run, physical_size=6)


def test_collate_functions_that_mix_records_and_padding_that_counts_are_refused() -> None:
    def centred(records: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        words, kinds = padded(records)
        return words - words.mean(0), kinds

    assert "record i of Sentences is made of record i alone" in " ".join(head_on(padded).declared)
    with pytest.raises(InputError, match="of more than that record"):
        head_on(centred)
    with pytest.raises(HypothesisError, match="depend on how far its batch is padded"):
        head_on(padded, masked=False)
