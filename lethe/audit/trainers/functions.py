"""Audits of any callable: canaries among its own records, scored by what its model says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.audit.games import Data, Record, blank, mislabelled
from lethe.audit.games.error_context import number
from lethe.audit.trainers.subject import Canary, CanaryKind
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordScores:
    """How much more each canary seems to have been there than the record in its place.

    Args:
        score: (model, record) -> a number.
        canaries: m of them.
    """

    score: Callable[[Any, Record], float]
    canaries: tuple[Canary, ...]

    def __call__(self, model: Any) -> FloatArray:
        """One score a canary, shape (m,)."""
        return np.array([self._of(model, each.inside) - self._of(model, each.outside) for each in self.canaries])

    def _of(self, model: Any, record: Record) -> float:
        return number(self.score(model, record), "the score")


def plain_canaries(kind: CanaryKind, data: Data, positions: Sequence[int], *, classes: int | None) -> list[Canary]:
    """Mislabelled or blank records, against the records whose places they take.

    Raises:
        InputError: another kind, which needs to know the model; or no number of classes.
    """
    if kind not in ("auto", "mislabelled", "blank"):
        raise InputError(f"canary: got {kind!r}; directions of gradients need a trainer of Lethe's.", remedy="take mislabelled or blank.")
    if kind != "blank" and classes is None:
        raise InputError(
            "classes: None; a wrong label needs their number.", source="the argument classes", remedy="give it, or take blank."
        )
    found: list[Canary] = []
    for position in positions:
        own = tuple(column[position] for column in data)
        if kind == "blank":
            found.append(Canary(blank(data, label=own[-1]), own, f"blank record, against record {position}"))
        else:
            inside = mislabelled(data, position, classes=classes or 0)
            found.append(Canary(inside, own, f"record {position} with the next label, against its own"))
    return found
