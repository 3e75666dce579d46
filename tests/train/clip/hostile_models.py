"""Things that people write into models and losses by which records meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, RECORDS = 5, 8

BANK: list[Tensor] = []
"""A memory bank outside of the model."""

_SEEN: dict[str, Any] = {}

Between_ = Callable[[Any, Tensor], Tensor]


def forget() -> None:
    """Empty what is outside of the models."""
    BANK.clear()
    _SEEN.clear()


def rows(seed: int, records: int = RECORDS) -> Tensor:
    """Records of four numbers."""
    return torch.randn(records, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Between(nn.Module):
    """Two linear layers, and between them whatever a test says."""

    def __init__(self, between: Between_ = lambda model, hidden: hidden, *, zero_head: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 2), between
        self.teacher = nn.Linear(4, WIDTH).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.kept: list[Tensor] = []
        self.double()
        if zero_head:
            nn.init.zeros_(self.last.weight)

    def forward(self, given: Tensor) -> Tensor:
        return self.last(torch.tanh(self.between(self, self.first(given))))


def centred(hidden: Tensor) -> Tensor:
    return hidden - hidden.detach().mean(0)


def with_past_batches(model: Any, hidden: Tensor) -> Tensor:
    out = torch.cat([hidden, *model.kept]).mean(0) if model.kept else 0.0
    model.kept = [hidden.detach()]
    return hidden + out


def with_the_batch_before(model: Any, hidden: Tensor) -> Tensor:
    before = model.kept[0] if model.kept and len(model.kept[0]) == len(hidden) else 0.0
    model.kept = [torch.tanh(hidden).detach()]
    return hidden + before


def with_a_running_number(model: Any, hidden: Tensor) -> Tensor:
    before = getattr(model, "seen", 0.0)
    model.seen = 0.9 * before + 0.1 * float(hidden.detach().mean())
    return hidden - before


def with_a_global_bank(model: Any, hidden: Tensor) -> Tensor:
    pull = torch.cat(BANK).mean(0) if BANK else torch.zeros(WIDTH, dtype=hidden.dtype)
    BANK.append(hidden.detach().clone())
    del BANK[:-2]
    return hidden + pull


def with_a_global_mean(model: Any, hidden: Tensor) -> Tensor:
    before = _SEEN.get("mean", 0.0)
    _SEEN["mean"] = 0.9 * before + 0.1 * hidden.detach().mean()
    return hidden - before


def with_keys_of_the_first_batch(model: Any, hidden: Tensor) -> Tensor:
    if not hasattr(model, "keys"):
        model.keys = hidden.detach().clone()
    return hidden + (hidden @ model.keys.mT).softmax(1) @ model.keys


def with_a_scale_of_the_first_batch(model: Any, hidden: Tensor) -> Tensor:
    if not hasattr(model, "scale"):
        model.scale = float(hidden.detach().std()) if hidden.numel() > WIDTH else float(hidden.detach().abs().mean())
    return hidden / model.scale


def with_one_record_of_the_first_batch(model: Any, hidden: Tensor) -> Tensor:
    if "it" not in model.__dict__.setdefault("memory", {}):
        model.memory["it"] = [hidden.detach()[-1].clone()]
    return hidden - model.memory["it"][0]


def with_a_buffer(model: Any, hidden: Tensor) -> Tensor:
    model.mean.mul_(0.9).add_(0.1 * hidden.detach().mean(0))
    return hidden


def with_a_buffer_put_anew(model: Any, hidden: Tensor) -> Tensor:
    model.mean = hidden.detach().mean(0)
    return hidden


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


def above_the_median(model: Any, hidden: Tensor) -> Tensor:
    return hidden * (hidden.detach()[:, 0] >= hidden.detach()[:, 0].median())[:, None]


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


def shifted(model: Any, hidden: Tensor) -> Tensor:
    return hidden + 0.5 * hidden.detach().roll(1, 0)


def routed(model: Any, hidden: Tensor) -> Tensor:
    """Two experts that take two records each, those that come first; the others pass by."""
    expert = (hidden.detach()[:, 0] > 0).long()
    place = torch.stack([expert.eq(number).cumsum(0) * expert.eq(number) for number in (0, 1)]).sum(0)
    return hidden * (place <= 2)[:, None]


def in_the_backward_pass(model: Any, hidden: Tensor) -> Tensor:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient / gradient.norm())
    return hidden


def over_the_largest_gradient(model: Any, hidden: Tensor) -> Tensor:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient / gradient.abs().max())
    return hidden


def normalised(model: Any, hidden: Tensor) -> Tensor:
    return functional.batch_norm(hidden, None, None, training=True)


def centred_with_gradients(model: Any, hidden: Tensor) -> Tensor:
    return centred(hidden) if torch.is_grad_enabled() else hidden


def centred_and_dropped(model: Any, hidden: Tensor) -> Tensor:
    return functional.dropout(centred(hidden))


def in_large_batches(model: Any, hidden: Tensor) -> Tensor:
    return centred(hidden) if len(hidden) > 6 else hidden


def saved_coarsely(model: Any, hidden: Tensor) -> Tensor:
    """What the backward pass needs is kept as the mean of the batch, as compression with one scale for all does."""

    def pack(tensor: Tensor) -> Tensor:
        return tensor.detach().mean(0).expand_as(tensor) if tensor.shape == hidden.shape else tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        return functional.gelu(hidden)


def set_by_the_first_batch(model: Any, hidden: Tensor) -> Tensor:
    """As ActNorm does."""
    if not getattr(model, "begun", False):
        model.teacher.weight.data.copy_(hidden.detach().mean(0)[:, None].expand(-1, 4))
        model.begun = True
    return hidden


def two_of_them(model: Any, hidden: Tensor) -> Tensor:
    return hidden if len(hidden) < 3 else torch.cat([hidden[:1], hidden[1:2] + hidden[2:3], hidden[2:]])


HOSTILE: dict[str, Between_] = {
    function.__name__: function
    for function in (
        with_past_batches, with_the_batch_before, with_a_running_number, with_a_global_bank, with_a_global_mean,
        with_keys_of_the_first_batch, with_a_scale_of_the_first_batch, with_one_record_of_the_first_batch, with_a_buffer,
        with_a_buffer_put_anew, mixup,
        mixup_with_a_fixed_seed, shuffled_with_a_fixed_seed, masked_by_a_seed_of_the_batch, in_batch_negatives,
        over_the_detached_maximum, masked_by_the_batch, above_the_median,
        weighed_in_numpy, by_rank, moving_teacher, attention_over_the_batch,
        folded_wrongly, gathered_halves, sorted_by_size, centred_by_an_outer_loop, shifted, routed, in_the_backward_pass,
        over_the_largest_gradient, normalised, centred_with_gradients, centred_and_dropped, in_large_batches, saved_coarsely,
        set_by_the_first_batch, two_of_them,
    )
}  # fmt: skip


def entropies(outputs: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, (outputs[:, 0] > 0).long(), reduction="none")


def of_their_mean(outputs: Tensor) -> Tensor:
    return entropies(outputs) / entropies(outputs).detach().mean()


def hard_ones(outputs: Tensor) -> Tensor:
    losses = entropies(outputs)
    return losses * (losses > losses.median())


def of_rare_classes(outputs: Tensor) -> Tensor:
    classes = (outputs[:, 0] > 0).long()
    return entropies(outputs) / torch.bincount(classes, minlength=2)[classes]


def weighed_by_rank(outputs: Tensor) -> Tensor:
    losses = entropies(outputs)
    return losses * (1 + losses.detach().argsort().argsort() / len(losses))


def broadcast(outputs: Tensor) -> Tensor:
    """(B,) against (B, 1) gives (B, B)."""
    return (outputs[:, 0] - outputs.detach()[:, 1:]).square().mean(0)


def contrasted_with_the_next(outputs: Tensor) -> Tensor:
    return (outputs - outputs.roll(1, 0)).square().sum(1)


def contrasted(outputs: Tensor) -> Tensor:
    return -(outputs @ outputs.T).log_softmax(1).diagonal()


def balanced(outputs: Tensor) -> Tensor:
    return entropies(outputs) + outputs.softmax(1).mean(0).square().sum()


def shuffled_losses(outputs: Tensor) -> Tensor:
    return entropies(outputs)[torch.randperm(len(outputs), generator=torch.Generator().manual_seed(1))]


def sorted_losses(outputs: Tensor) -> Tensor:
    return entropies(outputs).sort().values


def the_mean_for_all(outputs: Tensor) -> Tensor:
    return entropies(outputs).mean().expand(len(outputs))


def with_losses_before(outputs: Tensor) -> Tensor:
    losses = entropies(outputs) / (1 + _SEEN.get("sum", 0.0))
    _SEEN["sum"] = float(losses.detach().sum())
    return losses


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    function.__name__: function
    for function in (
        of_their_mean, hard_ones, of_rare_classes, weighed_by_rank, broadcast, contrasted_with_the_next, contrasted, balanced,
        shuffled_losses, sorted_losses, the_mean_for_all, with_losses_before,
    )
}  # fmt: skip
