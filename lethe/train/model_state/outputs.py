"""The tensors among the outputs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten


def tensors_of(output: Any) -> list[Tensor]:
    """The real-valued tensors of what a model returns, those of mappings and nested containers included."""
    entries = list(output.values()) if isinstance(output, Mapping) else [output]
    leaves = [leaf for entry in entries for leaf in tree_flatten(entry)[0]]
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
