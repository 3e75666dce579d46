"""Tensors, arrays and numbers that modules keep besides parameters and buffers."""

from __future__ import annotations

import array
import functools
import hashlib
import types
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.train.core.tensor_fingerprint import fingerprint
from lethe.train.core.tensors import inner_tensors, local

_OWN = {"_parameters", "_buffers", "_modules"}
_NUMBERS = int | float | complex | np.number
# Not looked into: they hold noisy gradients, data that were there before, or nothing of the model's.
_CLOSED = (
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.utils.data.Dataset,
    torch.utils.data.DataLoader,
    torch.Generator,
    type,
    types.ModuleType,
)
# Most attributes are of these types; whether they are tensors is asked twice a step.
_NEITHER = frozenset(
    (bool, int, str, types.NoneType, dict, OrderedDict, set, list, tuple, torch.dtype, torch.device, types.FunctionType, types.MethodType)
)
_CLOSED_PACKAGES = ("torch.distributed", "torch._dynamo", "torch._inductor", "torch.fx", "torch.jit")


def kept_values(model: nn.Module) -> dict[str, Hashable]:
    """Where the modules hold tensors, arrays, bytes or containers of numbers besides the state dict, and a fingerprint of each.

    Walked are attributes of modules, parameters and buffers, extra state, containers, objects, modules that are not registered, and hooks
    and other functions with their closures and defaults. Passed over are texts, a number by itself as an attribute, and a whole number
    alone in its container, such as a count of calls.

    Args:
        model: its own parameters and buffers, and views of them, are left out; so are weights that `torch.nn.utils` computes of these.
    """
    return _Walk(model).found


