"""Finds what a forward pass leaves behind: in parameters and buffers, and in the modules' Python attributes. A cache of earlier records
would make one record's loss depend on another. The check (`check.py`), checkpoints and `Backbone` call it.
"""

import copy
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.core.tensors import local

_TORCHS = frozenset(vars(nn.Module())) | {"forward"}
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DEEP = 6


def digests(model: nn.Module) -> dict[str, int]:
    """A number for each parameter and buffer that changes when a bit does."""
    return digests_of(dict((*model.named_parameters(), *model.named_buffers())))


def digests_of(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """As `digests`, of tensors by name, without those that hold no numbers in this process."""
    named = {name: tensor for name, tensor in tensors.items() if not tensor.is_meta and local(tensor.detach()).numel()}
    sums = [_sum_of_bits(local(tensor.detach())).cpu() for tensor in named.values()]
    return dict(zip(named, torch.stack(sums).tolist() if sums else [], strict=True))


def _sum_of_bits(tensor: Tensor) -> Tensor:
    """Of words of 64 bits, which are added as they lie, and of the numbers that are left over; int64, of no dimension."""
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    size = tensor.element_size()
    if size not in _WHOLE:
        return tensor.sum(dtype=torch.int64)
    flat = tensor.contiguous().view(_WHOLE[size]).reshape(-1)
    flat = flat.clone() if flat.storage_offset() * size % 8 else flat
    whole = len(flat) - len(flat) % (8 // size)
    return flat[:whole].view(torch.int64).sum() + flat[whole:].sum(dtype=torch.int64)


class Attributes:
    """The Python attributes of a model's modules, before it has seen a record."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._fresh = self._copied({module: _own(module) for module in model.modules()})
        self._told = self._now()

    def changed(self) -> list[str]:
        """The names of those that are others now."""
        now = self._now()
        return sorted(name for name in now.keys() | self._told.keys() if now.get(name) != self._told.get(name))

    @contextmanager
    def fresh(self) -> Generator[None]:
        """Within: they are as they were; after it they are as before, and so is which tensors are buffers."""
        before = {module: _own(module) for module in self._model.modules()}
        buffers = [(module._buffers, dict(module._buffers)) for module in before]
        self._put(self._copied(self._fresh))
        try:
            yield
        finally:
            self._put(before)
            for table, tensors in buffers:
                table.clear()
                table.update(tensors)

    def _put(self, states: dict[nn.Module, dict[str, Any]]) -> None:
        for module, attributes in states.items():
            for name in _own(module).keys() - attributes.keys():
                del module.__dict__[name]
            module.__dict__.update(attributes)

    def _copied(self, states: dict[nn.Module, dict[str, Any]]) -> dict[nn.Module, dict[str, Any]]:
        same = [*self._model.modules(), *self._model.parameters(), *self._model.buffers()]
        memo: dict[int, Any] = {id(entry): entry for entry in same}
        return {module: {name: _copy(value, memo) for name, value in attributes.items()} for module, attributes in states.items()}

    def _now(self) -> dict[str, Any]:
        description: dict[str, Any] = {}
        for name, module in self._model.named_modules():
            for attribute, value in _own(module).items():
                _describe(f"{name}.{attribute}".lstrip("."), value, description, _DEEP)
        return description


def _own(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _TORCHS}


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def _describe(name: str, value: Any, description: dict[str, Any], deep: int) -> None:
    """Tensors by their contents, numbers and words by their values, containers and plain objects by what they hold."""
    if isinstance(value, nn.Parameter | nn.Module | type) or callable(value) or deep == 0:
        return
    if isinstance(value, Tensor):
        description[name] = (tuple(value.shape), value.dtype, None if value.is_meta else int(_sum_of_bits(value.detach())))
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        description[name] = repr(value)
    elif isinstance(value, dict):
        for key, entry in value.items():
            _describe(f"{name}[{key!r}]", entry, description, deep - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        description[name] = len(value)
        for index, entry in enumerate(value):
            _describe(f"{name}[{index}]", entry, description, deep - 1)
    elif hasattr(value, "__dict__"):
        for key, entry in vars(value).items():
            _describe(f"{name}.{key}", entry, description, deep - 1)
    elif hasattr(value, "tobytes"):
        description[name] = value.tobytes()
