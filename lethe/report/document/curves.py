"""Curve: a quantity that was recorded during training, and whether it may be shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field, model_validator

from lethe.documents.specification import Specification
from lethe.errors import InputError

_MOST = 10_000


class Curve(Specification):
    """A quantity at some steps of a training.

    Args:
        name: what it is.
        steps: at which steps, ascending.
        values: one a step.
        private: True unless it is known to be covered by the guarantee, or to come from public data alone: a curve of the loss of
            private records tells of them, and no certificate covers it. A private curve is shown only where that is asked for.
    """

    name: str = Field(min_length=1, max_length=200)
    steps: tuple[int, ...] = Field(min_length=1, max_length=_MOST, strict=False)
    values: tuple[float, ...] = Field(min_length=1, max_length=_MOST, strict=False)
    private: bool = True

    @model_validator(mode="after")
    def _one_value_a_step(self) -> Curve:
        if len(self.steps) != len(self.values):
            raise InputError(f"values: {len(self.values)} for {len(self.steps)} steps.", remedy="give one value a step.")
        if list(self.steps) != sorted(set(self.steps)) or self.steps[0] < 0:
            raise InputError("steps: they need to ascend from 0 or more.", remedy="give each step once, in order.")
        if not all(math.isfinite(value) for value in self.values):
            raise InputError("values: one is no finite number.", remedy="leave that step out.")
        return self


def as_curves(value: object, *, source: str | None = None) -> tuple[Curve, ...]:
    """Curves from themselves or from plain data.

    Args:
        value: curves, or mappings with their fields.
        source: where it is from, for messages.
    Raises:
        InputError: something else stands there.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise InputError(f"curves: got {type(value).__name__}; it needs a list.", source=source)
    return tuple(_curve(one, source) for one in value)


def _curve(value: object, source: str | None) -> Curve:
    if isinstance(value, Curve):
        return value
    if not isinstance(value, Mapping):
        raise InputError(f"curves: one is {type(value).__name__}; it needs name, steps and values.", source=source)
    fields: dict[str, Any] = {str(key): tuple(entry) if isinstance(entry, list) else entry for key, entry in value.items()}
    try:
        return Curve(**fields)
    except InputError as error:
        raise InputError(f"curves: {error.what}", source=source, remedy=error.remedy) from error
