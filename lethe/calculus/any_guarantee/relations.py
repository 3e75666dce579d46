"""The neighbouring relations that a guarantee names, where it names any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import cast

from lethe.calculus.base import Guarantee
from lethe.errors import InputError


def require_relation(guarantee: Guarantee, neighbours: str) -> None:
    """Refuse a guarantee that is about other neighbours: of batches sampled at random each relation has its own.

    Args:
        guarantee: any; most kinds name no relation.
        neighbours: what it is said to be about.
    Raises:
        InputError: it, or one within it, names another.
    """
    for relation in _relations(guarantee):
        if relation != neighbours:
            raise InputError(
                f"{guarantee.describe()} is about {relation}, and is said to be about {neighbours}.",
                remedy="compute it for the neighbours that are meant.",
            )


def _relations(guarantee: object) -> Iterator[str]:
    """The relations that guarantees within name: of batches sampled at random."""
    if isinstance(guarantee, Guarantee):
        for entry in fields(guarantee):  # pyright: ignore[reportArgumentType]
            value: object = getattr(guarantee, entry.name)
            if entry.name == "relation" and isinstance(value, str):
                yield value
            yield from _relations(value)
    elif isinstance(guarantee, tuple):
        for entry in cast("tuple[object, ...]", guarantee):
            yield from _relations(entry)
