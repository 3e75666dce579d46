"""Things that people write into models, by which records meet; and how far one record then moves a sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import LetheError
from lethe.train.clipping import Clipper

WIDTH, CLIP = 5, 0.1

BANK: list[Tensor] = []
"""A memory bank outside of the model."""

_SEEN: dict[str, Any] = {"mean": 0.0}


def rows(seed: int, records: int = 6) -> Tensor:
    """Records of four numbers."""
    return torch.randn(records, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def tokens(seed: int, records: int = 6, places: int = 7) -> Tensor:
    """Words 1..8, of 2 to all places, padded with 0."""
    made = torch.randint(1, 9, (records, places), generator=torch.Generator().manual_seed(seed))
    lengths = torch.randint(2, places + 1, (records,), generator=torch.Generator().manual_seed(seed + 1))
    return made * (torch.arange(places) < lengths[:, None])


class Between(nn.Module):
    """Two linear layers, and between them whatever a test says."""

    def __init__(self, between: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.between = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 2), between
        self.teacher = nn.Linear(4, WIDTH).requires_grad_(False)
        self.kept: list[Tensor] = []
        self.double()

    def forward(self, given: Tensor) -> Tensor:
        self.given = None
        return self.last(torch.tanh(self.between(self, self.first(given))))


def with_past_batches(model: Any, hidden: Tensor) -> Tensor:
    out = torch.cat([hidden, *model.kept]).mean(0) if model.kept else 0.0
    model.kept = [hidden.detach()]
    return hidden + out


def with_a_global_bank(model: Any, hidden: Tensor) -> Tensor:
    pull = torch.cat(BANK).mean(0) if BANK else torch.zeros(WIDTH, dtype=hidden.dtype)
    BANK.append(hidden.detach().clone())
    del BANK[:-2]
    return hidden + pull


def with_a_global_mean(model: Any, hidden: Tensor) -> Tensor:
    before = _SEEN["mean"]
    _SEEN["mean"] = 0.9 * before + 0.1 * hidden.detach().mean()
    return hidden - before


def mixup(model: Any, hidden: Tensor) -> Tensor:
    return 0.7 * hidden + 0.3 * hidden[torch.randperm(len(hidden))]


def mixup_with_a_fixed_seed(model: Any, hidden: Tensor) -> Tensor:
    order = torch.randperm(len(hidden), generator=torch.Generator().manual_seed(3))
    return 0.7 * hidden + 0.3 * hidden[order]


def shuffled_with_a_fixed_seed(model: Any, hidden: Tensor) -> Tensor:
    return hidden[torch.randperm(len(hidden), generator=torch.Generator().manual_seed(3))]


def masked_by_a_seed_of_the_batch(model: Any, hidden: Tensor) -> Tensor:
    chance = torch.Generator().manual_seed(int(hidden.detach().abs().sum() * 1000))
    return hidden * (torch.rand(WIDTH, generator=chance) > 0.3)


def in_batch_negatives(model: Any, hidden: Tensor) -> Tensor:
    return hidden + (hidden @ hidden.T).softmax(1) @ hidden.detach()


def over_the_detached_maximum(model: Any, hidden: Tensor) -> Tensor:
    return hidden / hidden.detach().abs().max()


def masked_by_the_batch(model: Any, hidden: Tensor) -> Tensor:
    return hidden * (hidden.detach() > hidden.detach().mean(0))


def weighed_in_numpy(model: Any, hidden: Tensor) -> Tensor:
    sizes = np.abs(hidden.detach().numpy()).sum(1)
    return hidden * torch.from_numpy(sizes / sizes.mean())[:, None]


def by_rank(model: Any, hidden: Tensor) -> Tensor:
    rank = hidden.detach()[:, 0].argsort().argsort().double()
    return hidden * (1 + rank / len(hidden))[:, None]


def moving_teacher(model: Any, hidden: Tensor) -> Tensor:
    model.teacher.weight.data.mul_(0.9).add_(0.1 * model.first.weight.data)
    return hidden


def attention_over_the_batch(model: Any, hidden: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(hidden[None], hidden[None], hidden[None])[0]


def folded_wrongly(model: Any, hidden: Tensor) -> Tensor:
    """Columns become rows: a reshape in the place of a transpose."""
    return hidden.reshape(WIDTH, -1).T.reshape(hidden.shape)


def gathered_halves(model: Any, hidden: Tensor) -> Tensor:
    """Two replicas, whose results are put together the wrong way round."""
    half = len(hidden) // 2
    return torch.cat([hidden[half:], hidden[:half]]) if 2 * half == len(hidden) else hidden


def sorted_by_size(model: Any, hidden: Tensor) -> Tensor:
    return hidden[hidden.detach()[:, 0].argsort()]


def centred_by_an_outer_loop(model: Any, hidden: Tensor) -> Tensor:
    return torch.stack([row - hidden.detach().mean(0) for row in hidden])


def squeezed(model: Any, hidden: Tensor) -> Tensor:
    return hidden.squeeze()


HOSTILE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    function.__name__: function
    for function in (
        with_past_batches, with_a_global_bank, with_a_global_mean, mixup, mixup_with_a_fixed_seed, shuffled_with_a_fixed_seed,
        in_batch_negatives, over_the_detached_maximum, masked_by_the_batch, weighed_in_numpy, by_rank, moving_teacher,
        attention_over_the_batch, folded_wrongly, gathered_halves, sorted_by_size, centred_by_an_outer_loop, squeezed,
        masked_by_a_seed_of_the_batch,
    )
}  # fmt: skip


def squares(output: Tensor) -> Tensor:
    """A loss whose gradient differs between the entries of an output."""
    flat = output.flatten(1)
    return (flat * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype) + flat.sin()).sum(1)


def sums_of(model: nn.Module, batches: list[Any], loss: Callable[[Any], Tensor] = squares, *, verify: bool) -> Tensor:
    """The sum of the last batch."""
    clipper = Clipper(model, clip_norm=CLIP, verify=verify)
    total = torch.zeros(1)
    for batch in batches:
        with clipper.recording():
            output = model(**batch) if isinstance(batch, dict) else model(batch)
        clipper.backward(loss(output))
        total = torch.cat([tensor.flatten() for tensor in clipper.take().values()])
    return total


def moved_by(make: Callable[[], nn.Module], batches: list[Tensor], *, verify: bool = False) -> float:
    """How far one record of the last batch but one, or of the last, moves the last sum, in units of C."""
    far = 0.0
    for which in range(max(0, len(batches) - 2), len(batches)):
        for record in range(len(batches[which])):
            without = list(batches)
            without[which] = batches[which][[row for row in range(len(batches[which])) if row != record]]
            found: list[Tensor] = []
            for some in (batches, without):
                BANK.clear()
                _SEEN["mean"] = 0.0
                torch.manual_seed(5)
                found.append(sums_of(make(), some, verify=verify))
            allowed = 1.0 if which == len(batches) - 1 else 0.0
            far = max(far, float((found[0] - found[1]).norm()) / CLIP - allowed)
    return far


def told(make: Callable[[], nn.Module], batches: list[Any], loss: Callable[[Any], Tensor] = squares) -> LetheError | None:
    """The refusal, if there is one."""
    BANK.clear()
    _SEEN["mean"] = 0.0
    torch.manual_seed(5)
    try:
        sums_of(make(), batches, loss, verify=True)
    except LetheError as error:
        return error
    return None
