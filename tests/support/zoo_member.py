"""What a member of the zoo is: a small model of one architecture, a batch for it, and one loss a record."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

RECORDS = 5
Batch = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One architecture.

    Args:
        build: the model, on the default dtype, random weights.
        batch: its batch, records first, of tensors named as the model's arguments; "targets" is the loss's.
        losses: (what the model gave, targets) -> shape (B,).
        how: it trains: "fast", "vmap" or "alone"; or "refused".
        why: in words, where it is not "fast".
        refusal: what the error says, a regular expression.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    losses: Callable[[Any, Tensor], Tensor]
    how: str = "fast"
    why: str = ""
    refusal: str = ""

    def asked(self, model: nn.Module, batch: Batch) -> Tensor:
        """The losses of a batch."""
        given = dict(batch)
        targets = given.pop("targets")
        return self.losses(model(**given), targets)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def numbers(*shape: int) -> Tensor:
    return torch.randn(RECORDS, *shape, generator=generator())


def tokens(length: int, *, vocabulary: int = 31, between: int | None = None) -> Tensor:
    shape = (RECORDS, length) if between is None else (RECORDS, between, length)
    return torch.randint(3, vocabulary, shape, generator=generator())


def classes(count: int = 3, *shape: int) -> Tensor:
    return torch.randint(count, (RECORDS, *shape), generator=generator())


def padding(length: int) -> Tensor:
    """Masks of records of several lengths, padded at their ends."""
    return (torch.arange(length) < torch.tensor([length, 4, 5, length, 3])[:, None]).long()


def of_logits(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output.logits


def classified(output: Any, targets: Tensor) -> Tensor:
    """Cross entropy of one answer a record."""
    return functional.cross_entropy(of_logits(output), targets, reduction="none")


def next_words(output: Any, targets: Tensor) -> Tensor:
    """A language model's loss: the mean over the record's own tokens; targets are the tokens, -100 where there is none."""
    return words(of_logits(output)[:, -targets.shape[1] : -1], targets[:, 1:])


def words(output: Any, targets: Tensor) -> Tensor:
    """Cross entropy at each position, the mean over those of the record that have a target."""
    each = functional.cross_entropy(of_logits(output).transpose(1, 2), targets, reduction="none", ignore_index=-100)
    return each.sum(1) / (targets != -100).sum(1)


def without_chance(model: nn.Module) -> nn.Module:
    """In training mode, with every kind of dropout set to 0."""
    for module in model.modules():
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(vars(holder).items() if holder is not None else ()):
                if "drop" in name and isinstance(value, float):
                    setattr(holder, name, 0.0)
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.train()


VMAP, ALONE = "vmap", "alone"


def told(members: dict[str, Member], how: str, why: dict[str, str], refusal: str = "") -> None:
    """Say of some members how they are trained, and why so."""
    for name, reason in why.items():
        members[name] = replace(members[name], how=how, why=reason, refusal=refusal)
