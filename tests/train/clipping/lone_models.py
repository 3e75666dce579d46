"""Models that the rules cannot follow, and their batch."""

from collections.abc import Callable
from typing import Any

import torch
from per_record import squares
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lethe.train.clipping import Clipper
from lethe.train.network.micro_batches import add_batch

ROWS = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Escaping(torch.autograd.Function):
    """A function of one's own, through which nothing is followed."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(given, factor)
        return given @ factor

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, Tensor]:
        given, factor = ctx.saved_tensors
        return grad_outputs[0] @ factor.T, given.T @ grad_outputs[0]


class Unfollowed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.square, self.unused = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 3)), nn.Linear(2, 2)

    def forward(self, given: Tensor) -> Tensor:
        return Escaping.apply(torch.tanh(self.first(given)), self.square)  # pyright: ignore[reportReturnType]


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(4, 5), nn.Linear(5, 3), reentrant
        self.checkpointed = True

    def forward(self, given: Tensor) -> Tensor:
        if not self.checkpointed:
            return self.second(self.block(given))
        return self.second(checkpoint(self.block, given.clone().requires_grad_(), use_reentrant=self.reentrant))

    def block(self, given: Tensor) -> Tensor:
        return torch.tanh(self.first(given))


class Minor(nn.Module):
    """Two views of each record, all first ones before all second ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, given: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(given))
        one, other = self.second(torch.cat([hidden, 2 * hidden])).chunk(2)
        return one - 3 * other


class Penalised(nn.Module):
    """Its output is moved by the length of its own slope."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, given: Tensor) -> Tensor:
        with torch.enable_grad():
            given = given.clone().requires_grad_()
            output = self.second(torch.tanh(self.first(given)))
            slope = torch.autograd.grad(output.sum(), given, create_graph=True)[0]
        return output + slope.square().sum(1, keepdim=True)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a function of one's own": Unfollowed,
    "a checkpoint": lambda: Checkpointed(reentrant=False),
    "a reentrant checkpoint": lambda: Checkpointed(reentrant=True),
    "two views of a record": Minor,
    "a gradient penalty": Penalised,
}


def plainly(model: nn.Module, truth: Callable[[], Any]) -> Any:
    """Without checkpoints: torch.autograd.grad tells nothing of parameters in reentrant ones, and does not say so."""
    model.checkpointed = False  # pyright: ignore[reportArgumentType]
    told = truth()
    model.checkpointed = True  # pyright: ignore[reportArgumentType]
    return told


def added(model: nn.Module, clipper: Clipper, batch: Tensor, counted: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    add_batch(clipper, lambda rows: model(batch[rows]), lambda output, rows: squares(output), len(batch), counted)
    return clipper.take()
