"""Schedules, numbers over time as frozen data: the base class, and its shapes.

A Run holds one as `step_size` or `noise_multiplier`; v is the schedule, t the step or pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from lethe.documents.specification import MOST_WHOLE, Specification
from lethe.errors import InputError

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


class Constant(Schedule):
    """$v_t = v$. In a document: the number itself.

    Examples:
        >>> lethe.schedules.Constant(0.5).values(3).tolist()
        [0.5, 0.5, 0.5]
    """

    schedule: ClassVar[str] = "constant"
    _levels = ("value",)
    value: float = Field(ge=0, kw_only=False)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        return np.full(count, self.value)

    def to_document(self) -> Any:
        """The number itself."""
        return self.value


class Explicit(Schedule):
    """$v_t$ as listed. In a document: the list itself."""

    schedule: ClassVar[str] = "explicit"
    listed: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(strict=False)] = Field(min_length=1, kw_only=False)

    def values(self, count: int) -> Array:
        """The list, shape (count,)."""
        if len(self.listed) != count:
            raise InputError(f"an explicit schedule lists {len(self.listed)} values; this run needs {count}.")
        return np.asarray(self.listed, dtype=np.float64)

    def scaled(self, factor: float) -> Explicit:
        """The same shape, every value multiplied by `factor`."""
        return Explicit(listed=tuple((np.asarray(self.listed) * factor).tolist()))

    def to_document(self) -> Any:
        """The list itself."""
        return list(self.listed)


class Exponential(Schedule):
    r"""$v_t = v_0\, r^{t}$, $t = 0, 1, \dots$; $r < 1$ decays, $r > 1$ grows.

    Reference: exponential decay of Yu et al. 2019, arXiv:1904.02200, with $r = e^{-k}$.

    Examples:
        >>> lethe.schedules.Exponential(first=1.0, ratio=0.5).values(3).tolist()
        [1.0, 0.5, 0.25]
    """

    schedule: ClassVar[str] = "exponential"
    _levels = ("first",)
    first: float = Field(ge=0)
    ratio: float = Field(gt=0)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        with np.errstate(over="ignore", under="ignore"):
            return self.first * np.power(self.ratio, np.arange(count, dtype=np.float64))


class Step(Schedule):
    r"""$v_t = v_0\, k^{\lfloor t/p \rfloor}$, $t = 0, 1, \dots$

    Reference: step decay of Yu et al. 2019, arXiv:1904.02200.

    Examples:
        >>> lethe.schedules.Step(first=1.0, factor=0.1, period=2).values(4).tolist()
        [1.0, 1.0, 0.1, 0.1]
    """

    schedule: ClassVar[str] = "step"
    _levels = ("first",)
    first: float = Field(ge=0)
    factor: float = Field(gt=0)
    period: int = Field(ge=1, le=MOST_WHOLE)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        with np.errstate(over="ignore", under="ignore"):
            return self.first * np.power(self.factor, (np.arange(count) // self.period).astype(np.float64))


class Polynomial(Schedule):
    r"""$v_t = (v_0 - v_{\rm end})\,(1 - \min(t, p)/p)^{k} + v_{\rm end}$, $t = 0, 1, \dots$; constant after $t = p$.

    Reference: polynomial decay of Yu et al. 2019, arXiv:1904.02200.

    Examples:
        >>> lethe.schedules.Polynomial(first=1.0, last=0.0, power=1.0, period=4).values(5).tolist()
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    schedule: ClassVar[str] = "polynomial"
    _levels = ("first", "last")
    first: float = Field(ge=0)
    last: float = Field(ge=0)
    power: float = Field(gt=0)
    period: int = Field(ge=1, le=MOST_WHOLE)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        remaining = 1.0 - np.minimum(np.arange(count, dtype=np.float64), self.period) / self.period
        return (self.first - self.last) * remaining**self.power + self.last


class TimeDecay(Schedule):
    r"""$v_t = v_0 / (1 + k t)$, $t = 0, 1, \dots$

    Reference: time-based decay of Yu et al. 2019, arXiv:1904.02200.

    Examples:
        >>> lethe.schedules.TimeDecay(first=1.0, rate=1.0).values(3).round(3).tolist()
        [1.0, 0.5, 0.333]
    """

    schedule: ClassVar[str] = "time_decay"
    _levels = ("first",)
    first: float = Field(ge=0)
    rate: float = Field(ge=0)

    def values(self, count: int) -> Array:
        """The first `count` values, shape (count,)."""
        return self.first / (1.0 + self.rate * np.arange(count, dtype=np.float64))


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
