"""Models that keep what they saw first: found before anything is added; what follows from shapes and chance may be kept."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from per_record import clipped, rows
from torch import Tensor, nn

from lethe.errors import HypothesisError
from lethe.train.clipping import Clipper
from lethe.train.clipping.checks import first_batch
from lethe.train.clipping.checks.first_batch import FirstBatch
from lethe.train.clipping.checks.replaced_batch import Given


class Keeping(nn.Module):
    """What `kept` makes of the first batch goes into the model's own dictionary, and from there into every batch.

    Args:
        kept: of the rows.
        once: asks the model whether to keep it now.
        used: the rows, with what was kept.
        head: whether the last layer is all zeros, so that outputs tell nothing.
    """

    def __init__(
        self,
        kept: Callable[[Tensor], Any],
        *,
        once: Callable[[nn.Module], bool] = lambda model: True,
        used: Callable[[Tensor, Any], Tensor] = lambda given, kept: given - kept,
        zeros: bool = False,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()
        if zeros:
            nn.init.zeros_(self.head.weight)
        self.rule, self.once, self.used, self.seen = kept, once, used, dict[str, Any]()

    def forward(self, given: Tensor) -> Tensor:
        if "it" not in self.seen and self.once(self):
            self.seen["it"] = self.rule(given.detach())
        return self.head(torch.tanh(self.first(self.used(given, self.seen["it"]) if "it" in self.seen else given)))


LEARNED: dict[str, Callable[[], nn.Module]] = {
    "a tensor": lambda: Keeping(lambda given: given.mean(0)),
    "a number": lambda: Keeping(lambda given: float(given.std()), used=lambda given, kept: given / kept),
    "one record": lambda: Keeping(lambda given: given[-1].clone()),
    "before a head of zeros": lambda: Keeping(lambda given: given.mean(0), zeros=True),
    "with gradients enabled only": lambda: Keeping(lambda given: given.mean(0), once=lambda model: torch.is_grad_enabled()),
    "behind dropout": lambda: nn.Sequential(nn.Dropout(0.3), Keeping(lambda given: given.mean(0))),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LEARNED)
def test_what_is_learned_of_the_first_batch_is_refused(name: str) -> None:
    with pytest.raises(HypothesisError, match="keeps what it saw"):
        clipped(Clipper(LEARNED[name]()), rows())


@pytest.mark.slow
def test_it_is_refused_again_when_it_is_tried_again() -> None:
    clipper = Clipper(Keeping(lambda given: given.mean(0)))
    for seed in range(3):
        with pytest.raises(HypothesisError, match="keeps what it saw"):
            clipped(clipper, rows(seed=seed))


def test_a_first_batch_of_one_record_hides_nothing() -> None:
    clipper = Clipper(Keeping(lambda given: given.mean(0)))
    clipped(clipper, rows(1))
    with pytest.raises(HypothesisError, match="keeps what it saw"):
        clipped(clipper, rows())


class Tokens(nn.Module):
    """The first token of the first batch is left out of all of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.common = nn.Embedding(20, 4).double(), None

    def forward(self, tokens: Tensor) -> Tensor:
        if self.common is None:
            self.common = tokens[0, 0].clone()
        return self.table(tokens) * (tokens != self.common)[..., None]


@pytest.mark.nightly(by_day="test_what_is_learned_of_the_first_batch_is_refused")
@pytest.mark.slow
def test_tokens_are_remembered_no_better() -> None:
    for _ in range(24):  # whichever records are looked at, in whichever order
        with pytest.raises(HypothesisError, match="keeps what it saw"):
            clipped(Clipper(Tokens()), torch.arange(18).view(6, 3))


class OfLargeBatches(Keeping):
    """Keeps something of a batch that is large enough only, as what looks for as many centres does."""

    def forward(self, given: Tensor) -> Tensor:
        if "it" in self.seen or len(given) == 16:
            return super().forward(given)
        return self.head(torch.tanh(self.first(given)))


@pytest.mark.slow
def test_what_is_learned_of_large_batches_only_is_refused() -> None:
    for seed in range(4):
        with pytest.raises(HypothesisError, match="keeps what it saw"):
            clipped(Clipper(OfLargeBatches(lambda given: given.mean(0))), rows(16, seed=seed))


ELSEWHERE: dict[str, Tensor] = {}