class _Walk:
    def __init__(self, model: nn.Module) -> None:
        self.found: dict[str, Hashable] = {}
        given = [*map(local, model.parameters()), *model.buffers()]
        own = [part for tensor in given for part in (inner_tensors(tensor) or [tensor])]
        self._ids = {id(tensor) for tensor in (*given, *own)}
        self._places: dict[int, list[tuple[int, int]]] = {}
        for tensor in own:
            if (place := _place(tensor)) is not None:
                self._places.setdefault(place[0], []).append(place[1:])
        # By id, with the object, which must outlive the walk; the model's modules are each walked by themselves.
        self._seen: dict[int, Any] = {id(module): module for module in model.modules()}
        self._left: list[tuple[str, Any]] = []
        for path, module in model.named_modules():
            dot, computed = f"{path}." if path else "", set(computed_attributes(module))
            self._left += [(dot + name, value) for name, value in vars(module).items() if name not in _OWN and name not in computed]
            if type(module).get_extra_state is not nn.Module.get_extra_state:
                self._left.append((f"{dot}get_extra_state()", [module.get_extra_state()]))
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._left += [(f"{name}.{key}", value) for key, value in vars(tensor).items()]
        self._left.reverse()
        while self._left:
            self._look(*self._left.pop())

    def _look(self, path: str, value: Any) -> None:
        if value is None or isinstance(value, str | _NUMBERS | torch.dtype | torch.device | torch.Size) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, Tensor):
            if id(value) not in self._ids and not self._within(value):
                self.found[path] = fingerprint(value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self.found[path] = (value.dtype.str, value.shape, _digest(np.ascontiguousarray(value).tobytes()))
        elif isinstance(value, bytes | bytearray | memoryview | array.array):
            self.found[path] = _digest(bytes(value))
        elif not isinstance(value, _CLOSED) and not type(value).__module__.startswith(_CLOSED_PACKAGES):
            self._left += reversed([*self._inside(path, value)])

    def _inside(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Mapping):
            entries = list(value.items())
            self._numbers(path, [(key, one) for key, one in entries if isinstance(one, float | complex | np.floating)])
            yield from ((f"{path}[{key!r}]", one) for key, one in entries)
        elif isinstance(value, list | tuple | set | frozenset | deque | np.ndarray):
            entries = value.ravel().tolist() if isinstance(value, np.ndarray) else list(value)
            numbers = [one for one in entries if isinstance(one, _NUMBERS) and not isinstance(one, bool)]
            if len(numbers) > 1 or not all(isinstance(one, int | np.integer) for one in numbers):  # [3] is how closures count
                self._numbers(path, sorted(numbers, key=repr) if isinstance(value, set | frozenset) else numbers)
            yield from ((f"{path}[{place}]", one) for place, one in enumerate(entries))
        elif isinstance(value, types.FunctionType):
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            yield from ((f"{path}.{name}", cell) for name, cell in cells)
            yield f"{path}.__defaults__", [value.__defaults__, value.__kwdefaults__, vars(value)]
        elif isinstance(value, types.CellType):
            yield from _contents(path, value)
        elif isinstance(value, types.MethodType):
            yield from ((path, value.__func__), (f"{path}.__self__", value.__self__))
        elif isinstance(value, functools.partial):
            yield path, [value.func, value.args, value.keywords, vars(value)]
        if not isinstance(value, types.FunctionType | functools.partial):
            yield from ((f"{path}.{name}", one) for name, one in _attributes(value))

    def _numbers(self, path: str, numbers: list[Any]) -> None:
        if numbers:
            self.found[f"{path}[...]"] = _digest(repr(numbers).encode())

    def _within(self, tensor: Tensor) -> bool:
        """Whether it is a view of one of the model's own."""
        place = _place(tensor)
        return place is not None and any(first <= place[1] and place[2] <= last for first, last in self._places.get(place[0], ()))


def plain_attributes(modules: Mapping[str, nn.Module]) -> dict[str, tuple[Any, int]]:
    """The tensors, arrays and floating-point numbers among the modules' own attributes, each with its version: quick to compare.

    Args:
        modules: of a model, by their paths.
    """
    found: dict[str, tuple[Any, int]] = {}
    for path, module in modules.items():
        own = vars(module)
        if _NEITHER.issuperset(map(type, own.values())):
            continue
        computed = set(computed_attributes(module))
        for name, value in own.items():
            if type(value) not in _NEITHER and isinstance(value, Tensor | np.ndarray | float) and name not in computed:
                found[f"{path}.{name}" if path else name] = (value, value._version if isinstance(value, Tensor) else 0)
    return found


def attribute_of(module: nn.Module, name: str, default: Any) -> Any:
    """`getattr(module, name, default)`, ten times as quick where the attribute is missing.

    Args:
        module: whose attribute it is.
        name: of one that is no parameter, buffer or module of it.
        default: what is given where it is missing.
    """
    kind: Any = type(module)
    if kind.__getattr__ is not nn.Module.__getattr__ or hasattr(kind, name):
        return getattr(module, name, default)
    return vars(module).get(name, default)


def computed_attributes(module: nn.Module) -> Iterator[str]:
    """Attributes that torch's own hooks compute of parameters and buffers before each call: weight norm, spectral norm, pruning."""
    for hook in module._forward_pre_hooks.values():
        if type(hook).__module__.startswith("torch.nn.utils."):
            yield from (name for key in ("name", "_tensor_name") if isinstance(name := getattr(hook, key, None), str))


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            member = kind.__dict__.get(f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(value)
                except AttributeError:
                    continue


def _contents(path: str, cell: types.CellType) -> Iterator[tuple[str, Any]]:
    try:
        yield path, cell.cell_contents
    except ValueError:  # it is empty
        return


def _place(tensor: Tensor) -> tuple[int, int, int] | None:
    """Its storage, and the first and the last of its bytes there; None: it has no plain storage."""
    if tensor.is_meta or tensor.layout != torch.strided or not tensor.numel() or inner_tensors(tensor) is not None:
        return None
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    first = tensor.data_ptr()
    return tensor.untyped_storage().data_ptr(), first, first + reach * tensor.element_size()


def _digest(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()
