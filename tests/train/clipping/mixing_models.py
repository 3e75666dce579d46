"""A model between whose layers records may meet, and whether training it is refused or bounded."""

from collections.abc import Callable
from typing import Any

import torch
from per_record import squares
from torch import Tensor, nn

from lethe.errors import LetheError
from lethe.train.clipping import Clipper


class Between(nn.Module):
    """Two linear layers, and between them whatever a test says."""

    def __init__(self, between: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = nn.Linear(4, 5), nn.Linear(5, 2), between
        self.double()

    def forward(self, given: Tensor, **options: Any) -> Any:
        return self.last(torch.tanh(self.between(self, self.first(given), **options)))


def rows(seed: int, records: int = 6) -> Tensor:
    return torch.randn(records, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def centred(hidden: Tensor) -> Tensor:
    return hidden - hidden.detach().mean(0)


def step(clipper: Clipper, batch: Tensor, call: Callable[[nn.Module, Tensor], Tensor] | None = None) -> Tensor:
    with clipper.recording():
        output = clipper.model(batch) if call is None else call(clipper.model, batch)
    clipper.backward(squares(output))
    return torch.cat([tensor.flatten() for tensor in clipper.take().values()])


def refused_or_bounded(make: Callable[[], nn.Module], batches: list[Tensor], call: Any = None, record: int = 2) -> bool:
    """Whether training stops, or the last sum without the record differs from that with it by no more than C."""
    others = [row for row in range(len(batches[-1])) if row != record]
    sums: list[Tensor] = []
    for last in (batches[-1], batches[-1][others]):
        clipper = Clipper(make(), clip_norm=0.1)
        try:
            sums.append([step(clipper, batch, call) for batch in (*batches[:-1], last)][-1])
        except LetheError:
            return True
    return float((sums[0] - sums[1]).norm()) <= 0.1 * (1 + 1e-9)


def outlying(batches: int = 3, records: int = 6) -> list[Tensor]:
    """The last batch, which is the third and not checked, holds an outlier."""
    made = [rows(seed, records) for seed in range(batches)]
    made[-1][2] *= 100
    return made