class Elsewhere(nn.Module):
    """Its memory is in a dictionary that its code names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3).double()

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given - ELSEWHERE.setdefault("mean", given.detach().mean(0)))


def test_what_is_kept_outside_of_the_model_is_found_as_well() -> None:
    ELSEWHERE.clear()
    with pytest.raises(HypothesisError, match="keeps what it saw"):
        clipped(Clipper(Elsewhere()), rows())
    assert not ELSEWHERE


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(2, 3, batch_first=True).double()

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given.view(-1, 2, 2))[0]


HONEST: dict[str, Callable[[], nn.Module]] = {
    "a table made for a shape": lambda: Keeping(lambda given: torch.arange(4.0).double().sin()),
    "a projection drawn when it is needed": lambda: Keeping(lambda given: torch.randn(4).double()),
    "what it saw last, for a picture": lambda: Keeping(lambda given: given.clone(), used=lambda given, kept: given),
    "old weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3).double())),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8).double(), nn.Dropout(0.5), nn.Linear(8, 2).double()),
    "lstm": Recurrent,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", HONEST)
def test_what_tells_nothing_of_records_may_be_kept(name: str) -> None:
    torch.manual_seed(0)
    clipper = Clipper(HONEST[name]())
    for seed in range(3):
        clipped(clipper, rows(seed=seed))
    assert clipper.verified == "checked"


def test_a_model_that_cannot_be_copied_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 3).double())
    model.lock = threading.Lock()  # pyright: ignore[reportArgumentType]
    with pytest.warns(UserWarning, match="the model cannot be copied"):
        clipped(clipper := Clipper(model), rows())
    assert "cannot be copied" in str(clipper.verified)


def test_copies_share_the_parameters_and_leave_the_model_as_it_was() -> None:
    model = Keeping(lambda given: torch.zeros(4).double())
    before = torch.get_rng_state()
    clipper, held = Clipper(model), []
    model.first.register_forward_hook(lambda module, args, output: held.append(module.weight))  # pyright: ignore
    clipped(clipper, rows())
    assert {weight.data_ptr() for weight in held} == {model.first.weight.data_ptr()}
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


class AddedInAnyOrder(torch.autograd.Function):
    """As a GPU adds: a gradient that is rounded otherwise each time."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        last_bits = (torch.arange(gradient.numel()) * 5 + next(COUNT) % WAYS[0] * 7) % 9 - 4
        return gradient * (1 + 2.3e-16 * last_bits.double().view(gradient.shape))


COUNT, WAYS = itertools.count(), {0: 9}
"""How many gradients were taken, and in how many ways one is rounded."""


class Attending(nn.Module):
    """A bias of keys adds the same to all scores of a query, which softmax does not see: its gradient is 0 but for rounding."""

    def __init__(self, remembers: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.head = (nn.Linear(4, 4).double() for _ in range(3))
        self.remembers, self.seen = remembers, dict[str, Tensor]()

    def forward(self, given: Tensor) -> Tensor:
        kept = self.seen.setdefault("it", given.detach().mean(0)) if self.remembers else 0.0
        scores = AddedInAnyOrder.apply(self.query(given - kept) @ self.key(given - kept).mT)
        return self.head(scores.softmax(2) @ given).mean(1)


@pytest.mark.parametrize("ways", [2, 3, 9])
@pytest.mark.parametrize("remembers", [False, True])
def test_rounding_in_another_order_each_time_is_no_memory(remembers: bool, ways: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WAYS, 0, ways)  # of two, the one is met again by chance
    clipper, batch = Clipper(Attending(remembers), clip_norm=1.0), torch.randn(6, 5, 4, dtype=torch.float64)
    if remembers:
        with pytest.raises(HypothesisError, match="it keeps what it saw"):
            clipped(clipper, batch)
    else:
        clipped(clipper, batch)
        assert clipper.verified == "checked"


@pytest.mark.parametrize(("told", "verified"), [(-1e-17, True), (1e-3, False)])
def test_a_gradient_that_is_rounding_only_hides_no_memory(told: float, verified: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is another one each time, what was told after others must be rounding as well."""
    answers = itertools.cycle([1e-17, 2e-17, 3e-17])

    def shown(check: FirstBatch, few: Given, before: Iterable[Given], rewind: object, mode: object) -> list[Tensor]:
        rounding = next(answers) if isinstance(before, list) else told
        return [torch.ones(2, 1, dtype=torch.float64), torch.tensor([[rounding]], dtype=torch.float64)]

    monkeypatch.setattr(FirstBatch, "_shown", shown)
    monkeypatch.setattr(first_batch, "_told", lambda model, output, records: [torch.zeros(2, 1, dtype=torch.float64)])
    check = FirstBatch(nn.Linear(1, 1))
    check.begin()
    monkeypatch.setattr(first_batch, "_alike", lambda given: False)
    monkeypatch.setattr(first_batch, "_others", lambda given: iter(()))
    few: Any = SimpleNamespace(records=2, precision=torch.float64)
    nothing: Any = SimpleNamespace(model=lambda: None)
    check.check(few, few, None, nothing, nothing)
    assert check.over is verified
    assert (check.reason is None) is verified
