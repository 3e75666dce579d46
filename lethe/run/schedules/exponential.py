"""Exponential decay or growth."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from lethe.run.schedules.base import Array, Schedule


class Exponential(Schedule):
    r"""$v_t = v_0\, r^{t}$, $t = 0, 1, \dots$; $r < 1$ decays, $r > 1$ grows.

    Reference: exponential decay of Yu et al. 2019, arXiv:1904.02200, with $r = e^{-k}$.
    """

    schedule: ClassVar[str] = "exponential"
    first: float = Field(ge=0)
    ratio: float = Field(gt=0)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        with np.errstate(over="ignore", under="ignore"):
            return self.first * np.power(self.ratio, np.arange(count, dtype=np.float64))

    def scaled(self, factor: float) -> Exponential:
        """The same shape, every value multiplied by `factor`."""
        return self.model_copy(update={"first": self.first * factor})
