"""Layers that are made into parts within the backward pass, one after another."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.clipping import Clipper, contributions
from lethe.train.clipping.checks.graphs import nodes_of
from lethe.train.clipping.records.arrivals import Arrivals
from lethe.train.clipping.rules.linear import LinearGradients
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
        losses = loss_of(model, inputs[row : row + 1], targets[row : row + 1])
        found: Any = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
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


@pytest.mark.parametrize("layer", [nn.Linear(6, 6), nn.Conv1d(RECORDS, RECORDS, 3, padding=1)])
@pytest.mark.parametrize("settled", [False, True])
def test_gradients_that_are_written_to_after_they_were_measured_are_refused(
    layer: nn.Module, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a record's norm would be that of other numbers than are added."""
    inputs = torch.randn(RECORDS, RECORDS, 6)
    clipper = Clipper(layer, clip_norm=0.1, verify=False, gradient_memory=None if settled else 0)
    given: list[Tensor] = []
    arrive = Arrivals._noted

    def written_to(self: Arrivals, node: Any, gradients: tuple[Tensor | None, ...]) -> None:
        arrive(self, node, gradients)
        given.extend(gradient for gradient in gradients if gradient is not None)
        for gradient in given:
            gradient.mul_(100)

    monkeypatch.setattr(Arrivals, "_noted", written_to)
    with clipper.recording():
        losses = layer(inputs).square().sum((1, 2))
    if settled:  # what was kept when it was measured is what is added
        clipper.backward(losses)
        assert torch.stack([one.square().sum() for one in clipper.take().values()]).sum().sqrt() <= RECORDS * 0.1 * (1 + 1e-6)
        return
    with pytest.raises(UnfollowedError, match="changed in place within the backward pass"):
        clipper.backward(losses)


class Within(torch.autograd.Function):
    """Its backward runs another backward pass, through the graph of its own."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, other: Tensor, swallow: bool) -> Tensor:
        ctx.other, ctx.swallow = other, swallow
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        try:
            torch.autograd.grad(ctx.other, leaves_of(ctx.other), torch.ones_like(ctx.other), retain_graph=True, allow_unused=True)
        except ZeroDivisionError:
            if not ctx.swallow:
                raise
        return gradients[0], None, None


def leaves_of(tensor: Tensor) -> list[Tensor]:
    return [node.variable for node in nodes_of(tensor) if hasattr(node, "variable")]


def network_within(swallow: bool) -> tuple[nn.Module, Clipper, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    clipper = Clipper(model, clip_norm=0.1, verify=False)
    with clipper.recording(records=RECORDS):
        hidden = model[0](torch.randn(RECORDS, 4))
        losses = Within.apply(model[1](hidden), hidden * 2, swallow).square().sum(1)
    return model, clipper, losses


def test_a_backward_pass_within_that_reaches_a_layer_first_is_refused() -> None:
    _, clipper, losses = network_within(False)
    with pytest.raises(UnfollowedError, match="twice"):
        clipper.backward(losses)


def test_an_error_that_a_pass_within_caught_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, clipper, losses = network_within(True)

    def failing(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(contributions, "_of_layer", failing)
    with pytest.raises(ZeroDivisionError):
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


def test_a_linear_layers_gradient_is_copied_once_for_its_rule_and_for_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Tensor] = []
    made = LinearGradients.make_parts
    monkeypatch.setattr(LinearGradients, "make_parts", lambda self: (told.append(self.uses[0].grad_output), made(self))[1])
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 4), torch.randn(2, 5, 3)
    clipper = Clipper(model, verify=False)
    with clipper.recording():
        scores = model(inputs)
    clipper.backward(nn.functional.cross_entropy(scores.mT, torch.ones(2, 5).long(), reduction="none").sum(1))  # one row a class
    assert told[0].is_contiguous()
