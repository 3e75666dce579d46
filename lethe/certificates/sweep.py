"""Sweep: what every theorem said of a run along values of one quantity, and which quantities may be varied.

`lethe.compare(..., over=...)` fills it: the run with, say, more noise or passes is made by `moved`, and a comparison made of each; the
report plots it.
"""

import difflib
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lethe.calculus.large_delta import is_large, large_delta_note
from lethe.certificates.comparison import ComparisonRow, frame_of, large_of, setting_of
from lethe.certificates.parts import plain_number
from lethe.documents.shortened import MOST_LINES, thinned
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.run import Run
from lethe.run.schedules import as_schedule
from lethe.run.schedules.shapes import Schedule

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


def own_value(run: Run, over: Over, delta: float) -> float | None:
    """The value that the run itself has of what a sweep varies; None where it has none, such as noise that is still to be planned."""
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
    """The run with another value of what is varied: a factor, where it follows a schedule. Delta is none of its."""
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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Sweep:
    """Every theorem's answer along values of one quantity, all else as in the run.

    Args:
        run: the run that is varied.
        delta: the delta asked for.
        over: what is varied, such as "steps"; of "noise" and "step_size" a factor, where it is a list or a schedule.
        values: what the quantity was set to, increasing.
        lines: one a theorem, in the order they were given; each with one row a value.
    """

    run: Run
    delta: float
    over: Over
    values: tuple[float, ...]
    lines: tuple[tuple[ComparisonRow, ...], ...]

    @property
    def title(self) -> str:
        """The run, what is varied and what is asked, in a line."""
        length = "" if changes_length(self.run, self.over) else f"{self.run.total_steps} steps, "
        setting = setting_of(self.run, None if self.over == "delta" else self.delta)
        return f"run {self.run.run_id}, {self.over} varied: {length}{setting}"

    @property
    def axis(self) -> str:
        """The varied quantity, in words; of a list or a schedule the factor on it."""
        factor = self.over in _FACTORS and isinstance(_scaled(self.run, self.over), Schedule)
        return _FACTORS[self.over] if factor else _WORDS.get(self.over, self.over)

    @property
    def run_value(self) -> float | None:
        """The value that the run itself has; None while it has no noise, in a sweep over noise."""
        return own_value(self.run, self.over, self.delta)

    @property
    def largest_delta(self) -> float:
        """The largest at which an epsilon is shown."""
        return max(self.values) if self.over == "delta" else self.delta

    @property
    def certified(self) -> tuple[ComparisonRow, ...]:
        """The row used at each value: the smallest epsilon that is proved there."""
        return tuple(next(row for row in rows if row.status == "used") for rows in zip(*self.lines, strict=True))

    def epsilons(self, theorem: str) -> tuple[float | None, ...]:
        """One theorem's epsilon at each value, None where it is refused.

        Raises:
            InputError: the sweep holds no such theorem.
        """
        for line in self.lines:
            if line[0].theorem == theorem:
                return tuple(row.epsilon for row in line)
        names = [line[0].theorem for line in self.lines]
        close = difflib.get_close_matches(str(theorem), names, n=3, cutoff=0.4)
        raise InputError(
            f"theorem: got {theorem!r}; the sweep holds no theorem of that name.",
            remedy=f"give a name such as {', '.join(close or names[:3])}.",
        )

    def explain(self) -> str:
        """The sweep as text: a column a value, a line a theorem that says anything."""
        lines = [line for line in self.lines if any(row.epsilon is not None for row in line)]
        table = [
            [self.axis, *(f"{value:g}" if isinstance(value, float) else str(value) for value in self.values)],
            ["smallest proved", *(row.formatted_epsilon(3) for row in self.certified)],
            ["proved by", *(row.theorem if row.proves else "nothing" for row in self.certified)],
            *([line[0].theorem, *(row.formatted_epsilon(3) for row in line)] for line in lines),
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        text = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])
            for row in table
        ]
        return "\n".join([self.title, *text, *self.notes])

    def __str__(self) -> str:
        """The smallest epsilon that is proved at some of the values, the first and the last among them, and by what."""
        head = max(len(self.axis), 10)
        room = MOST_LINES - 2 - len(self.warnings)
        lines = [self.title, *self.warnings, f"{self.axis:>{head}}  epsilon      proved by"]
        for index in thinned(len(self.values), room - (len(self.values) > room)):
            row, value = self.certified[index], self.values[index]
            lines.append(f"{value:>{head}g}  {row.formatted_epsilon():<11}  {row.theorem if row.proves else 'nothing'}")
        if len(self.values) > room:
            lines.append(f"{len(self.values)} values, {len(self.lines)} theorems: explain() shows all")
        return "\n".join(lines)

    def __repr__(self) -> str:
        span = f"{self.values[0]:g} to {self.values[-1]:g}"
        summary = f"{len(self.values)} values of {self.over} from {span}, {len(self.lines)} theorems, delta {self.delta:g}"
        return f"Sweep(run {self.run.run_id}, {summary}{' >= 1/records' if is_large(self.largest_delta, self.run.records) else ''})"

    @property
    def warnings(self) -> list[str]:
        """What must stand beside the numbers however few are shown."""
        notes = [] if all(row.proves for row in self.certified) else ["infinity: NOT PRIVATE, nothing is proved there"]
        note = large_delta_note(self.largest_delta, self.run.records)
        return notes if note is None else [*notes, note]

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks that explain the table."""
        rows = [row for line in self.lines for row in line]
        spoken = [line for line in self.lines if any(row.epsilon is not None for row in line)]
        silent = len(self.lines) - len(spoken)
        notes: list[str] = []
        if any(row.epsilon is None for line in spoken for row in line):
            notes.append("-: refused there")
        if any(row.epsilon is not None and not row.usable for row in rows):
            notes.append("in parentheses: a claim, not a guarantee")
        notes += self.warnings
        if silent:
            notes.append(f"{silent} more do{'es' if silent == 1 else ''} not apply at any of these values; the data (CSV, JSON) say why")
        return tuple(notes)

    def to_frame(self) -> Any:
        """A pandas DataFrame, a line a theorem and value; an epsilon is NaN where a theorem is refused."""
        pairs = (({self.over: value}, row) for line in self.lines for value, row in zip(self.values, line, strict=True))
        return frame_of(pairs, title=self.title)

    def plot(self) -> Any:
        """A matplotlib Figure, the picture that `lethe compare --over ... -o` writes; save it with its `savefig`."""
        from lethe.report import figure_of  # which is drawn above

        return figure_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain data that JSON can hold."""
        return {
            "title": self.title,
            "delta": self.delta,
            **large_of(self.run, self.largest_delta),
            "over": self.over,
            "axis": self.axis,
            "own": self.run_value,
            "values": list(self.values),
            "certified": [{"theorem": row.theorem, "epsilon": plain_number(row.epsilon)} for row in self.certified],
            "lines": [{"theorem": line[0].theorem, "rows": [row.to_dict() for row in line]} for line in self.lines],
            "run": self.run.to_document(),
            "lethe": __version__,
        }
