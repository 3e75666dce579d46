"""Losses in loops of one's own and in `fit`: counts of the batch, kept batches and switches are refused; the rest is declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import CLASSES, CROSS_ENTROPY, Loop, fit_network, losses_of, make_data, make_network, make_network_run
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.errors import LetheError
from lethe.train.core.training_records import CONSTANTS, LOOP, STATE
from lethe.train.data.sources import TensorSource

RUN = make_network_run("cyclic", noise_multiplier=1.0)


def by_loop(criterion: Any) -> None:
    model = make_network()
    Loop(RUN, model=model, losses=losses_of(model, criterion)).whole()


class WithTheLast:
    """Pulls every record towards the last batch's mean; or in the gradient alone: the losses' values do not change."""

    def __init__(self, *, gradients_alone: bool = False) -> None:
        self.last: Tensor | None = None
        self.gradients_alone = gradients_alone

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        before, self.last = self.last, outputs.detach().mean(0)
        losses = CROSS_ENTROPY(outputs, targets)
        pulled = (
            outputs if before is None else (outputs - outputs.detach()) * before if self.gradients_alone else (outputs - before).square()
        )
        return losses if before is None else losses + pulled.sum(1)


class Kept(nn.Module):
    """A module that keeps the last batch in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(CLASSES, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = CROSS_ENTROPY(outputs, targets) + (outputs * self.get_buffer("last")).sum(1)
        self.get_buffer("last").copy_(outputs.detach().mean(0))
        return losses


MIXING: dict[str, Callable[[], Any]] = {
    "a count of the batch": lambda: lambda outputs, targets: CROSS_ENTROPY(outputs, targets) / (1 + (targets == 0).sum()),
    "the last batch": WithTheLast,
    "the last batch, in gradients alone": lambda: WithTheLast(gradients_alone=True),
    "the last batch, in a buffer": Kept,
}


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
@pytest.mark.parametrize("name", MIXING)
def test_a_loss_by_which_records_meet_is_refused(name: str) -> None:
    with pytest.raises(LetheError, match=r"depends on the other records|keeps what it saw|modified by an inplace"):
        by_loop(MIXING[name]())


def test_constants_and_what_is_a_record_s_own_are_left_alone() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def honest(outputs: Tensor, targets: Tensor) -> Tensor:
        tokens = (targets >= 0).double()
        each = functional.cross_entropy(outputs, targets, weight=weights, reduction="none", label_smoothing=0.1) * tokens * 0.5
        return each / tokens.clamp(min=1) + 0.1 * outputs.square().mean(1) / torch.tensor(3.0)

    by_loop(honest)
    model = make_network()  # a weight that follows a plan
    loop = Loop(RUN, model=model, losses=lambda batch: losses_of(model)(batch) + 0.1 * loop.engine.steps * model(batch[0]).square().mean(1))
    assert loop.whole().replace(seeded=False) == RUN


class Tagger(nn.Module):
    """A label for every word."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 9)
        self.double()

    def forward(self, words: Tensor) -> Tensor:
        return self.head(torch.tanh(self.words(words)))


def sentences(full: int = 0) -> tuple[Tensor, Tensor]:
    """Words 1..8, padded with 0, and labels, padded with -100; the first records may be full."""
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(1, 9, (24, 7), generator=generator)
    lengths = torch.randint(2, 7, (24,), generator=generator)
    lengths[:full] = 7
    words = words * (torch.arange(7) < lengths[:, None])
    return words, torch.where(words == 0, -100, words)


def of_tokens(outputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").sum(1)


TOKENS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "all": lambda outputs, labels: of_tokens(outputs, labels) / (labels != -100).sum(),
    "shifted": lambda outputs, labels: of_tokens(outputs[:, :-1], labels[:, 1:]) / (labels[:, 1:] != -100).sum(),
    "the mean": lambda outputs, labels: of_tokens(outputs, labels) / ((labels != -100).sum() / len(labels)),
    "own": lambda outputs, labels: of_tokens(outputs, labels) / (labels != -100).sum(1),
}


@pytest.mark.parametrize("full", [0, 6])
@pytest.mark.parametrize("name", TOKENS)
def test_losses_over_the_tokens_of_their_batch_are_refused_and_those_over_a_record_s_own_pass(name: str, full: int) -> None:
    model = Tagger()
    run = RUN.replace(records=24, batches=lethe.batches.Cyclic(6), steps=4)
    loop = Loop(run, model=model, losses=losses_of(model, TOKENS[name]), data=sentences(full))
    if name == "own":
        loop.whole()
        return
    with pytest.raises(LetheError, match="the loss of record"):
        loop.whole()
    assert loop.engine.steps <= 1  # of the mean over batches of full records the first says nothing


def test_what_is_not_seen_is_declared() -> None:
    class Rows(TensorSource):
        declared = ("these rows are apart",)

    class Unknown(TensorSource):
        pass

    loop = Loop(RUN)
    assert STATE.detail in loop.engine.declared
    assert LOOP.detail in loop.engine.declared  # what a loop mixes before backward
    loop.use(next(iter(loop.loader)))
    assert LOOP.detail in lethe.certify(loop.engine.record(), 1e-3).explain()
    done = fit_network(RUN, data=Rows(*make_data())).declared
    assert "these rows are apart" in done
    assert CONSTANTS.detail in done
    assert not any("engine.backward" in statement or ".fetch" in statement for statement in done)
    assert any("Unknown.fetch" in statement for statement in fit_network(RUN, data=Unknown(*make_data())).declared)


def test_training_to_which_nothing_contributed_says_so_and_not_how_many_did() -> None:
    features, targets = make_data()
    with pytest.warns(UserWarning, match="private: no record contributed to any step"):
        done = fit_network(RUN, data=(torch.full_like(features, torch.nan), targets))
    assert done.diagnostics.contributed is False
    nan = features.clone()
    nan[1:] = torch.nan
    assert fit_network(RUN, data=(nan, targets)).diagnostics.contributed is True
    masked = torch.full_like(targets, -100)  # PyTorch's label of what does not count: the loss is 0
    with pytest.warns(UserWarning, match="private: no record contributed to any step .* every gradient was 0.* all masked") as said:
        assert fit_network(RUN, data=(features, masked)).diagnostics.contributed is False
    assert not any(str(len(masked)) in str(one.message) for one in said)
    loop = Loop(RUN)
    assert loop.engine.diagnostics is None
    loop.whole()
    assert loop.engine.diagnostics is not None
    assert loop.engine.diagnostics.contributed is True
