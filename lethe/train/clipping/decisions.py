"""Which tensors have one row per record: decided once by shape, and kept."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from types import CodeType

from torch import nn

from lethe.train.clipping.unfollowed import UnfollowedError

_CALL = nn.Module._call_impl.__code__


class Decisions:
    """Remembers, for the n-th question of each kind from each call site in a recording, the answer of the first recording that asked it.

    Without this, sixteen positions would pass for sixteen records in a batch of that size. What a batch of another size told beforehand
    (`prove`) holds for a first batch of that size as well.

    Attributes:
        unproved: whether something was asked in this recording for the first time, and nothing but its shape told the answer.
    """

    def __init__(self) -> None:
        self._settled: dict[Hashable, tuple[bool, ...]] = {}
        self._proved: dict[Hashable, tuple[bool, ...]] = {}
        self._asked: Counter[Hashable] = Counter()
        self._model: nn.Module | None = None
        self.unproved = False

    def begin(self, model: nn.Module | None = None) -> None:
        """A new recording of a model begins."""
        self._asked.clear()
        self._model, self.unproved = model, False

    def forget(self) -> None:
        """Drop all answers: the batch that gave them was refused."""
        self._settled.clear()
        self._proved.clear()

    @property
    def settled(self) -> Mapping[Hashable, tuple[bool, ...]]:
        """All answers so far."""
        return self._settled

    def prove(self, told: Mapping[Hashable, tuple[bool, ...]]) -> None:
        """Take answers from a batch of another size: what holds the records does so in both.

        Args:
            told: what was settled in it.
        """
        self._proved.update(told)

    def settle(self, question: Hashable, fits: Sequence[bool], records: int | None) -> tuple[bool, ...]:
        """Which of the tensors hold records.

        Args:
            question: what is asked, equal in every recording.
            fits: which tensors have B entries along the dimension of records.
            records: B; of at most one record nothing is learned: every answer gives the same gradients.
        Raises:
            UnfollowedError: a tensor that held records before does not fit now.
        """
        place = _Place(question, _call_site(self._model))
        key = (place, self._asked[place])
        self._asked[place] += 1
        if records is None or (records < 2 and key not in self._settled):
            return tuple(fits)
        if key not in self._settled:
            proved = self._proved.get(key)
            self.unproved = self.unproved or proved is None
            known = tuple(fits) if proved is None or len(proved) != len(fits) else proved
            self._settled[key] = tuple(now and before for now, before in zip(fits, known, strict=True))
        settled = self._settled[key]
        if any(before and not now for before, now in zip(settled, fits, strict=True)):
            raise UnfollowedError(
                f"a tensor that held the records in an earlier batch has no dimension of {records} records now ({question}).",
                source="the model's forward pass",
                remedy="give every batch the same layout, records along the first dimension.",
            )
        return settled


class _Place:
    """A question from a call site: code objects, which are hashed by all that is in them, are told apart by their names first."""

    __slots__ = ("_hash", "_told")

    def __init__(self, question: Hashable, site: tuple[tuple[CodeType, int], ...]) -> None:
        self._told = question, site
        self._hash = hash((question, *[(code.co_name, at) for code, at in site]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self._told == other._told

    def __hash__(self) -> int:
        return self._hash


def _call_site(model: nn.Module | None) -> tuple[tuple[CodeType, int], ...]:
    """The functions between the model's innermost call and this one, and the place in each; all that are running outside of any such call.

    Args:
        model: where the walk ends.
    """
    found: list[tuple[CodeType, int]] = []
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code is _CALL and frame.f_locals.get("self") is model:
            break
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)
