"""total: add up what several releases from the same records cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from lethe.accounting.parts import MOST_TIMES, Part, digest, part_of
from lethe.accounting.totals import TOTAL, Total, composed
from lethe.calculus.domains import outside, require_count
from lethe.certificates.keys import PublicKey
from lethe.documents.strict import read_document
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.run.neighbours import Unit
from lethe.run.run import Neighbours


@in_other_words
def total(
    parts: Sequence[object],
    delta: float | None = None,
    *,
    epsilon: float | None = None,
    neighbours: Neighbours | None = None,
    unit: Unit | None = None,
    key: PublicKey | str | os.PathLike[str] | None = None,
    allow_large_delta: bool = False,
) -> Total:
    """What several releases from the same records cost together.

    Each certificate and statement is computed again first, as by `verify`, and what does not follow is refused. Refused by name are parts
    of different neighbouring relations or units of privacy, numbers that say no relation, and a release that is there twice.

    Args:
        parts: certificates, statements, totals, guarantees, dp_accounting events, or files of them; for several independent releases of
            one kind a pair (certificate, N).
        delta: in (0, 1), and below 1/records of every part; or
        epsilon: >= 0 in its place, and the delta is computed.
        neighbours: the relation of guarantees and events, which say none; also a check of all others.
        unit: "record" or "user": of guarantees and events, which say none, "record" where it is left out; also a check of all others.
        key: the public key, or its PEM file, of the one whose seals are believed; None: this installation's and its team's.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
    Returns:
        A total, whose guarantee is as small as the calculus of `lethe.calculus.any_guarantee.together` makes it.
    Raises:
        InputError: a part cannot be added, or an argument is out of its range.
    Reference: Zhu, Dong, Wang 2022, arXiv:2106.08567, Theorem 10 (adaptive composition of fixed guarantees).
    """
    if not isinstance(parts, list | tuple) or not parts:
        raise outside("parts", parts, "a list of at least one certificate, statement, total, guarantee, event or file")
    if (delta is None) == (epsilon is None):
        raise InputError("delta and epsilon: a total needs one of the two.", remedy="give delta=1e-5, or epsilon=1 for the delta at it.")
    for name, word, words in (("neighbours", neighbours, get_args(Neighbours)), ("unit", unit, get_args(Unit))):
        if word is not None and word not in words:
            raise outside(name, word, "one of " + ", ".join(words))
    believed = key if key is None or isinstance(key, PublicKey) else PublicKey.load(key)
    listed = [found for item in parts for found in _parts_of(item, neighbours, unit, believed)]
    wanted = {"delta": delta} if epsilon is None else {"epsilon": epsilon}
    return composed(listed, neighbours, wanted, unit=unit, allow_large_delta=allow_large_delta)


def _parts_of(item: object, neighbours: Neighbours | None, unit: Unit | None, key: PublicKey | None) -> list[tuple[Part, Neighbours]]:
    count = 1
    if isinstance(item, tuple):
        if len(item) != 2:  # pyright: ignore[reportUnknownArgumentType]
            raise outside("parts", item, "pairs of a part and how many releases like it there are")
        item, count = item[0], require_count("the number of releases", item[1], high=MOST_TIMES)  # pyright: ignore[reportUnknownVariableType]
    name = ""
    if isinstance(item, str | os.PathLike):
        name = os.fspath(item)
        content = read_document(item)
        if content.get("kind") != TOTAL:
            return [part_of(content, name=name, count=count, neighbours=neighbours, unit=unit, key=key, one_release=True)]
        item = Total.from_dict(content, source=name, key=key)
    if isinstance(item, Total):
        # What was written into the object may not be what its parts have.
        again = Total.from_dict(item.to_dict(), source=name or None, key=key)
        return [(_named(part, name, part.count * count, place), again.neighbours) for place, part in enumerate(again.parts)]
    return [part_of(item, name=name, count=count, neighbours=neighbours, unit=unit, key=key)]


def _named(part: Part, name: str, count: int, place: int) -> Part:
    """A part of a total; a number of no particular release is one of the file that it is in."""
    if not name:
        return replace(part, count=count)
    return replace(part, name=f"{name}: {part.name}", count=count, releases=part.releases or frozenset([digest([name, place])]))
