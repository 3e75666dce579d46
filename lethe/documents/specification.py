"""Specification: base class of everything that is described in a file: frozen, validated data with readable errors.

Runs, losses, noise, configurations and audit results derive from them, and are read from files that people write: a misspelt key must not
pass as a default.
"""

import difflib
import os
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from lethe.documents.shortened import html_table, shortened
from lethe.documents.strict import errors_from, read_document, refuse_other_kind, write_document
from lethe.errors import InputError, LetheError, quoted
from lethe.errors.names import did_you_mean, respelt

MOST_WHOLE = 10**15
"""Whole numbers up to here are exact as doubles too, and fit into numpy's; a document may hold any."""


class Missing(NamedTuple):
    """What to say where a field is left out that has no default on purpose: what its values mean, and what to do."""

    meaning: str
    remedy: str


class Specification(BaseModel):
    """Frozen data, no unknown keys, no silent conversions (true is not 1, "1" is not 1), no NaN and no infinity.

    Fields are given by name; those declared with `Field(kw_only=False)` by position too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    _missing: ClassVar[Mapping[str, Missing]] = {}
    """The error texts for fields that are left out, where the usual one is not enough."""

    def __init__(self, *values: Any, **fields: Any) -> None:
        if values:
            fields = self._by_name(values, fields)
        plain: dict[str, Any] = {key: _plain(value) for key, value in self.respelt(fields).items()}
        try:
            super().__init__(**plain)
        except ValidationError as error:
            lines = [_line(detail, type(self)) for detail in error.errors()]
            remedies = dict.fromkeys(remedy for _, remedy in lines if remedy)
            raise InputError("\n".join(line for line, _ in lines), remedy="; ".join(remedies) or None) from error

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed, checked like any other: pydantic's own keeps what was computed of the old fields."""
        if not update:
            return super().model_copy(deep=deep)
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **self.respelt(update)})

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """For repr: the fields that were not left at their default, long lists by their length and range."""
        for name, field in type(self).model_fields.items():
            if name not in self.__dict__:  # what could not be made has none
                continue
            value = getattr(self, name)
            if field.is_required() or value != field.default:
                yield name, shortened(value)

    @classmethod
    def respelt(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields under the names that documents hold, of those given in American spelling too; one in both is refused."""
        return respelt(fields, cls.model_fields)

    @classmethod
    def _by_name(cls, values: Sequence[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields, of which some were given by position: those that are declared with kw_only=False."""
        names = [name for name, field in cls.model_fields.items() if field.kw_only is False]
        if len(values) > len(names) or fields.keys() & names[: len(values)]:
            known = ", ".join(cls.model_fields) or "there are none"
            raise InputError(f"{cls.__name__}: got {len(values)} values without a name.", remedy=f"name the fields: {known}.")
        return {**dict(zip(names, values, strict=False)), **fields}

    def __getstate__(self) -> dict[Any, Any]:
        """The fields alone: what was computed of them, such as a number for each step, is computed again where it is wanted."""
        state = super().__getstate__()
        return {**state, "__dict__": {name: state["__dict__"][name] for name in type(self).model_fields}}


class StoredSpecification(Specification):
    """A specification that is stored in a file of its own."""

    _kind: ClassVar[str | None] = None
    """What such a file is called; other kinds are refused by name."""
    _of_files: ClassVar[Mapping[str, Any]] = {}
    """What a file means that leaves a field out, where that is not what the constructor means."""

    def __str__(self) -> str:
        """The fields that repr shows, a line each."""
        fields = list(self.__repr_args__())
        width = max((len(str(name)) for name, _ in fields), default=0)
        return "\n".join([type(self).__name__, *(f"    {name:<{width}}  {value!r}" for name, value in fields)])

    @abstractmethod
    def to_document(self) -> dict[str, Any]:
        """The specification as plain data, from which `from_document` builds an equal one."""

    @classmethod
    def from_document(cls, document: dict[str, Any], *, source: str | None = None) -> Self:
        """Build one from plain data; errors as of the constructor, naming `source`."""
        if not isinstance(document, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"got {type(document).__name__}; {cls.__name__} is a mapping of its fields.", source=source)
        if cls._kind is not None:
            refuse_other_kind(document, cls._kind, source=source)
        with errors_from(source):
            fields = cls.respelt({str(key): value for key, value in document.items()})
            return cls(**fields | {name: value for name, value in cls._of_files.items() if fields.get(name) is None})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read one from a .yaml, .yml or .json file; InputError where it holds no valid one."""
        return cls.from_document(read_document(path), source=str(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a .yaml, .yml or .json file, whole or not at all."""
        write_document(path, self.to_document())

    def _repr_html_(self) -> str:
        """Its fields as a table, for notebooks."""
        rows = [(name, _in_a_cell(value)) for name, value in self.to_document().items()]
        return html_table(type(self).__name__, (), rows)


def _in_a_cell(value: object) -> str:
    if isinstance(value, Mapping):
        entries: Mapping[object, object] = value  # pyright: ignore[reportUnknownVariableType]
        return ", ".join(f"{name}: {_in_a_cell(entry)}" for name, entry in entries.items())
    return "none" if value is None else value if isinstance(value, str) else _short(value)


def _plain(value: Any) -> Any:
    """numpy's integers and truth values are as good as Python's."""
    if isinstance(value, np.integer):
        return int(value)  # pyright: ignore[reportUnknownArgumentType]
    return bool(value) if isinstance(value, np.bool_) else value  # pyright: ignore[reportUnknownArgumentType]


def _line(detail: ErrorDetails, owner: type[Specification]) -> tuple[str, str | None]:
    """What is wrong with a field, and what to do."""
    cause = detail.get("ctx", {}).get("error")
    path = ".".join(str(part) for part in detail["loc"])
    if isinstance(cause, LetheError):
        # Errors of a nested specification start with "key: ..."; those join to "outer.key: ...".
        head, colon, _ = cause.what.partition(":")
        dot = "." if colon and all(part.isidentifier() for part in head.split(".")) else ": "
        return f"{path}{dot}{cause.what}" if path else cause.what, cause.remedy
    if detail["type"] == "extra_forbidden":
        names = list(owner.model_fields)
        return f"{path}: unknown key;{did_you_mean(path, names)} {owner.__name__} knows {', '.join(names)}.", None
    if detail["type"] == "missing":
        meaning, remedy = owner._missing.get(path, (f"{owner.__name__} needs it.", None))  # pyright: ignore[reportPrivateUsage]
        return f"{path}: missing; {meaning}", remedy
    return f"{path}: got {_short(detail['input'])}; {_need(detail['msg'])}.", None


def _need(message: str) -> str:
    text = re.sub(r"\d+\.\d{9,}", lambda number: f"{float(number[0]):g}", message[0].lower() + message[1:])
    text = text.replace("input should be", "it needs").replace("a valid integer", "an integer").replace("a valid", "a")
    return text.replace("needs greater", "needs a number greater").replace("needs less", "needs a number less")


def _short(value: object) -> str:
    text = quoted(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def near_miss(word: object, vocabulary: Collection[str]) -> str:
    """ " did you mean 'cyclic'?" where one of the known words is near, or empty text."""
    near = difflib.get_close_matches(str(word), vocabulary, n=1)
    return f" did you mean {near[0]!r}?" if near else ""


SpecificationT = TypeVar("SpecificationT", bound=Specification)


def names_itself(owner: type[Specification], tag: str) -> bool:
    """Whether a class has a name of its own under the attribute `tag`, such as "kind".

    What has one is final, so that nothing can be taken for what it inherits from: InputError of a class that inherits from one.
    """
    named = [base for base in owner.__mro__ if tag in vars(base)]
    above = [base for base in named if base is not owner]
    if above:
        what = f"{tag}: {owner.__name__} inherits from {vars(above[0])[tag]}, and would be taken for it."
        raise InputError(what, remedy="write it anew.")
    return bool(named)


def from_tagged(value: object, *, tag: str, classes: Mapping[str, type[SpecificationT]]) -> SpecificationT:
    """Turn {tag: name, ...} into the class of that name; instances of the classes themselves pass through, not of others that inherit.

    Args:
        value: a mapping, or an instance of one of `classes`.
        tag: the key that names the class, such as "design".
        classes: name -> class.
    """
    names = ", ".join(classes)
    if type(value) in classes.values():
        return cast(SpecificationT, value)
    if not isinstance(value, Mapping):
        raise InputError(f"got {_short(value)}; it needs a mapping with {tag!r}, one of {names}.")
    fields: dict[str, Any] = {str(key): entry for key, entry in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    name = fields.pop(tag, None)
    if name is None:
        raise InputError(f"{tag}: missing; it needs one of {names}.")
    if not isinstance(name, str) or name not in classes:
        raise InputError(f"{tag}: got {_short(name)};{near_miss(name, classes)} it needs one of {names}.")
    return classes[name](**fields)
