"""Batches that are padded to their longest, and those that worker processes read: a record is what it is alone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from data_cases import Listed, by_step, numbered, oracle, seeded
from data_cases import make_run as data_run
from doors import arguments, fit_head
from helpers import make_run
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.run.run import Run
from lethe.train import Fitted, fit
from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.map_style import MapStyleSource
from lethe.train.data.sources import fetched

RECORDS, WORDS = 24, 7


class Sentences:
    """Words 1..6, up to 9 of them, and a class."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        random = np.random.default_rng(index)
        return torch.from_numpy(random.integers(1, WORDS, size=1 + 2 * (index % 5))), torch.tensor(index % 3)


def collated(records: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return pad_sequence([words for words, _ in records], batch_first=True), torch.stack([kind for _, kind in records])


class Mean(nn.Module):
    """The mean of the words' vectors, of the padding's too unless it is masked; the head begins at 0, and outputs say nothing."""

    def __init__(self, *, masked: bool) -> None:
        super().__init__()
        self.table, self.head, self.masked = nn.Embedding(WORDS, 5), nn.Linear(5, 3), masked
        nn.init.zeros_(self.head.weight)

    def pooled(self, words: Tensor) -> Tensor:
        mask = (words != 0).unsqueeze(2) if self.masked else torch.ones_like(words, dtype=torch.bool).unsqueeze(2)
        return (self.table(words) * mask).sum(1) / mask.sum(1)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.pooled(words))


class Tagger(nn.Module):
    """A vector for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, 5), nn.Linear(5, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.table(words))


def entropies(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


def of_words(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over all places, padding included."""
    return functional.cross_entropy(outputs.transpose(1, 2), targets[:, None].expand(outputs.shape[:2]), reduction="none").mean(1)


def run(**changes: Any) -> lethe.Run:
    steps = {"passes": 1, "step_size": 0.1, "clip_norm": 1.0, "noise_multiplier": 1.0, "release": "all", "loss": {"kind": "unknown"}}
    return make_run(**{"records": RECORDS, "batches": lethe.batches.Cyclic(8), **steps, **changes})


def source(**options: Any) -> MapStyleSource:
    return MapStyleSource(Sentences(), collate=collated, **options)


def fitted(model: nn.Module, loss: Callable[[Any, Any], Tensor], **options: Any) -> Fitted[nn.Module]:
    return fit(model, loss, source(), run(), **arguments(options))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 4])
def test_fit_refuses_a_mean_over_the_padding(physical_size: int | None) -> None:
    with pytest.raises(InputError, match="padded"):
        fitted(Mean(masked=False), entropies, physical_size=physical_size)
    assert fitted(Mean(masked=True), entropies, physical_size=physical_size).diagnostics.gradients is not None


def test_fit_refuses_a_loss_that_counts_the_padding() -> None:
    with pytest.raises(InputError, match="padded"):
        fitted(Tagger(), of_words)


def test_it_is_looked_at_in_batches_that_worker_processes_read() -> None:
    with pytest.raises(InputError, match="padded"):
        fit(Mean(masked=False), entropies, source(num_workers=1), run())


class Pooled(Mean):
    """A backbone without a head."""

    def forward(self, words: Tensor) -> Tensor:
        return self.pooled(words)


def test_so_it_is_of_the_features_of_a_backbone() -> None:
    def head_on(collate: Any, *, masked: bool = True) -> Fitted[nn.Sequential]:
        loss = lethe.losses.Softmax(feature_norm=1.0, intercept=True, evidence="enforced")
        told = run(batches=lethe.batches.Cyclic(4), clip_norm=None, loss=loss, release="last")
        return fit_head(
            Pooled(masked=masked).requires_grad_(False),
            nn.Linear(5, 3),
            MapStyleSource(Sentences(), collate=collate),
            told,
            physical_size=6,
        )

    def centred(records: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        words, kinds = collated(records)
        return words - words.float().mean(0).long(), kinds

    assert "record i of Sentences is made of record i alone" in " ".join(head_on(collated).declared)
    with pytest.raises(InputError, match="of more than that record"):
        head_on(centred)
    with pytest.raises(HypothesisError, match="depend on how far its batch is padded"):
        head_on(collated, masked=False)


def stream(run: Run, seed: int = 0, data: Any = None, **changes: Any) -> BatchStream:
    return BatchStream(run, numbered(run.records) if data is None else data, seeded(seed), **changes)


def test_worker_processes_give_the_same_batches() -> None:
    run = data_run("poisson", records=12, size=2, steps=25)
    before = torch.random.get_rng_state()
    source = MapStyleSource(Listed(12), num_workers=1)
    assert by_step(stream(run, data=source, physical_size=3)) == dict(enumerate(oracle(run), start=1))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_source_comes_in_its_place_and_the_rest_can_follow(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources._SAMPLES", 8)  # record 8 is none of them
    before = set(multiprocessing.active_children())
    run, dataset, got = data_run("cyclic", records=12, size=3, passes=1), Listed(12, fails_at=8), list[LoadedBatch]()
    batches = stream(run, data=MapStyleSource(dataset, num_workers=workers))
    with pytest.raises(OSError, match="record 8 cannot be read"):
        got.extend(batches)
    assert batches.steps_done == 2
    dataset.fails_at = None
    for batch in batches:
        got.append(batch)
        break
    batches.close()
    assert set(multiprocessing.active_children()) <= before
    got.extend(batches)
    assert by_step(got) == dict(enumerate(oracle(run), start=1))


class Dropping(Listed):
    """Reads several records at once, and leaves out those it does not like."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices if index != 4]


def test_a_data_set_that_drops_records_is_refused_in_worker_processes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.data.sources._SAMPLES", 8)  # of 10 records
    source = MapStyleSource(Dropping(10), num_workers=1)
    for rows in (slice(3, 6), slice(4, 5)):
        with pytest.raises(InputError, match=r"3 rows, one for each record|of 0 records it makes no batch"):
            fetched(source, rows)
    with pytest.raises(InputError, match="5 rows, one for each record"):
        list(BatchStream(data_run("cyclic", 10, 5, passes=1), source))
