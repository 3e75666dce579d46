"""Losses over the tokens of their batch: refused in the first batch, however they are computed, and where first all lengths are equal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lethe.train.clipping import Clipper
from lethe.train.clipping.checks.shared_numbers import counted_tokens, may_count, token_counts
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.errors import InputError
from lethe.train import PrivacyEngine, fit
from lethe.train.core.comparison import chance

RECORDS, PLACES, CLIP = 24, 7, 0.1


class Tagger(nn.Module):
    """A label for every word."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 9)
        self.double()

    def forward(self, words: Tensor) -> Tensor:
        return self.head(torch.tanh(self.words(words)))


def data(full: int = 0) -> tuple[Tensor, Tensor]:
    """Words 1..8, padded with 0, and labels, padded with -100; the first records may be full."""
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(1, 9, (RECORDS, PLACES), generator=generator)
    lengths = torch.randint(2, PLACES, (RECORDS,), generator=generator)
    lengths[:full] = PLACES
    words = words * (torch.arange(PLACES) < lengths[:, None])
    return words, torch.where(words == 0, -100, words)


def run() -> lethe.Run:
    fields: dict[str, Any] = {"records": RECORDS, "batches": lethe.Cyclic(size=6), "passes": 1, "step_size": 0.1, "clip_norm": CLIP}
    return lethe.Run(**fields, noise_multiplier=1.0, release="all", neighbours="zero_out")


def of_tokens(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").sum(1)


def own(outputs: Tensor, labels: Tensor) -> Tensor:
    return of_tokens(outputs, labels) / (labels != -100).sum(1)


def of_all(outputs: Tensor, labels: Tensor) -> Tensor:
    return of_tokens(outputs, labels) / (labels != -100).sum()


def of_the_mean(outputs: Tensor, labels: Tensor) -> Tensor:
    """Over the mean number of tokens: where all are full, each record alone has that number."""
    return of_tokens(outputs, labels) / ((labels != -100).sum() / len(labels))


def captured(engine: PrivacyEngine, outputs: Tensor, labels: Tensor) -> Tensor:
    tokens = int((labels != -100).sum())
    return engine.losses(lambda outputs, labels: of_tokens(outputs, labels) / tokens, outputs, labels)


def shifted(engine: PrivacyEngine, outputs: Tensor, labels: Tensor) -> Tensor:
    """As language models do: the first place has no label."""
    return of_tokens(outputs[:, :-1], labels[:, 1:]) / (labels[:, 1:] != -100).sum()


WAYS: dict[str, Callable[[PrivacyEngine, Tensor, Tensor], Tensor]] = {
    "beside engine.losses": lambda engine, outputs, labels: of_all(outputs, labels),
    "a number, beside": lambda engine, outputs, labels: of_tokens(outputs, labels) / int((labels != -100).sum()),
    "a factor in float32": lambda engine, outputs, labels: of_tokens(outputs, labels) * (1 / (labels != -100).sum().float()),
    "within": lambda engine, outputs, labels: engine.losses(of_all, outputs, labels),
    "captured": captured,
    "divided afterwards": lambda engine, outputs, labels: engine.losses(of_tokens, outputs, labels) / (labels != -100).sum(),
    "shifted": shifted,
}


def steps(losses: Callable[[PrivacyEngine, Tensor, Tensor], Tensor], full: int) -> int:
    """How many steps a loop takes."""
    engine = PrivacyEngine(run())
    model = Tagger()
    model, optimizer, loader = engine.make_private(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), data=data(full))
    for words, labels in loader:
        with engine.recording():
            told = losses(engine, model(words), labels)
        engine.backward(told)
        optimizer.step()
        optimizer.zero_grad()
    return engine.steps


@pytest.mark.sampled(3)
@pytest.mark.parametrize("full", [0, 6])
@pytest.mark.parametrize("way", WAYS)
def test_the_engine_refuses_the_first_batch(way: str, full: int) -> None:
    with pytest.raises(InputError, match=r"which counts the entries|the loss of record") as caught:
        steps(WAYS[way], full)
    assert "own" in str(caught.value)


@pytest.mark.nightly(by_day="test_an_honest_loss_passes_without_a_word")
@pytest.mark.slow
def test_the_mean_over_a_record_s_own_tokens_passes() -> None:
    for full in (0, 6):
        assert steps(lambda engine, outputs, labels: engine.losses(own, outputs, labels), full) == 4
        assert steps(lambda engine, outputs, labels: own(outputs, labels), full) == 4
    assert fit(Tagger(), own, data(), run()).run.total_steps == 4


@pytest.mark.slow
def test_fit_refuses_the_first_batch() -> None:
    for loss in (of_all, of_the_mean):
        with pytest.raises(InputError, match="the loss of record"):
            fit(Tagger(), loss, data(), run())


@pytest.mark.slow
def test_fit_refuses_the_first_batch_whose_lengths_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third, at which nothing else looks."""
    monkeypatch.setattr(chance, "randrange", lambda count: count - 1)
    done: list[int] = []
    with pytest.raises(InputError, match="the loss of record"):
        fit(Tagger(), of_the_mean, data(full=12), run(), progress=lambda step, count: done.append(step))
    assert len(done) == 2


@pytest.mark.slow
def test_a_number_in_a_function_made_anew_may_not_change_unseen() -> None:
    """No count of these tokens: only that it changes is seen."""
    weights = iter((1.5, 1.25, 1.75, 1.0))

    def weighed(engine: PrivacyEngine, outputs: Tensor, labels: Tensor) -> Tensor:
        weight = next(weights)
        return engine.losses(lambda outputs, labels: own(outputs, labels) * weight, outputs, labels)

    with pytest.raises(InputError, match="a number that all records of the batch share was"):
        steps(weighed, 0)


def moved(others: int) -> float:
    """How far, in C, a record of seven words moves the sum over others of two words each, all alike."""
    words = torch.tensor([[1, 2, 0, 0, 0, 0, 0]] * (others + 1))
    words[0] = torch.tensor([3, 4, 5, 6, 7, 8, 3])
    labels = torch.where(words == 0, -100, words)

    def summed(first: int, norm: float) -> tuple[Tensor, Clipper]:
        clipper = Clipper(Tagger(), clip_norm=norm, verify=False)
        with clipper.recording():
            outputs = clipper.model(words[first:])
        clipper.backward(of_all(outputs, labels[first:]))
        return torch.cat([tensor.flatten() for tensor in clipper.take().values()]), clipper

    norms = summed(1, 1e9)[1].last_norms
    assert norms is not None
    norm = float(norms.max())
    return float((summed(0, norm)[0] - summed(1, norm)[0]).norm()) / norm


def test_unrefused_one_record_would_move_the_sum_by_more_than_its_bound() -> None:
    assert moved(8) > 2
    assert moved(32) > 2.5


@pytest.mark.parametrize("records", [2, 16])
def test_no_number_that_counts_tokens_is_passed_over(records: int) -> None:
    words = torch.zeros(records, 1000, dtype=torch.int64)
    words[:, : 7 * records] = 3
    batch = words, torch.zeros(records)
    counts = token_counts(batch)
    for _, count in counts:
        for value in (count, 1 / count, -count * (1 + 9e-7), (1 - 9e-7) / count):
            assert counted_tokens(value, counts)
            assert may_count(value, batch)
    assert not any(may_count(value, batch) for value in (0.0, 1.0, 0.5, 2.0, 0.044715, math.inf, math.nan, 5e-324, 33.3))
