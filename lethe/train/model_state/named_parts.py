"""The modules, parameters and buffers of a model by name, asked for several times in every step."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from torch import Tensor, nn

_NAMING = ("named_modules", "named_parameters", "named_buffers", "_named_members")
_TABLES = operator.attrgetter("_parameters", "_buffers", "_modules")
_KEYS, _VALUES = operator.methodcaller("keys"), operator.methodcaller("values")
_HOOKS = [operator.methodcaller("get", f"_{name}_hooks", ()) for name in ("forward_pre", "forward", "backward_pre", "backward")]


class Parts(NamedTuple):
    """What a model consists of, each once, as `named_modules`, `named_parameters` and `named_buffers` give it.

    Args:
        modules, parameters, buffers: by name.
        look: the same object as in an earlier look where no attribute or hook of a module is another object than then, and no name;
            None: nobody looked.
    """

    modules: dict[str, nn.Module]
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]
    look: object = None


class NamedParts:
    """The parts of a model, named anew only where anything was registered, replaced, renamed, moved or taken out.

    Names take several times as long to make as a look at what is registered where, object by object.

    Args:
        model: any; one of a class that gives names in its own way is asked each time.
    """

    __slots__ = ("_attributes", "_held", "_look", "_looked", "_model", "_parts", "_sizes")

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held: list[Any] = []  # the objects themselves, so that no other one is taken for one of them
        self._sizes: list[int] = []
        self._parts: Parts | None = None
        self._attributes: tuple[list[Any], list[int]] = [], []
        self._look, self._looked = object(), self._parts

    def looked(self) -> Parts:
        """The parts as they are now, with what says whether any attribute or hook of a module is another object than in the last look.

        What is changed inside of an attribute, such as the numbers of a tensor, does not show.
        """
        parts = self.now()
        (held, sizes), (known, known_sizes) = (now := _attributes(list(parts.modules.values()))), self._attributes
        if parts is not self._looked or sizes != known_sizes or len(held) != len(known) or not all(map(operator.is_, held, known)):
            self._attributes, self._look, self._looked = now, object(), parts
        return parts._replace(look=self._look)

    def now(self) -> Parts:
        """The parts as they are now; not to be changed."""
        if self._parts is not None:
            held, sizes = _registered(list(self._parts.modules.values()))
            if sizes == self._sizes and len(held) == len(self._held) and all(map(operator.is_, held, self._held)):
                return self._parts
        model = self._model
        parts = Parts(dict(model.named_modules()), dict(model.named_parameters()), dict(model.named_buffers()))
        modules = list(parts.modules.values())
        usual = all(getattr(kind, name) is getattr(nn.Module, name) for kind in {*map(type, modules)} for name in _NAMING)
        self._parts = parts if usual else None
        self._held, self._sizes = _registered(modules) if usual else ([], [])
        return parts


def _registered(modules: Sequence[nn.Module]) -> tuple[list[Any], list[int]]:
    """The classes of modules, their tables, and the keys and values in these; and how many each table has.

    Where none of it is another one, no other module can be reached. Made by loops of the interpreter's own, without a line for each.
    """
    tables = list(chain.from_iterable(map(_TABLES, modules)))
    filled = list(filter(None, tables))
    keys, values = chain.from_iterable(map(_KEYS, filled)), chain.from_iterable(map(_VALUES, filled))
    return [*map(type, modules), *tables, *keys, *values], list(map(len, tables))


def _attributes(modules: Sequence[nn.Module]) -> tuple[list[Any], list[int]]:
    """The names and values of all attributes of modules, and their hooks; and how many each has."""
    own = list(map(vars, modules))
    hooks = [table for of in _HOOKS for table in map(of, own)]
    keys, values = chain.from_iterable(map(_KEYS, own)), chain.from_iterable(map(_VALUES, own))
    return [*keys, *values, *chain.from_iterable(map(_VALUES, filter(None, hooks)))], [*map(len, own), *map(len, hooks)]
