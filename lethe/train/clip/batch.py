"""A batch: any nest of tensors with one entry a record along their first dimension."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lethe.errors import InputError


def records_of(batch: Any) -> int:
    """B, the records of a batch.

    Raises:
        InputError: it holds no tensor, or tensors of several lengths.
    """
    sizes: set[int] = set()
    for leaf in tree_leaves(batch):
        if isinstance(leaf, Tensor):
            sizes.add(leaf.shape[0] if leaf.dim() else -1)
    if len(sizes) != 1 or -1 in sizes:
        got = f"tensors of {', '.join(map(str, sorted(sizes)))} entries" if sizes else type(batch).__name__
        raise InputError(
            f"batch: got {got}; it needs tensors that all have the records along their first dimension.",
            remedy="collate records into tensors of one length; what is the same for all records belongs to the model or the loss.",
        )
    return sizes.pop()


def rows_of(batch: Any, rows: Any) -> Any:
    """Some records of a batch: a slice, or a tensor or list of places."""
    return tree_map(lambda leaf: leaf[rows] if isinstance(leaf, Tensor) else leaf, batch)
