"""The values of a sweep: those that were asked for, checked, or a grid around the run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lethe.certificates.swept import OVERS, WHOLE, Over, changes_length, moved, own_value
from lethe.errors import InputError, require_finite
from lethe.run.consistency import MOST_STEPS
from lethe.run.run import Run
from lethe.run.schedules import Explicit

_LIKE = "give numbers > 0, such as values=[10, 20, 50]."
_POINTS = 11  # of a default sweep; odd, so that the run itself is the middle one of most
_TENTH = 0.1
_DECADES = 3.0  # of delta, up and down


def require_over(over: str) -> Over:
    """`over` itself if it names a quantity that a sweep can vary.

    Raises:
        InputError: it does not.
    """
    for known in OVERS:
        if over == known:
            return known
    hint = " did you mean 'smoothness' or 'weak_convexity'?" if over == "curvature" else ""
    raise InputError(
        f"over: got {over!r};{hint} it needs {', '.join(OVERS)}.", remedy=f"add over='{OVERS[0]}', over='{OVERS[1]}' or another of them."
    )


def sweep_values(run: Run, over: Over, delta: float, values: Iterable[float] | None) -> tuple[float, ...]:
    """The values of a sweep, increasing, each once: those given, or a grid with the run itself among them.

    Args:
        run: that is varied.
        over: what.
        delta: asked for.
        values: None: a grid.
    Raises:
        InputError: a value out of range, a list that would have to be stretched, or nothing of which a grid could be made.
    """
    if changes_length(run, over):
        _refuse_lists(run, over)
    if values is None:
        return _grid(run, over, delta)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"values: got {values!r}; it needs a list of numbers.", remedy=_LIKE)
    checked = {_require_value(over, value) for value in values}
    if not checked:
        raise InputError("values: got none; it needs at least one.", remedy=_LIKE)
    return tuple(sorted(checked))


def run_at(run: Run, over: Over, value: float) -> Run:
    """The run at a value of the sweep.

    Args:
        run: the run that is varied.
        over: what is varied.
        value: its value, in the unit of `lethe.compare`'s `values`.
    Raises:
        InputError: there is no such run; the value is named.
    """
    try:
        return moved(run, over, value)
    except InputError as error:
        remedy = error.remedy or "give values=[...] that such a run can have."
        raise InputError(f"values: at {over} = {value}: {error.what}", source=error.source, remedy=remedy) from error


def _require_value(over: Over, value: float) -> float:
    if isinstance(value, bool):
        raise InputError(f"values: got {value!r}; it needs numbers.", remedy=_LIKE)
    try:
        number = require_finite("values: one entry", value, low=0.0, strict=over != "weak_convexity")
    except InputError as error:
        raise InputError(error.what, remedy=_LIKE) from error
    if over not in WHOLE:
        return number
    if number != int(number):
        raise InputError(f"values: got {value!r}; {over} are whole numbers >= 1.", remedy=_LIKE)
    return int(number)


def _refuse_lists(run: Run, over: Over) -> None:
    for name, schedule in (("step_size", run.step_size), ("noise_multiplier", run.noise_multiplier)):
        if isinstance(schedule, Explicit):
            raise InputError(
                f"over={over!r}: {name} lists {len(schedule.listed)} values, which do not say how a longer or shorter run goes on.",
                source=name,
                remedy="write it as a number or a {schedule: ...}, or vary over='noise'.",
            )


def _grid(run: Run, over: Over, delta: float) -> tuple[float, ...]:
    if over in ("steps", "passes"):
        return _length_grid(run, over)
    moved(run, over, own := own_value(run, over, delta) or 0.0)  # a run without the quantity is refused, in words
    if over == "noise" and (not own or run.uncorrelated.noise_multipliers.max() == 0):
        raise InputError(
            "over='noise': the run has no noise to vary.", source="noise_multiplier", remedy="say which noises: values=[5, 10, 20]."
        )
    if over == "batch_size":
        sizes = np.geomspace(max(1.0, own / 10), min(10 * own, run.records), _POINTS)
        return tuple(sorted(_that_fit(run, {round(size) for size in sizes} | {int(own)})))
    if over == "delta":
        most = max(own, min(own * 10**_DECADES, _TENTH / run.records))
        deltas = {float(f"{value:.4g}") for value in np.geomspace(own * 10**-_DECADES, most, _POINTS)}
        return tuple(sorted({value for value in deltas if value <= most} | {own}))
    if own == 0:
        most = own_value(run, "smoothness", delta) or 1.0
        return tuple(float(value) for value in np.linspace(0.0, most, _POINTS))
    factors = 3.0 ** np.linspace(-1, 1, _POINTS)
    return tuple(own if factor == 1 else float(f"{own * factor:.4g}") for factor in factors)


def _that_fit(run: Run, sizes: set[int]) -> set[int]:
    """The sizes, or those next to them of whose passes the groups of records, if there are any, get as many steps each."""
    groups = run.batches.groups_of_records
    if groups > 1:
        sizes = {max(1, run.records // (groups * max(1, round(run.records / (size * groups))))) for size in sizes}
    return {size for size in sizes | {run.batch_size} if run.records // size % groups == 0}


def _length_grid(run: Run, over: Over) -> tuple[float, ...]:
    """Whole passes, which many theorems need; single steps for a run shorter than a pass."""
    length, total = run.steps_per_pass, run.total_steps
    unit = length if over == "passes" or total >= length else 1
    most = max(1.0, min(10 * total, MOST_STEPS) // unit)
    counts = {round(count) for count in np.geomspace(1, most, _POINTS)}
    if over == "passes":
        return tuple(sorted(counts | ({total // length} if total % length == 0 else set())))
    return tuple(sorted({count * unit for count in counts} | {total}))
