"""The tensors among the outputs of a model, and what its modules computed them in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from lethe.train.core.comparison import coarser

Place = tuple[Hashable, int]
"""Of a tensor among the outputs of a model: a name and a number within what stands there, or no name and its number."""


def leaves_of(output: Any) -> dict[Place, Tensor]:
    """The tensors of what a model returns by their places, those of mappings and nested containers included."""
    entries = list(output.items()) if isinstance(output, Mapping) else [(None, output)]
    leaves = (((name, place), leaf) for name, entry in entries for place, leaf in enumerate(tree_flatten(entry)[0]))
    return {place: leaf for place, leaf in leaves if isinstance(leaf, Tensor)}


def tensors_of(output: Any) -> list[Tensor]:
    """The real-valued tensors of what a model returns, those of mappings and nested containers included."""
    return [leaf for leaf in leaves_of(output).values() if leaf.is_floating_point()]


def has_rows(entry: Any, records: int) -> bool:
    """Whether an argument or a result has one entry a record."""
    return isinstance(entry, Tensor) and entry.dim() > 0 and len(entry) == records


def one_loss_each(losses: Any) -> Any:
    """Losses of shape (B, 1), which a model of one output gives, as (B,); anything else as it is."""
    return losses[:, 0] if isinstance(losses, Tensor) and losses.dim() == 2 and losses.shape[1] == 1 else losses


class RecordOutputs:
    """The real-valued tensors of what a model returns that have one entry a record, detached; of a mapping, no containers in it.

    Which of all its tensors these are, the first batch tells that is asked about after `begin`: to fewer records, a statistic as long as
    they are many would look like theirs.

    Attributes:
        beside: the places of the others.
    """

    def __init__(self) -> None:
        self.beside = frozenset[Place]()
        self._known = False

    def begin(self) -> None:
        """A batch comes, and then parts of it."""
        self._known = False

    def __call__(self, output: Any, records: int) -> list[Tensor]:
        """Those of a batch, or of a part of it, of so many records."""
        if not self._known:
            others = (place for place, leaf in leaves_of(output).items() if not has_rows(leaf, records))
            self.beside, self._known = frozenset(others), True
        if isinstance(output, Mapping):
            output = {name: entry for name, entry in output.items() if isinstance(entry, Tensor)}
        entries = [leaf for place, leaf in leaves_of(output).items() if place not in self.beside]
        return [leaf.detach() for leaf in entries if has_rows(leaf, records) and leaf.is_floating_point()]


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
