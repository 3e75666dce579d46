"""Users' functions found by name; their errors are reported with their place."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from lethe.audit.games.canaries import Data, Record
from lethe.audit.games.trainings import as_score, errors_of
from lethe.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Named:
    """A function of the user's.

    Args:
        function: itself.
        name: such as `models:train`.
        key: where the configuration names it.
        code: a hash of its file, so that scores made by other code are not taken for its own.
    """

    function: Callable[..., Any]
    name: str
    key: str
    code: str

    @classmethod
    def find(cls, name: str, *, key: str) -> Self:
        """Import `module:function`; modules of the current folder are found as Python itself finds them.

        Args:
            name: the module and, after a colon, the function.
            key: where the configuration names it, for messages.
        Raises:
            InputError: there is no such module or function, the import fails, or it cannot be called.
        """
        place, colon, attribute = name.partition(":")
        if not (colon and place and attribute):
            raise InputError(f"{key}: got {name!r}; it needs module:function, such as models:train.")
        module = _imported(place, key)
        function = getattr(module, attribute, None)
        if not callable(function):
            near = difflib.get_close_matches(attribute, vars(module), n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            held = "nothing" if function is None else type(function).__name__
            raise InputError(
                f"{key}: the module {place!r} holds {held} under the name {attribute!r};{hint} it needs a function.",
                remedy="name a function at the top of the module.",
            )
        return cls(function=function, name=name, key=key, code=_digest(module))

    def errors(self) -> AbstractContextManager[None]:
        """Say of an exception whose it is."""
        return errors_of(f"{self.key}: {self.name}")


class NamedTrain(Named):
    """(data, seed) -> model. It is given copies: what it changes in place stays its own."""

    def __call__(self, data: Data, seed: int) -> Any:
        """Train once."""
        with self.errors():
            return self.function(tuple(column.copy() for column in data), seed)


class NamedScore(Named):
    """(model, record) -> a number."""

    def __call__(self, model: Any, record: Record) -> float:
        """Score one record."""
        with self.errors():
            return as_score(self.function(model, record), f"{self.key}: {self.name}")


def _imported(name: str, key: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # for good: worker processes take the path over, and import the function by its name
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise InputError(f"{key}: importing {name!r} needs the module {error.name!r}, which is not installed.") from error
        raise InputError(
            f"{key}: no module {error.name!r} in {here} or among the installed ones.",
            remedy="call the command in the folder of the module, and name it without .py.",
        ) from error
    except (Exception, SystemExit) as error:  # whatever the module does at import
        raise InputError(f"{key}: importing {name!r} raised {type(error).__name__}: {error}") from error


def _digest(module: ModuleType) -> str:
    if module.__file__ is None:
        return ""
    return hashlib.sha256(Path(module.__file__).read_bytes()).hexdigest()
