"""The interface of schedules: numbers over time, as frozen data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from lethe.documents.specification import Specification

Array = npt.NDArray[np.float64]


def read_only(values: Array) -> Array:
    """The array itself, which from now on cannot be written to."""
    values.flags.writeable = False
    return values


class Schedule(Specification, ABC):
    """Nonnegative numbers $v_0, v_1, \\dots$, one for each step (or each pass), known before training starts.

    Every schedule but `Explicit` has a value at any index; `Explicit` has exactly as many as it lists.
    """

    schedule: ClassVar[str]
    _levels: ClassVar[tuple[str, ...]] = ()
    """The fields that all values are proportional to."""

    @abstractmethod
    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""

    def scaled(self, factor: float) -> Schedule:
        """The same shape, every value multiplied by `factor` >= 0."""
        return self.model_copy(update={name: getattr(self, name) * factor for name in self._levels})

    def to_document(self) -> Any:
        """The form of the schedule in a Run document: {schedule: name, parameters...}."""
        return {"schedule": self.schedule, **self.model_dump()}
