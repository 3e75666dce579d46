"""The same number at every step."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from lethe.run.schedules.base import Array, Schedule


class Constant(Schedule):
    """$v_t = v$. In a document: the number itself."""

    schedule: ClassVar[str] = "constant"
    value: float = Field(ge=0, kw_only=False)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        return np.full(count, self.value)

    def scaled(self, factor: float) -> Constant:
        """The same shape, every value multiplied by `factor`."""
        return Constant(value=self.value * factor)

    def to_document(self) -> Any:
        """The number itself."""
        return self.value
