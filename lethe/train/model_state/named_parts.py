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


class Parts(NamedTuple):
    """What a model consists of, each once, as `named_modules`, `named_parameters` and `named_buffers` give it."""

    modules: dict[str, nn.Module]
    parameters: dict[str, nn.Parameter]
    buffers: dict[str, Tensor]


class NamedParts:
    """The parts of a model, named anew only where anything was registered, replaced, renamed, moved or taken out.

    Names take several times as long to make as a look at what is registered where, object by object.

    Args:
        model: any; one of a class that gives names in its own way is asked each time.
    """

    __slots__ = ("_held", "_model", "_parts", "_sizes")

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held: list[Any] = []  # the objects themselves, so that no other one is taken for one of them
        self._sizes: list[int] = []
        self._parts: Parts | None = None

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
