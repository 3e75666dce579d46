"""What calls of a model can change besides tensors of the model: containers, attributes, arrays and generators within its reach."""

from __future__ import annotations

import functools
import logging
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lethe.train.core.tensor_fingerprint import same_numbers
from lethe.train.core.tensors import inner_tensors

_LARGEST = 2**28  # bytes of a tensor or an array that is neither in the model nor an argument: a larger one is not copied
_ATOMS = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size, np.generic, range)
_CLOSED = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    torch.optim.Optimizer,
    torch.utils.data.Dataset,
    torch.utils.data.DataLoader,
    logging.Logger,
)
# Of their functions no globals, and of their classes no attributes are walked: what they keep there is theirs.
_LIBRARIES = frozenset(
    "torch torchvision numpy scipy transformers peft accelerate lightning datasets timm lethe builtins collections typing enum".split()  # noqa: SIM905
)


class Reachable:
    """A snapshot of what a model's code can change, made by walking from some objects; and its restoration in place.

    Walked are modules, containers, objects, hooks and other functions with their closures, their defaults and the globals that they name,
    and the classes of modules. Not walked are optimisers, data sets, what libraries keep for themselves, and iterators, which cannot be
    copied. The numbers in parameters are left alone: they are compared by value elsewhere.

    Args:
        roots: where the walk begins.
        skipped: objects that are passed over.
    """

    def __init__(self, *roots: Any, skipped: Iterable[Any] = ()) -> None:
        self._undo: list[Callable[[], None]] = []
        self._generators: list[tuple[Callable[[], Any], Callable[[Any], Any], Any]] = []
        self._seen: dict[int, Any] = {id(thing): thing for thing in skipped}
        waiting: list[tuple[Any, bool]] = [(root, True) for root in roots]
        while waiting:
            value, own = waiting.pop()
            if isinstance(value, _ATOMS) or id(value) in self._seen or _ours(value):
                continue
            self._seen[id(value)] = value
            if isinstance(value, nn.Parameter):
                self._seen.update((id(part), part) for part in inner_tensors(value) or ())
                waiting.append((vars(value), True))
                continue
            own = own or isinstance(value, nn.Module)
            waiting += [(inside, own and not isinstance(value, types.FunctionType)) for inside in self._kept(value, own)]

    def restore(self) -> None:
        """Put everything back, generators included."""
        for undo in self._undo:
            undo()
        self.rewind()

    def rewind(self) -> None:
        """Put the generators back."""
        for _, put, state in self._generators:
            put(state)

    def drew(self) -> bool:
        """Whether a generator moved."""
        return not all(_same_state(get(), state) for get, _, state in self._generators)

    def _kept(self, value: Any, own: bool) -> Iterator[Any]:
        """Keep how to undo changes of one object; what it holds."""
        if isinstance(value, Tensor):
            if own or value.numel() * value.element_size() <= _LARGEST:
                self._undo.append(_of_tensor(value))
        elif isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                yield from value.ravel().tolist()
            elif value.flags.writeable and (own or value.nbytes <= _LARGEST):
                self._undo.append(_of_array(value))
        elif (generator := _generator(value)) is not None:
            self._generators.append((*generator, generator[0]()))
        elif isinstance(value, dict):
            self._undo.append(_of_dict(value))
            yield from list(value.values())
        elif isinstance(value, list | deque | set | bytearray):
            self._undo.append(_of_container(value))
            yield from () if isinstance(value, bytearray) else list(value)
        elif isinstance(value, tuple | frozenset):
            yield from value
        elif isinstance(value, types.FunctionType):
            yield from _of_function(value)
        elif isinstance(value, types.MethodType):
            yield from (value.__func__, value.__self__)
        elif isinstance(value, types.CellType):
            self._undo.append(_of_cell(value))
            yield from _inside(value)
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        if not isinstance(value, (types.FunctionType, *_CLOSED)):
            yield from self._attributes(value)

    def _attributes(self, value: Any) -> Iterator[Any]:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield attributes
        members, entries = _of_class(type(value))
        if members:
            self._undo += [_of_slot(value, member) for member in members]
            yield from (_slot(value, member) for member in members)
        if entries and (isinstance(value, nn.Module) or callable(value)):
            yield from entries


