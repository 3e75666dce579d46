"""The tensors among the outputs of a model, and what its modules computed them in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.train.core.comparison import coarser


def tensors_of(output: Any) -> list[Tensor]:
    """The real-valued tensors of what a model returns, those of mappings and nested containers included."""
    entries = list(output.values()) if isinstance(output, Mapping) else [output]
    leaves = [leaf for entry in entries for leaf in tree_flatten(entry)[0]]
    return [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def has_rows(entry: Any, records: int) -> bool:
    """Whether an argument or a result has one entry a record."""
    return isinstance(entry, Tensor) and entry.dim() > 0 and len(entry) == records


def outputs_of_records(output: Any, records: int) -> list[Tensor]:
    """The real-valued tensors of what a model returns that have one entry a record, detached."""
    entries = list(output.values()) if isinstance(output, Mapping) else tree_flatten(output)[0]
    return [entry.detach() for entry in entries if has_rows(entry, records) and entry.is_floating_point()]


def shapes_of_a_record(outputs: Sequence[Tensor]) -> list[torch.Size]:
    """Of each output, without the number of records."""
    return [output.shape[1:] for output in outputs]


def finite_records(outputs: Sequence[Tensor], records: int) -> list[int]:
    """The records all of whose outputs are finite; none where there are no outputs."""
    if not outputs:
        return []
    return torch.stack([_finite(output.reshape(records, -1)).cpu() for output in outputs]).all(0).nonzero()[:, 0].tolist()


def _finite(rows: Tensor) -> Tensor:
    finite = torch.isfinite(rows.sum(1))  # what is not finite leaves no sum finite; the sum of finite numbers may overflow
    unclear = (~finite).nonzero()[:, 0]
    return finite.index_copy(0, unclear, torch.isfinite(rows[unclear]).all(1))


@contextmanager
def precision_of(model: nn.Module, least: torch.dtype) -> Generator[Callable[[], torch.dtype]]:
    """Within: what is given tells the coarsest type of number that the modules have computed in."""
    found = [least]

    def looked_at(module: nn.Module, args: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point():
            found[0] = coarser(found[0], output.dtype)

    handles = [module.register_forward_hook(looked_at) for module in model.modules()]
    try:
        yield lambda: found[0]
    finally:
        for handle in handles:
            handle.remove()
