"""The quantities that a sweep may vary: what they are called, what a run has of them, and the run with another value."""

from __future__ import annotations

from typing import Any, Literal, get_args

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.run.schedules import as_schedule
from lethe.run.schedules.base import Schedule

Over = Literal["steps", "passes", "noise", "step_size", "batch_size", "smoothness", "weak_convexity", "delta"]
OVERS: tuple[Over, ...] = get_args(Over)
WHOLE = ("steps", "passes", "batch_size")
"""Those that are whole numbers."""

_CURVATURES = ("smoothness", "weak_convexity")
_WORDS: dict[str, str] = {
    "noise": "noise multiplier",
    "step_size": "step size",
    "batch_size": "batch size",
    "weak_convexity": "weak convexity",
}
_FACTORS = {"noise": "noise, times that of the run", "step_size": "step size, times that of the run"}


def axis_of(run: Run, over: Over) -> str:
    """The quantity in words; of a list or a schedule the factor on it."""
    return _FACTORS[over] if over in _FACTORS and isinstance(_scaled(run, over), Schedule) else _WORDS.get(over, over)


def own_value(run: Run, over: Over, delta: float) -> float | None:
    """The value that the run itself has of what a sweep varies; None where it has none, such as noise that is still to be planned.

    Args:
        run, over: as above.
        delta: asked for.
    """
    if over in _FACTORS:
        scaled = _scaled(run, over)
        return 1.0 if isinstance(scaled, Schedule) else scaled
    if over in _CURVATURES:
        return getattr(run.loss, over) if over in type(run.loss).model_fields else None
    values = {"steps": run.total_steps, "passes": run.total_steps / run.steps_per_pass, "batch_size": run.batch_size, "delta": delta}
    return values[over]


def changes_length(run: Run, over: Over) -> bool:
    """Whether another value of it means another number of steps."""
    return over in ("steps", "passes") or (over == "batch_size" and run.passes is not None)


def moved(run: Run, over: Over, value: Any) -> Run:
    """The run with another value of what is varied; delta is none of its.

    Args:
        run: the run that is varied.
        over: what is varied.
        value: its value; of noise and step sizes that follow a schedule, the factor that scales it.
    Raises:
        InputError: there is no such run.
    """
    if over in _FACTORS:
        name = "noise_multiplier" if over == "noise" else over
        scaled = _scaled(run, over)
        return run.replace(**{name: as_schedule(scaled).scaled(value) if isinstance(scaled, Schedule) else value})
    if over == "batch_size":
        if "size" not in type(run.batches).model_fields:
            raise InputError(
                f"batch_size: {run.batches.design} batches have no size that could be varied.", remedy="take a design with a size."
            )
        return run.replace(batches=run.batches.model_copy(update={"size": value}))
    if over in _CURVATURES:
        if over not in type(run.loss).model_fields:
            raise InputError(
                f"{over}: the loss, {run.loss.summary}, states no {_WORDS.get(over, over)} of its own.",
                source="loss",
                remedy="vary what it follows from, or state it with a loss of kind convex, weakly_convex or generalised_linear.",
            )
        return run.replace(loss=run.loss.model_copy(update={over: value}))
    return run if over == "delta" else run.replace(**{over: value})


def _scaled(run: Run, over: Over) -> float | Schedule | None:
    return run.noise_multiplier if over == "noise" else run.step_size
