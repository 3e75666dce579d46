"""What decides how a model or a loss computes, besides numbers, as far as it can be read off them: hooks, switches, functions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module  # the only place of the hooks on all modules

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_EVERYWHERE = tuple(f"_global{name}" for name in _HOOKS)
_FORWARD = ("forward", "_compiled_call_impl")


def behaviour(model: nn.Module, modules: Iterable[tuple[str, nn.Module]] | None = None) -> Hashable:
    """The modules by name and class, their hooks, those on all modules, functions put in the place of a module's own, and switches.

    Switches are attributes that are True, False or a word. A number is none: a module may count its calls. What a function does inside,
    a hook's closure or a class that was patched is not seen.

    Args:
        model: without hooks of the engine's own.
        modules: its `named_modules`, where they are at hand.
    """
    modules = model.named_modules() if modules is None else modules
    return hooks_everywhere(), tuple((path, module, *_of(module)) for path, module in modules)


def hooks_everywhere() -> Hashable:
    """The hooks on all modules."""
    return _hooks(vars(torch_module), _EVERYWHERE)


def behaviour_of(function: Any) -> Hashable:
    """`behaviour` of a loss; functions made anew for every batch, of the same code around the same objects, are equal."""
    if isinstance(function, nn.Module):
        return behaviour(function)
    if not isinstance(function, FunctionType):
        return _Same(function)
    held = [*(_content(cell) for cell in function.__closure__ or ()), *(function.__defaults__ or ())]
    return function.__code__, tuple(_Same(thing) for thing in held), _Same(function.__kwdefaults__)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return cell


def _of(module: nn.Module) -> tuple[Hashable, ...]:
    own = vars(module)
    functions = tuple((name, _Same(own[name])) for name in _FORWARD if own.get(name) is not None)
    switches = tuple([(name, value) for name, value in own.items() if value is True or value is False or type(value) is str])
    return type(module), _hooks(own, _HOOKS), functions, switches


def _hooks(named: Mapping[str, Any], names: Iterable[str]) -> Hashable:
    return tuple([(name, tuple(_Same(hook) for hook in hooks.values())) for name in names if (hooks := named.get(name))])


class _Same:
    """An object by its identity, a bound method by its own and its object's; kept alive, so that no other has its id."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._ids() == other._ids()

    def __hash__(self) -> int:
        return hash(self._ids())

    def _ids(self) -> tuple[int, ...]:
        thing = self._thing
        return (id(thing.__self__), id(thing.__func__)) if isinstance(thing, MethodType) else (id(thing),)
