"""A recorded call of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten

from lethe.train.clipping.anchors import Untouched
from lethe.train.clipping.rules.replay import RandomUse
from lethe.train.clipping.rules.rule import Use
from lethe.train.model_state.module_attributes import attribute_of


@dataclass(slots=True, eq=False)
class Call:
    """One call of a layer with a rule.

    Args:
        inputs: positional arguments, detached.
        keywords: keyword arguments, detached.
        untouched: watches them.
        random_state: before the call, of a layer that drops numbers inside.
        rows: how many rows of the first dimension each record has, one record after the other.
        doubtful: that is so if the layer's output is joined to what has as many, see `Folds.joined`.
        edges: of each output tensor, None for what has no gradient.
        single: the output is one tensor.
    """

    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    untouched: Untouched
    random_state: Tensor | None
    rows: int = 1
    doubtful: bool = False
    edges: list[GradientEdge | None] = field(default_factory=list)
    single: bool = True

    def use(self, told: Sequence[Tensor | None]) -> Use | None:
        """The call with the gradients of its outputs, in the order of `edges`; None if no gradient came."""
        if all(gradient is None for gradient in told):
            return None
        first = next(gradient for gradient in told if gradient is not None)
        return RandomUse(
            inputs=self.inputs,
            grad_output=first if told[0] is None else told[0],
            keywords=self.keywords,
            grad_outputs=None if self.single else tuple(told),
            random_state=self.random_state,
        )


def detached(entry: Any) -> Any:
    """An argument with all its tensors detached."""
    if isinstance(entry, Tensor):
        return entry.detach()
    if isinstance(entry, PackedSequence):
        return entry._replace(data=entry.data.detach())
    if isinstance(entry, tuple | list) and not hasattr(entry, "_fields"):
        return type(entry)(detached(part) for part in entry)
    return entry


def tensors_given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """All tensors among the arguments, within containers as well."""
    entries = [*args, *kwargs.values()]
    if not all(entry is None or isinstance(entry, Tensor | bool | int | float | str) for entry in entries):
        entries = tree_flatten((args, kwargs))[0]  # takes ten times as long
    return [entry for entry in entries if isinstance(entry, Tensor)]


def random_state(module: nn.Module, given: Sequence[Tensor]) -> Tensor | None:
    """The state of the random generator that a layer is about to draw from; None for a layer that draws nothing inside."""
    dropout = attribute_of(module, "dropout", 0.0)
    if not (module.training and isinstance(dropout, float) and dropout > 0):
        return None
    device = given[0].device if given else torch.device("cpu")
    return torch.get_rng_state() if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device)
