"""Audits of any function that trains: canaries among its own records, scored by what its model says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lethe.audit.config import CanaryKind
from lethe.audit.games.canaries import Data, Record, blank, mislabelled
from lethe.audit.games.error_context import number
from lethe.audit.games.trials import TrainFunction
from lethe.audit.statistics.setting import Neighbours, Threat
from lethe.audit.trainers.training import AuditedTraining, Canary, Scores
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FunctionTraining(AuditedTraining):
    """Any (data, seed) -> model, and what its models say of a record. One record is replaced by another.

    For other relations build the two data sets: `lethe.audit.games.RecordTrial`.

    Args:
        train: trains; batches and noise follow from the seed, and from nothing else. With several workers it must be picklable.
        score: (model, record) -> a number, higher if the record seems to have been there. It looks at what the audit's threat says.
        classes: their public number, for mislabelled canaries.
    Raises:
        InputError: what trains or scores cannot be called.
    """

    continuous: ClassVar[bool] = False
    train: TrainFunction
    score: Callable[[Any, Record], float]
    classes: int | None = None

    def __post_init__(self) -> None:
        for name in ("train", "score"):
            if not callable(getattr(self, name)):
                raise InputError(f"{name}: got {type(getattr(self, name)).__name__}; it needs a function.", source=f"the argument {name}")

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.train, "__name__", type(self.train).__name__)

    @property
    def neighbours(self) -> Neighbours:
        """One record is replaced."""
        return "replace_one"

    def canaries(self, kind: CanaryKind, data: Data, positions: Sequence[int], *, seed: int) -> list[Canary]:
        """See `AuditedTraining`: mislabelled or blank records, against the records whose places they take."""
        if kind not in ("auto", "mislabelled", "blank"):
            raise InputError(
                f"canary: got {kind!r}; directions of gradients need a trainer of Lethe's.", remedy="take mislabelled or blank."
            )
        if kind != "blank" and self.classes is None:
            raise InputError(
                "classes: None; a wrong label needs their number.", source="the argument classes", remedy="give it, or take blank."
            )
        found: list[Canary] = []
        for position in positions:
            own = tuple(column[position] for column in data)
            if kind == "blank":
                found.append(Canary(blank(data, label=own[-1]), own, f"blank record, against record {position}"))
            else:
                inside = mislabelled(data, position, classes=self.classes or 0)
                found.append(Canary(inside, own, f"record {position} with the next label, against its own"))
        return found

    def game(self, threat: Threat, canaries: Sequence[Canary]) -> tuple[TrainFunction, Scores]:
        """See `AuditedTraining`: the function, and its own score, whatever the adversary sees."""
        return self.train, RecordScores(score=self.score, canaries=tuple(canaries))


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
