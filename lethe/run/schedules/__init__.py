"""Schedules, numbers over time: step sizes and noise multipliers as frozen data, and the noise of least harm at a given privacy.

A Run holds them as `step_size` and `noise_multiplier`; this reads and writes them. In a Run (and in its document) a schedule is a number, a
list, or {schedule: name, ...}.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from lethe.documents.specification import from_tagged
from lethe.errors import InputError
from lethe.run.schedules.influence import Influence
from lethe.run.schedules.shapes import Constant, Explicit, Exponential, Polynomial, Repeated, Schedule, Step, TimeDecay

__all__ = ["Constant", "Exponential", "Influence", "Polynomial", "Step", "TimeDecay"]

SCHEDULES: dict[str, type[Schedule]] = {
    schedule.schedule: schedule for schedule in (Constant, Explicit, Exponential, Step, Polynomial, TimeDecay, Repeated)
}


def parse_schedule(value: Any) -> float | Schedule:
    """Read a number, a list or a mapping as a schedule; a constant stays a plain number."""
    if isinstance(value, Constant):
        return value.value
    if isinstance(value, bool | np.bool_):
        raise InputError(f"got {value!r}; it needs a number, a list of numbers or a schedule.")
    if isinstance(value, int | float | np.integer | np.floating):
        try:
            number = float(value)  # pyright: ignore[reportUnknownArgumentType]
        except OverflowError:
            number = float("inf")
        if not 0 <= number < float("inf"):
            raise InputError(f"got {number:g}; it needs a finite number >= 0.")
        return number
    if isinstance(value, np.ndarray):
        return parse_schedule(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _listed(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, dict | Schedule):
        parsed = from_tagged(_inner_parsed(value), tag="schedule", classes=SCHEDULES)  # pyright: ignore[reportUnknownArgumentType]
        return parsed.value if isinstance(parsed, Constant) else parsed
    raise InputError(f"got {value!r}; it needs a number, a list of numbers or {{schedule: {' | '.join(SCHEDULES)}, ...}}.")


def _inner_parsed(value: Any) -> Any:
    """A mapping of a repeated schedule with what it repeats, in any form a schedule has, already read; anything else as it is."""
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if fields.get("schedule") != Repeated.schedule or "of" not in fields:
        return fields
    try:
        return {**fields, "of": as_schedule(parse_schedule(fields["of"]))}
    except InputError as error:
        raise InputError(f"of: {error.what}", source=error.source, remedy=error.remedy) from error


def _listed(values: Sequence[Any]) -> Explicit:
    if not values:
        raise InputError("got an empty list; it needs one number for each step.")
    try:
        return Explicit(listed=values)  # pyright: ignore[reportArgumentType]
    except InputError as error:
        first = error.what.splitlines()[0].removeprefix("listed.")
        raise InputError(f"entry {first}  (entries are counted from 0)") from error


def as_schedule(value: float | Schedule) -> Schedule:
    """The schedule a number stands for."""
    return value if isinstance(value, Schedule) else Constant(value=value)


def schedule_document(value: float | Schedule | None) -> Any:
    """The document form of a schedule: number, list or mapping; None is null."""
    return None if value is None else as_schedule(value).to_document()
