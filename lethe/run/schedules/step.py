"""A constant that drops every `period` steps."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from lethe.documents.specification import MOST_WHOLE
from lethe.run.schedules.base import Array, Schedule


class Step(Schedule):
    r"""$v_t = v_0\, k^{\lfloor t/p \rfloor}$, $t = 0, 1, \dots$

    Reference: step decay of Yu et al. 2019, arXiv:1904.02200.
    """

    schedule: ClassVar[str] = "step"
    first: float = Field(ge=0)
    factor: float = Field(gt=0)
    period: int = Field(ge=1, le=MOST_WHOLE)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        with np.errstate(over="ignore", under="ignore"):
            return self.first * np.power(self.factor, (np.arange(count) // self.period).astype(np.float64))

    def scaled(self, factor: float) -> Step:
        """The same shape, every value multiplied by `factor`."""
        return self.model_copy(update={"first": self.first * factor})
