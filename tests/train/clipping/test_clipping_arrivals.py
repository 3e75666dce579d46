"""Layers that are made into parts within the backward pass, one after another."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping import Clipper, contributions
from lethe.train.clipping.records.arrivals import Arrivals
from lethe.train.clipping.rules.outer_products import OuterProducts
from lethe.train.clipping.unfollowed import UnfollowedError

RECORDS, LENGTH, WIDTH = 5, 24, 6


class Tied(nn.Module):
    """A layer used twice, one whose weight the head shares, a bare parameter, a weight read elsewhere, and a layer without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.twice, self.own = nn.Embedding(11, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm, self.head, self.unused = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 11, bias=False), nn.Linear(WIDTH, 3)
        self.scale, self.head.weight = nn.Parameter(torch.rand(WIDTH)), self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.scale * self.embedding(tokens)
        self.unused(hidden)
        hidden = self.norm(hidden + self.twice(torch.tanh(self.twice(hidden))))
        hidden = hidden + self.own(hidden) + nn.functional.linear(hidden, self.own.weight)
        return self.head(hidden).mean(1)


def problem() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return Tied().double(), torch.randint(11, (RECORDS, LENGTH)), torch.randint(11, (RECORDS,))


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(inputs), targets, reduction="none")


def by_hand(model: nn.Module, inputs: Tensor, targets: Tensor, clip_norm: float) -> list[Tensor]:
    parameters = list(model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for row in range(len(inputs)):
        found = torch.autograd.grad(loss_of(model, inputs[row : row + 1], targets[row : row + 1]).sum(), parameters, allow_unused=True)
        own = [torch.zeros_like(one) if part is None else part for one, part in zip(parameters, found, strict=True)]
        factor = min(1.0, clip_norm / float(torch.stack([part.square().sum() for part in own]).sum().sqrt()))
        total = [one + factor * part for one, part in zip(total, own, strict=True)]
    return total


@pytest.mark.parametrize("memory", [None, 0, 3000])
def test_sums_are_those_of_single_records(memory: int | None) -> None:
    """3000 bytes hold the gradients of some layers."""
    model, inputs, targets = problem()
    clipper = Clipper(model, clip_norm=0.1, verify=False, gradient_memory=memory)
    with clipper.recording():
        losses = loss_of(model, inputs, targets)
    clipper.backward(losses)
    sums = clipper.take()
    for parameter, expected in zip(model.parameters(), by_hand(model, inputs, targets, 0.1), strict=True):
        torch.testing.assert_close(sums[parameter], expected, rtol=1e-9, atol=1e-12)


def test_a_layer_that_only_an_input_of_the_user_s_leads_to_is_told() -> None:
    """Its output requires a gradient by itself, so that no anchor of the recording is behind it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    inputs, targets = torch.randn(RECORDS, 4, dtype=torch.float64, requires_grad=True), torch.randint(2, (RECORDS,))
    clipper = Clipper(model, clip_norm=0.1, verify=False)
    with clipper.recording():
        losses = loss_of(model, inputs, targets)
    clipper.backward(losses)
    sums = clipper.take()
    assert inputs.grad is None
    for parameter, expected in zip(model.parameters(), by_hand(model, inputs.detach(), targets, 0.1), strict=True):
        torch.testing.assert_close(sums[parameter], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("memory", [None, 0])
def test_factors_are_let_go_of_before_the_layers_below_are_computed(memory: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    made: list[OuterProducts] = []
    settle = OuterProducts.settle

    def spied(self: OuterProducts) -> None:
        settle(self)
        made.append(self)
        held.append(sum(part.inputs.numel() + part.gradients.numel() for part in made))

    monkeypatch.setattr(OuterProducts, "settle", spied)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    clipper = Clipper(model, clip_norm=0.1, verify=False, gradient_memory=memory)
    with clipper.recording():
        losses = model(torch.randn(RECORDS, 10 * LENGTH, WIDTH)).square().mean((1, 2))
    clipper.backward(losses)
    one = 2 * RECORDS * 10 * LENGTH * WIDTH
    assert held == ([0] * 4 if memory is None else [one, 2 * one, 3 * one, 4 * one])


def test_a_backward_pass_that_went_past_a_layer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs, targets = problem()
    clipper = Clipper(model, clip_norm=0.1, verify=False)
    with clipper.recording():
        losses = loss_of(model, inputs, targets)
    grad: Callable[..., Any] = torch.autograd.grad
    # Without the anchors that stand at the graph's ends.
    monkeypatch.setattr(contributions.torch.autograd, "grad", lambda total, wanted, **given: grad(total, wanted[:1], **given) * len(wanted))
    with pytest.raises(UnfollowedError, match="the backward pass told no gradient"):
        clipper.backward(losses)


def test_hooks_are_taken_off_after_an_error() -> None:
    leaf = torch.ones(2, requires_grad=True)
    seen: list[nn.Module] = []
    arrivals = Arrivals({}, set(), lambda module, told: seen.append(module))
    with pytest.raises(ZeroDivisionError), arrivals.awaited():
        raise ZeroDivisionError
    (leaf * 2).sum().backward()
    assert not seen


@pytest.mark.parametrize("memory", [-1, 1.5, True, "1G"])
def test_a_memory_that_is_no_number_of_bytes_is_refused(memory: Any) -> None:
    with pytest.raises(InputError, match="gradient_memory: got"):
        Clipper(nn.Linear(2, 2), gradient_memory=memory)
