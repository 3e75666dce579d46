"""Parameterised: an estimator's constructor made from its fields, and a docstring that lists them all."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any, Self, dataclass_transform

from lethe.documents.synonyms import answering, respelt, unknown_argument
from lethe.estimators.absent_parameters import ABSENT

_ARGS = "\nArgs:\n"
_ENTRY = re.compile(r"^ {4}(?P<names>\w[\w, ]*):.*(\n {5,}.*)*\n?", re.MULTILINE)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Parameterised:
    """A class whose annotated fields, and those of its bases, are the parameters of its constructor, by keyword.

    So a subclass states the parameters that it adds and no others. Its docstring states them under Args, and those that it inherits are put
    there behind them. An attribute that `fit` sets is annotated with `field(init=False)`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__doc__  # before dataclass writes one where there is none
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        if "__init__" in vars(cls):
            cls.__init__ = answering(ABSENT)(cls.__init__)
        inherited = next((base.__doc__ for base in cls.__mro__[1:] if issubclass(base, Parameterised)), None)
        if own is not None and inherited is not None:
            cls.__doc__ = _with_parameters(own, inherited)

    def set_params(self, **parameters: Any) -> Self:
        """As scikit-learn's, in both spellings.

        Raises:
            UnknownArgumentError: a parameter that there is not.
        """
        known = inspect.signature(type(self)).parameters
        given = respelt(parameters, known)
        for name in given:
            if name.partition("__")[0] not in known:
                raise unknown_argument(name, type(self).__name__, known, ABSENT)
        return super().set_params(**given)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]


def _with_parameters(own: str, inherited: str) -> str:
    """The docstring `own`, its Args followed by those entries of `inherited` that it does not have; without indentation."""
    text = inspect.cleandoc(own)
    entries = _entries(text)
    known = {name for entry in entries for name in _names(entry)}
    more = "".join(entry[0].rstrip("\n") + "\n" for entry in _entries(inspect.cleandoc(inherited)) if known.isdisjoint(_names(entry)))
    if not entries:
        return f"{text}\n{_ARGS}{more}"
    end = entries[-1].end()
    return f"{text[:end].rstrip()}\n{more}{text[end:]}"


def _names(entry: re.Match[str]) -> list[str]:
    return entry["names"].split(", ")


def _entries(text: str) -> list[re.Match[str]]:
    """The entries below Args, one after the other."""
    found: list[re.Match[str]] = []
    at = text.find(_ARGS) + len(_ARGS)
    while at >= len(_ARGS) and (entry := _ENTRY.match(text, at)):
        found.append(entry)
        at = entry.end()
    return found
