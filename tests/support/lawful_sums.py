"""A model whose sums are known, and the slow truth: every record alone, clipped and added."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper

F64 = torch.float64
RECORDS, CLIP = 7, 0.7
Losses = Callable[[Tensor], Tensor]


class Escaping(torch.autograd.Function):
    """A function of one's own, through which neither hooks nor vmap follow."""

    @staticmethod
    def forward(ctx: Any, given: Tensor) -> Tensor:
        return given.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0].clone()


class Model(nn.Module):
    """A table, a tied head, a convolution, a normalisation, a bare parameter, and whatever lies between.

    Args:
        way: "fast"; or "vmap" or "alone", by what it does to the fast way.
    """

    def __init__(self, way: str = "fast") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.mix, self.norm = nn.Embedding(9, 6), nn.Conv1d(6, 6, 3, padding=1), nn.LayerNorm(6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.table.weight
        self.scale, self.way = nn.Parameter(torch.ones(6)), way
        self.between: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor] = lambda block, hidden: block(hidden)
        self.to(F64)

    def block(self, hidden: Tensor) -> Tensor:
        return hidden + torch.tanh(self.mix(hidden.mT)).mT

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.between(self.block, self.table(tokens))
        if self.way == "alone":
            hidden = Escaping.apply(hidden)
            assert isinstance(hidden, Tensor)
            hidden.sum().item()  # vmap cannot
        if self.way != "fast":  # where no layer sees it
            hidden = hidden + 0.1 * self.norm.weight
        return self.head(self.norm(hidden) * self.scale)


def batch_of(records: int = RECORDS, seed: int = 1) -> Tensor:
    return torch.randint(9, (records, 5), generator=torch.Generator().manual_seed(seed))


def losses_of(model: nn.Module) -> Losses:
    return lambda tokens: -model(tokens).log_softmax(-1).gather(2, tokens.roll(1, 1)[..., None]).mean((1, 2))


def flat(sums: dict[nn.Parameter, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in sums.values()])


def truth(model: nn.Module, batch: Tensor, units: Sequence[Sequence[int]] | None = None, losses: Losses | None = None) -> Tensor:
    """The gradients of records alone, or of units: shape (B, numbers)."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses = losses or losses_of(model)
    rows: list[Tensor] = []
    for unit in units or [[record] for record in range(len(batch))]:
        loss = torch.stack([losses(batch[record : record + 1]).sum() for record in unit]).mean()
        model.zero_grad()
        loss.backward()
        rows.append(torch.cat([(torch.zeros_like(one) if one.grad is None else one.grad).flatten().double() for one in trained]))
    model.zero_grad()
    return torch.stack(rows)


def clipped(rows: Tensor, clip: float = CLIP) -> Tensor:
    """The sum of rows that are clipped; a row of zeros adds nothing."""
    return (rows * (clip / rows.norm(dim=1).clamp(min=1e-300)).clamp(max=1)[:, None]).sum(0)


def added(model: nn.Module, *batches: Tensor, clip: Any = CLIP, way: str | None = None, **options: Any) -> Tensor:
    """The sums of batches, which come in a way that is checked."""
    given = {name: options.pop(name) for name in ("units", "counted") if name in options}
    clipper = Clipper(model, losses_of(model), clip, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        for batch in batches:
            clipper.add(batch, **given)
    if way is not None:
        assert clipper.ways == {way}
    return flat(clipper.take())


def near(one: Tensor, other: Tensor, rtol: float = 1e-9) -> None:
    torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * float(other.abs().max()))
