"""Polynomial decay from one value to another."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from lethe.documents.specification import MOST_WHOLE
from lethe.run.schedules.base import Array, Schedule


class Polynomial(Schedule):
    r"""$v_t = (v_0 - v_{\rm end})\,(1 - \min(t, p)/p)^{k} + v_{\rm end}$, $t = 0, 1, \dots$; constant after $t = p$.

    Reference: polynomial decay of Yu et al. 2019, arXiv:1904.02200.
    """

    schedule: ClassVar[str] = "polynomial"
    first: float = Field(ge=0)
    last: float = Field(ge=0)
    power: float = Field(gt=0)
    period: int = Field(ge=1, le=MOST_WHOLE)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        left = 1.0 - np.minimum(np.arange(count, dtype=np.float64), self.period) / self.period
        return (self.first - self.last) * left**self.power + self.last

    def scaled(self, factor: float) -> Polynomial:
        """The same shape, every value multiplied by `factor`."""
        return self.model_copy(update={"first": self.first * factor, "last": self.last * factor})
