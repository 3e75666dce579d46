"""A schedule: half a cosine down to zero."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from lethe.run.schedules.base import Array, Schedule


class Cosine(Schedule):
    r"""$v_t = \frac{v_0}2(1 + \cos(\pi\min(t, p)/p))$."""

    schedule: ClassVar[str] = "acme_cosine"
    first: float = Field(ge=0)
    period: int = Field(ge=1)

    def values(self, count: int) -> Array:
        share = np.minimum(np.arange(count, dtype=np.float64), self.period) / self.period
        return 0.5 * self.first * (1.0 + np.cos(np.pi * share))

    def scaled(self, factor: float) -> Cosine:
        return self.model_copy(update={"first": self.first * factor})
