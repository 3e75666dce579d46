"""Decay like one over time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from lethe.run.schedules.base import Array, Schedule


class TimeDecay(Schedule):
    r"""$v_t = v_0 / (1 + k t)$, $t = 0, 1, \dots$

    Reference: time-based decay of Yu et al. 2019, arXiv:1904.02200.
    """

    schedule: ClassVar[str] = "time_decay"
    first: float = Field(ge=0)
    rate: float = Field(ge=0)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        return self.first / (1.0 + self.rate * np.arange(count, dtype=np.float64))

    def scaled(self, factor: float) -> TimeDecay:
        """The same shape, every value multiplied by `factor`."""
        return self.model_copy(update={"first": self.first * factor})
