"""Parameterised: an estimator's constructor made from its fields, and a docstring that lists them all."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, dataclass_transform

from lethe.documents.synonyms import answering, respelt, unknown_argument
from lethe.estimators.absent_parameters import answers
from lethe.estimators.options import EstimatorOptions

_NESTED = "options__"
_ARGS = "\nArgs:\n"
_ENTRY = re.compile(r"^ {4}(?P<names>\w[\w, ]*):.*(\n {5,}.*)*\n?", re.MULTILINE)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Parameterised:
    """A class whose annotated fields, and those of its bases, are the parameters of its constructor, by keyword.

    So a subclass states the parameters that it adds and no others. Its docstring states them under Args, and those that it inherits are put
    there behind them. An attribute that `fit` sets is annotated with `field(init=False)`. A class with a
    parameter `options` says which of them it takes.
    """

    takes_options: ClassVar[frozenset[str]] = frozenset()
    _answers: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = cls.__doc__  # before dataclass writes one where there is none
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        cls._answers = answers(inspect.signature(cls).parameters, cls.takes_options)
        if "__init__" in vars(cls):
            cls.__init__ = answering(cls._answers)(cls.__init__)
        inherited = next((base.__doc__ for base in cls.__mro__[1:] if issubclass(base, Parameterised)), None)
        if own is not None and inherited is not None:
            cls.__doc__ = _with_parameters(own, inherited)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """As scikit-learn's; with `deep` the options that the class takes are among them, as options__passes."""
        found: dict[str, Any] = super().get_params(deep)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        options = EstimatorOptions() if found.get("options") is None else found["options"]
        if deep and isinstance(options, EstimatorOptions):
            found |= {f"{_NESTED}{name}": getattr(options, name) for name in sorted(self.takes_options)}
        return found

    def set_params(self, **parameters: Any) -> Self:
        """As scikit-learn's, in both spellings; options__passes=20 puts other options in the place of those there were.

        Raises:
            UnknownArgumentError: a parameter or an option that there is not.
        """
        known = inspect.signature(type(self)).parameters
        given = respelt(parameters, known)
        for name in given:
            if name.partition("__")[0] not in known:
                raise unknown_argument(name, type(self).__name__, known, self._answers)
        options = {name.removeprefix(_NESTED): given.pop(name) for name in list(given) if name.startswith(_NESTED)}
        if options and "options" in known:
            own: Any = self
            changed = given.get("options", own.options)
            given["options"] = replace(EstimatorOptions() if changed is None else changed, **options)
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