def _of_class(kind: type) -> tuple[list[types.MemberDescriptorType], list[Any]]:
    """The slots of a class and its bases, and the functions and containers that they hold; none of a library's."""
    members: list[types.MemberDescriptorType] = []
    entries: list[Any] = []
    for base in kind.__mro__:
        if not _library(base.__module__):
            own = vars(base)
            if "__slots__" in own:
                members += [member for member in own.values() if isinstance(member, types.MemberDescriptorType)]
            entries += [entry for entry in own.values() if isinstance(entry, types.FunctionType | list | dict | set | deque)]
    return members, entries


def _ours(value: Any) -> bool:
    return type(value).__module__.startswith("lethe.") and not isinstance(value, nn.Module)


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from function.__closure__ or ()
    yield from (function.__defaults__, function.__kwdefaults__, function.__dict__)
    if not _library(function.__module__):
        names = [function.__code__.co_names, *(code.co_names for code in function.__code__.co_consts if isinstance(code, types.CodeType))]
        named = (function.__globals__.get(name) for some in names for name in some)
        yield from (value for value in named if not _library(getattr(type(value), "__module__", "")) or isinstance(value, _WALKED))


_WALKED = (types.FunctionType, list, dict, set, deque, Tensor, np.ndarray, torch.Generator, np.random.Generator, np.random.RandomState)


@functools.cache
def _library(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] in _LIBRARIES


def _of_tensor(tensor: Tensor) -> Callable[[], None]:
    if tensor.is_meta or tensor.is_inference():
        return _nothing
    if (inner := inner_tensors(tensor)) is not None:
        return _all([_of_tensor(part) for part in inner])
    before = tensor.detach().clone()

    def undo() -> None:
        if not same_numbers([tensor], [before])[0]:  # writing what is there already would spoil it for the backward pass
            with torch.no_grad():
                tensor.detach().copy_(before)

    return undo


def _all(steps: list[Callable[[], None]]) -> Callable[[], None]:
    def undo() -> None:
        for step in steps:
            step()

    return undo


def _of_array(array: np.ndarray[Any, Any]) -> Callable[[], None]:
    before = array.copy()

    def undo() -> None:
        if array.shape == before.shape and array.tobytes() != before.tobytes():
            array[...] = before

    return undo


def _of_dict(value: dict[Any, Any]) -> Callable[[], None]:
    before = list(value.items())

    def undo() -> None:
        now = list(value.items())
        if len(now) != len(before) or any(one[0] is not two[0] or one[1] is not two[1] for one, two in zip(now, before, strict=True)):
            value.clear()
            value.update(before)

    return undo


def _of_container(value: Any) -> Callable[[], None]:
    before = list(value)

    def undo() -> None:
        now = list(value)
        if len(now) != len(before) or any(one is not two for one, two in zip(now, before, strict=True)):
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(before)

    return undo


def _of_cell(cell: types.CellType) -> Callable[[], None]:
    before = list(_inside(cell))

    def undo() -> None:
        if before:
            cell.cell_contents = before[0]

    return undo


def _inside(cell: types.CellType) -> Iterator[Any]:
    try:
        yield cell.cell_contents
    except ValueError:  # it is empty
        return


def _of_slot(value: Any, member: types.MemberDescriptorType) -> Callable[[], None]:
    before = _slot(value, member)

    def undo() -> None:
        if before is not None and _slot(value, member) is not before:
            member.__set__(value, before)

    return undo


def _slot(value: Any, member: types.MemberDescriptorType) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:
        return None


def _nothing() -> None:
    return


def _generator(value: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """How the state of a generator of random numbers is read and set; None: it is none."""
    if isinstance(value, torch.Generator):
        return value.get_state, value.set_state
    if isinstance(value, np.random.RandomState):
        return value.get_state, value.set_state
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    if isinstance(value, random.Random):
        return value.getstate, value.setstate
    return None


def _same_state(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same_state(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same_state, one, other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other)
