"""Which batches the self-check examines, and how thoroughly."""

from __future__ import annotations

from collections.abc import Hashable
from enum import IntEnum

from lethe.train.clipping.survey import Survey
from lethe.train.core.comparison import chance

_GROWN = 1.5  # a batch so many times as large as any that was checked is checked
_THOROUGH = 4096  # checks are thorough at batches 1, 4096, 4096^2
_STATES = 64  # so many are remembered: a model whose hooks are put on anew for every batch has another one in each
_ODDS = 128  # one batch in so many is looked at, besides powers of two


class Depth(IntEnum):
    """How thoroughly a batch is checked."""

    NOT = 0
    GLANCE = 1
    THOROUGH = 2


class Schedule:
    """A thorough check until one was passed, of each state of the model and of larger batches; glances at powers of two, and at random.

    A glance costs about half a step, a thorough check several.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._largest = 0
        self._passed: set[Hashable] = set()
        self._lucky = False

    def due(self, found: Survey, records: int | None) -> Depth:
        """The depth of the check of the next batch.

        Args:
            found: of the model as it is now.
            records: B; None where it is not known yet. One record alone cannot show that records are mixed.
        """
        number = self._batches + 1
        power = number & (number - 1) == 0
        if records is not None and records < 2:
            return Depth.THOROUGH if power else Depth.NOT
        if state_of(found) not in self._passed or (records is not None and outgrown(records, self._largest)):
            return Depth.THOROUGH
        if power and (number.bit_length() - 1) % (_THOROUGH.bit_length() - 1) == 0:
            return Depth.THOROUGH
        return Depth.GLANCE if power or self._lucky else Depth.NOT

    def over(self, records: int, depth: Depth) -> None:
        """Note that a batch was checked at this depth."""
        self._batches += 1
        self._lucky = chance.randrange(_ODDS) == 0
        if depth is not Depth.THOROUGH and outgrown(records, self._largest):
            self._passed.clear()  # its size was not known in time

    def passed(self, found: Survey, records: int) -> None:
        """Note that a thorough check of so many records passed, and left nothing open."""
        if len(self._passed) == _STATES:
            self._passed.clear()
        self._passed.add(state_of(found))
        self._largest = max(self._largest, records)

    def forget(self) -> None:
        """Note that a check failed: what passed before counts no longer."""
        self._passed.clear()
        self._largest = 0


def outgrown(records: int, checked: int) -> bool:
    """Whether a batch is so much larger than one that was checked that it is checked as well."""
    return records > _GROWN * checked


def state_of(found: Survey) -> Hashable:
    """The state that a check is valid for: the modules with all that decides how they compute, and which parameters are trained."""
    return found.behaviour, frozenset(id(parameter) for parameter in found.names)
