"""In-toto statements: what is signed of a training or a release. What was released is the subject, how is the predicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from lethe.errors import InputError

T = TypeVar("T")

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


class Released(NamedTuple):
    """Something that was released: what it is, and the SHA-256 of its tensors (`lethe.certificates.weights.tensors_digest`)."""

    name: str
    sha256: str


def attestation(released: Sequence[Released], predicate_type: str, predicate: dict[str, Any]) -> dict[str, Any]:
    """An in-toto statement.

    Args:
        released: the subject.
        predicate_type: of what kind the predicate is.
        predicate: as plain data.
    """
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in released],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def read_attestation(content: object, predicate_type: str, keys: set[str]) -> tuple[tuple[Released, ...], dict[str, Any]]:
    """What `attestation` wrote: what was released, and the predicate.

    Args:
        content: plain data.
        predicate_type: the one that is needed.
        keys: of the predicate.
    Raises:
        InputError: it is another statement, or a key is missing, unknown or of the wrong type.
    """
    require_keys(content, {"_type", "subject", "predicateType", "predicate"})
    assert isinstance(content, Mapping)
    if (content["_type"], content["predicateType"]) != (STATEMENT_TYPE, predicate_type):
        raise InputError(f"it states {content['predicateType']!r}; it needs {predicate_type}.")
    require_keys(content["predicate"], keys)
    return tuple(_released(one) for one in listed(content["subject"])), dict(content["predicate"])


def require_keys(content: object, keys: set[str]) -> None:
    """Refuse a part of a statement that is no mapping with exactly these keys.

    Raises:
        InputError: it is none.
    """
    if not isinstance(content, Mapping) or set(content) != keys:
        got = sorted(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise InputError(f"a part of its statement is {got}; it needs {sorted(keys)}.")


def listed(content: object) -> list[Any]:
    """`content`, if it is a list.

    Raises:
        InputError: it is none.
    """
    return _as(list, content)


def text_of(value: object) -> str:
    """`value`, if it is text.

    Raises:
        InputError: it is none.
    """
    return _as(str, value)


def _as(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise InputError(f"a part of its statement is {type(value).__name__}; it needs {kind.__name__}.")
    return value


def _released(content: object) -> Released:
    require_keys(content, {"name", "digest"})
    assert isinstance(content, Mapping)
    require_keys(content["digest"], {"sha256"})
    return Released(text_of(content["name"]), text_of(content["digest"]["sha256"]))
