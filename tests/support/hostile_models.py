"""Things that people write into models and losses by which records meet, and what the clipper makes of them."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.errors import RecordByRecordWarning
from lethe.train.clip.clipper import Clipper

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


def batches(seed: int, count: int = 4, records: int = RECORDS) -> list[Tensor]:
    return [rows(100 * seed + number, records) for number in range(count)]


def squares(outputs: Tensor) -> Tensor:
    """A loss whose gradient differs between the entries of an output."""
    flat = outputs.flatten(1)
    return (flat * torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype) + flat.sin()).sum(1)


def trained(model: nn.Module, batches: list[Any], loss: Callable[[Tensor], Tensor] = squares, **options: Any) -> Clipper:
    """A clipper that was given these batches; models that are trained record by record warn, and are no fault."""
    clipper = Clipper(model, lambda batch: loss(model(batch)), 0.1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordByRecordWarning)
        for batch in batches:
            clipper.add(batch)
            clipper.take()
    return clipper


class Between(nn.Module):
    """Two linear layers, and between them whatever a test says."""

    def __init__(self, between: Between_ = lambda model, hidden: hidden, *, zero_head: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.between = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 2), between
        self.teacher = nn.Linear(4, WIDTH).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.double()
        if zero_head:
            nn.init.zeros_(self.last.weight)

    def forward(self, given: Tensor) -> Tensor:
        return self.last(torch.tanh(self.between(self, self.first(given))))


def centred(hidden: Tensor) -> Tensor:
    return hidden - hidden.detach().mean(0)


def permuted(hidden: Tensor, seed: int | None = None) -> Tensor:
    """Hidden rows in another order, which is the same every time if there is a seed."""
    return hidden[torch.randperm(len(hidden), generator=None if seed is None else torch.Generator().manual_seed(seed))]


def with_a_running_number(model: Any, hidden: Tensor) -> Tensor:
    before = getattr(model, "seen", 0.0)
    model.seen = 0.9 * before + 0.1 * float(hidden.detach().mean())
    return hidden - before


def with_a_global_bank(model: Any, hidden: Tensor) -> Tensor:
    pull = torch.cat(BANK).mean(0) if BANK else torch.zeros(WIDTH, dtype=hidden.dtype)
    BANK.append(hidden.detach().clone())
    del BANK[:-2]
    return hidden + pull


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


def masked_by_a_seed_of_the_batch(model: Any, hidden: Tensor) -> Tensor:
    chance = torch.Generator().manual_seed(int(hidden.detach().abs().sum() * 1000))
    return hidden * (torch.rand(WIDTH, generator=chance) > 0.3)


def weighed_in_numpy(model: Any, hidden: Tensor) -> Tensor:
    sizes = np.abs(hidden.detach().numpy()).sum(1)
    return hidden * torch.from_numpy(sizes / sizes.mean())[:, None]


def moving_teacher(model: Any, hidden: Tensor) -> Tensor:
    model.teacher.weight.data.mul_(0.9).add_(0.1 * model.first.weight.data)
    return hidden


def routed(model: Any, hidden: Tensor) -> Tensor:
    """Two experts that take two records each, those that come first; the others pass by."""
    expert = (hidden.detach()[:, 0] > 0).long()
    place = torch.stack([expert.eq(number).cumsum(0) * expert.eq(number) for number in (0, 1)]).sum(0)
    return hidden * (place <= 2)[:, None]


def in_the_backward_pass(model: Any, hidden: Tensor) -> Tensor:
    if hidden.requires_grad:
        hidden.register_hook(lambda gradient: gradient / gradient.norm())
    return hidden


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


_KEEPING = (
    with_a_running_number, with_a_global_bank, with_a_scale_of_the_first_batch, with_one_record_of_the_first_batch, with_a_buffer,
    with_a_buffer_put_anew, masked_by_a_seed_of_the_batch, weighed_in_numpy, moving_teacher, routed, in_the_backward_pass,
    saved_coarsely, set_by_the_first_batch,
)  # fmt: skip
HOSTILE: dict[str, Between_] = {
    **{function.__name__: function for function in _KEEPING},
    "mixup": lambda model, hidden: 0.7 * hidden + 0.3 * permuted(hidden),
    "shuffled with a fixed seed": lambda model, hidden: permuted(hidden, 3),
    "in-batch negatives": lambda model, hidden: hidden + (hidden @ hidden.T).softmax(1) @ hidden.detach(),
    "over the detached maximum": lambda model, hidden: hidden / hidden.detach().abs().max(),
    "masked by the batch": lambda model, hidden: hidden * (hidden.detach() > hidden.detach().mean(0)),
    "attention over the batch": lambda model, hidden: functional.scaled_dot_product_attention(*[hidden[None]] * 3)[0],
    "a reshape for a transpose": lambda model, hidden: hidden.reshape(WIDTH, -1).T.reshape(hidden.shape),
    "sorted": lambda model, hidden: hidden[hidden.detach()[:, 0].argsort()],
    "normalised": lambda model, hidden: functional.batch_norm(hidden, None, None, training=True),
    "centred with gradients": lambda model, hidden: centred(hidden) if torch.is_grad_enabled() else hidden,
    "centred and dropped": lambda model, hidden: functional.dropout(centred(hidden)),
    "centred in large batches": lambda model, hidden: centred(hidden) if len(hidden) > 6 else hidden,
}


def entropies(outputs: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, (outputs[:, 0] > 0).long(), reduction="none")


def of_rare_classes(outputs: Tensor) -> Tensor:
    classes = (outputs[:, 0] > 0).long()
    return entropies(outputs) / torch.bincount(classes, minlength=2)[classes]


def with_losses_before(outputs: Tensor) -> Tensor:
    losses = entropies(outputs) / (1 + _SEEN.get("sum", 0.0))
    _SEEN["sum"] = float(losses.detach().sum())
    return losses


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "of rare classes": of_rare_classes,
    "with losses before": with_losses_before,
    "of their mean": lambda outputs: entropies(outputs) / entropies(outputs).detach().mean(),
    "hard ones": lambda outputs: entropies(outputs) * (entropies(outputs) > entropies(outputs).median()),
    "(B,) against (B, 1)": lambda outputs: (outputs[:, 0] - outputs.detach()[:, 1:]).square().mean(0),
    "contrasted": lambda outputs: -(outputs @ outputs.T).log_softmax(1).diagonal(),
    "balanced": lambda outputs: entropies(outputs) + outputs.softmax(1).mean(0).square().sum(),
    "shuffled": lambda outputs: permuted(entropies(outputs), 1),
    "the mean for all": lambda outputs: entropies(outputs).mean().expand(len(outputs)),
}
