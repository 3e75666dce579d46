"""Any list of numbers, one for each step."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from lethe.errors import InputError
from lethe.run.schedules.base import Array, Schedule


class Explicit(Schedule):
    """$v_t$ as listed. In a document: the list itself."""

    schedule: ClassVar[str] = "explicit"
    listed: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(strict=False)] = Field(min_length=1, kw_only=False)

    def values(self, count: int) -> Array:
        """The list, shape (count,).

        Raises:
            InputError: the list has another length.
        """
        if len(self.listed) != count:
            raise InputError(f"an explicit schedule lists {len(self.listed)} values; this run needs {count}.")
        return np.asarray(self.listed, dtype=np.float64)

    def scaled(self, factor: float) -> Explicit:
        """The same shape, every value multiplied by `factor`."""
        return Explicit(listed=tuple((np.asarray(self.listed) * factor).tolist()))

    def to_document(self) -> Any:
        """The list itself."""
        return list(self.listed)
