"""The same values in every pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.documents.specification import MOST_WHOLE
from lethe.errors import InputError
from lethe.run.schedules.base import Array, Schedule
from lethe.run.schedules.constant import Constant
from lethe.run.schedules.explicit import Explicit


def _as_schedule(value: Any) -> Any:
    """A number or a list where a schedule is needed; anything else is left to the type of the field."""
    if isinstance(value, np.ndarray):
        return _as_schedule(value.tolist())
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return Constant(value=value)  # pyright: ignore[reportArgumentType]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Explicit(listed=value)  # pyright: ignore[reportArgumentType, reportUnknownArgumentType]
    return value


class Repeated(Schedule):
    r"""$v_t = u_{t \bmod p}$, $t = 0, 1, \dots$: the first p values of another schedule $u$, over and over.

    With p the steps of a pass, step sizes may decay inside each pass and start again at the next.

    Args:
        every: $p \ge 1$.
        of: $u$: any schedule, a number, or a list of exactly p numbers.
    """

    schedule: ClassVar[str] = "repeated"
    every: int = Field(ge=1, le=MOST_WHOLE)
    of: Annotated[InstanceOf[Schedule], BeforeValidator(_as_schedule)]

    @model_validator(mode="after")
    def _one_period(self) -> Repeated:
        if isinstance(self.of, Explicit) and len(self.of.listed) != self.every:
            raise InputError(
                f"of: lists {len(self.of.listed)} values, and every: {self.every}; a list needs exactly that many.",
                remedy="list one value for each step of the period.",
            )
        return self

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        period = self.every if isinstance(self.of, Explicit) else min(self.every, count)
        return self.of.values(period)[np.arange(count) % self.every]

    def scaled(self, factor: float) -> Repeated:
        """The same shape, every value multiplied by `factor`."""
        return Repeated(every=self.every, of=self.of.scaled(factor))

    def to_document(self) -> Any:
        """{schedule: repeated, every: p, of: what stands in a document for the repeated one}."""
        return {"schedule": self.schedule, "every": self.every, "of": self.of.to_document()}
