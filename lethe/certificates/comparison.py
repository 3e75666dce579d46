"""Comparison and Sweep: what every theorem said of a run, once or along values of one quantity."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lethe.calculus.large_delta import is_large, large_delta_note
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.parts import OtherStatus
from lethe.certificates.shown_elsewhere import figure_of, frame_of
from lethe.certificates.swept import Over, axis_of, changes_length, own_value
from lethe.documents.shortened import MOST_LINES, html_table, thinned
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.run import Run

RowStatus = Literal["used"] | OtherStatus

NOT_PRIVATE = "NOT PRIVATE: no theorem bounds what this run reveals."

_USABLE = ("used", "looser", "dominated")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One theorem's answer on one run.

    Args:
        theorem: its name.
        status: "used": the smallest epsilon that is proved; "looser" and "dominated": they hold, with no smaller one; "refused": a
            hypothesis fails; "refuted", "one-sided", "proof-gap" and "lower-bound": its epsilon is a claim, not a guarantee.
        epsilon: what it says at the delta asked for; None when refused.
        hypothesis: the first one that fails, when refused.
        why: the deciding reason.
        also: the other hypotheses that fail.
        covers: what may be released: "last" or "all".
        citations: keys of its sources.
        ours: whether `certify` tries it, without being asked for the published ones.
    """

    theorem: str
    status: RowStatus
    epsilon: float | None
    hypothesis: str | None
    why: str
    also: tuple[str, ...]
    covers: Literal["last", "all"]
    citations: tuple[str, ...]
    ours: bool

    @property
    def usable(self) -> bool:
        """Whether it holds, so that a certificate may rest on it."""
        return self.status in _USABLE

    @property
    def proves(self) -> bool:
        """Whether its epsilon is a guarantee; an infinite one promises nothing."""
        return self.usable and self.epsilon is not None and self.epsilon < float("inf")

    @property
    def standing(self) -> str:
        """Its status for a person: what holds and bounds nothing is "no bound", whether or not it is used."""
        return "no bound" if self.usable and not self.proves else self.status

    @property
    def reason(self) -> str:
        """The deciding reason with the hypothesis it is about, and which others fail besides."""
        named = f"{self.hypothesis}: {self.why}" if self.hypothesis else self.why
        return f"{named} (also fails: {', '.join(self.also)})" if self.also else named

    def shown(self, digits: int = 4) -> str:
        """Its epsilon for a person: rounded up, in parentheses where it is only a claim."""
        if self.epsilon is None:
            return "-"
        return shown(self.epsilon, digits) if self.usable else f"({shown(self.epsilon, digits)})"

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data; an infinite epsilon is the text "inf"."""
        return {**asdict(self), "epsilon": _finite(self.epsilon), "also": list(self.also), "citations": list(self.citations)}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Every theorem's answer on one run.

    Args:
        run: the run.
        delta: the delta asked for.
        certificate: the smallest epsilon that is proved.
        rows: one a theorem: the one used, those that hold, those that only claim, each by epsilon; then those refused, by hypothesis.
    """

    run: Run
    delta: float
    certificate: Certificate
    rows: tuple[ComparisonRow, ...]

    @property
    def title(self) -> str:
        """The run and what is asked of it, in a line."""
        return _title(self.run, self.delta)

    def explain(self) -> str:
        """The comparison as text, a line a theorem."""
        names = max(len(row.theorem) for row in self.rows)
        lines = [f"{row.theorem:<{names}}  {row.shown():>11}  {row.standing:<11}  {row.reason}" for row in self.rows]
        return "\n".join([self.title, *self.warnings, *lines, *self.notes])

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings and remarks that must accompany the numbers."""
        note = large_delta_note(self.delta, self.run.records)
        return () if note is None else (note,)

    @property
    def warnings(self) -> list[str]:
        """A line where nothing is proved, or none."""
        if self.rows[0].proves:
            return []
        return [self.certificate.not_private if self.run.seeded else NOT_PRIVATE]

    def __str__(self) -> str:
        """The theorems that hold, the best first, and how many others there are."""
        holding = [row for row in self.rows if row.usable]
        lines = [self.title, *self.warnings, *self.notes]
        shown_rows = holding[: MOST_LINES - len(lines) - 1]
        names = max((len(row.theorem) for row in shown_rows), default=0)
        lines += [f"{row.theorem:<{names}}  {row.shown():>11}  {row.standing:<11}  {row.reason}" for row in shown_rows]
        others = [
            (len(holding) - len(shown_rows), "are looser"),
            (sum(row.epsilon is None for row in self.rows), "do not apply"),
            (sum(row.epsilon is not None and not row.usable for row in self.rows), "claim what is not proved"),
        ]
        told = ", ".join(f"{count} {words}" for count, words in others if count)
        return "\n".join([*lines, f"others: {told} (explain() names them)"] if told else lines)

    def __repr__(self) -> str:
        holding = sum(row.proves for row in self.rows)
        return f"Comparison({self.certificate!r}, {holding} of {len(self.rows)} theorems prove something)"

    def to_frame(self) -> Any:
        """A pandas DataFrame, a line a theorem; an epsilon is NaN where a theorem is refused.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        return frame_of((({}, row) for row in self.rows), title=self.title)

    def plot(self) -> Any:
        """A matplotlib Figure, the picture that `lethe compare -o` writes; save it with its `savefig`.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        return figure_of(self)

    def _repr_html_(self) -> str:
        """What every theorem says that applies, and how many do not, as a table for notebooks."""
        said = [row for row in self.rows if row.epsilon is not None]
        rows = [(row.theorem, row.shown(), row.standing, row.reason) for row in said]
        rows.append((f"{len(self.rows) - len(said)} more", "-", "refused", "explain() says why"))
        return html_table(" ".join([*self.warnings, self.title, *self.notes]), ("theorem", "epsilon", "standing", "why"), rows)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data that JSON can hold."""
        return {
            "title": self.title,
            "delta": self.delta,
            **_large(self.run, self.delta),
            "epsilon": _finite(self.certificate.epsilon),
            "theorem": self.certificate.theorem,
            "rows": [row.to_dict() for row in self.rows],
            "certificate": self.certificate.to_dict(),
        }


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
        setting = _setting(self.run, None if self.over == "delta" else self.delta)
        return f"run {self.run.run_id}, {self.over} varied: {length}{setting}"

    @property
    def axis(self) -> str:
        """The varied quantity, in words."""
        return axis_of(self.run, self.over)

    @property
    def own(self) -> float | None:
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
            ["smallest proved", *(row.shown(3) for row in self.certified)],
            ["proved by", *(row.theorem if row.proves else "nothing" for row in self.certified)],
            *([line[0].theorem, *(row.shown(3) for row in line)] for line in lines),
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
        for place in thinned(len(self.values), room - (len(self.values) > room)):
            row, value = self.certified[place], self.values[place]
            lines.append(f"{value:>{head}g}  {row.shown():<11}  {row.theorem if row.proves else 'nothing'}")
        if len(self.values) > room:
            lines.append(f"{len(self.values)} values, {len(self.lines)} theorems: explain() shows all")
        return "\n".join(lines)

    def __repr__(self) -> str:
        span = f"{self.values[0]:g} to {self.values[-1]:g}"
        said = f"{len(self.values)} values of {self.over} from {span}, {len(self.lines)} theorems, delta {self.delta:g}"
        return f"Sweep(run {self.run.run_id}, {said}{' >= 1/records' if is_large(self.largest_delta, self.run.records) else ''})"

    @property
    def warnings(self) -> list[str]:
        """What must stand beside the numbers however few are shown."""
        told = [] if all(row.proves for row in self.certified) else ["infinity: NOT PRIVATE, nothing is proved there"]
        note = large_delta_note(self.largest_delta, self.run.records)
        return told if note is None else [*told, note]

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
        """A pandas DataFrame, a line a theorem and value; an epsilon is NaN where a theorem is refused.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        pairs = (({self.over: value}, row) for line in self.lines for value, row in zip(self.values, line, strict=True))
        return frame_of(pairs, title=self.title)

    def plot(self) -> Any:
        """A matplotlib Figure, the picture that `lethe compare --over ... -o` writes; save it with its `savefig`.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        return figure_of(self)

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain data that JSON can hold."""
        return {
            "title": self.title,
            "delta": self.delta,
            **_large(self.run, self.largest_delta),
            "over": self.over,
            "axis": self.axis,
            "own": self.own,
            "values": list(self.values),
            "certified": [{"theorem": row.theorem, "epsilon": _finite(row.epsilon)} for row in self.certified],
            "lines": [{"theorem": line[0].theorem, "rows": [row.to_dict() for row in line]} for line in self.lines],
            "run": self.run.to_document(),
            "lethe": __version__,
        }


def _title(run: Run, delta: float) -> str:
    return f"run {run.run_id}: {run.total_steps} steps, {_setting(run, delta)}"


def _setting(run: Run, delta: float | None) -> str:
    about = run.neighbours if run.unit == "record" else f"{run.neighbours} of {run.records} users"
    setting = f"{run.batches.design} batches, {about}, release {run.release}"
    if delta is None:
        return setting
    return f"{setting}, delta {delta:g}{' >= 1/records' if is_large(delta, run.records) else ''}"


def _large(run: Run, delta: float) -> dict[str, bool]:
    return {"large_delta": True} if is_large(delta, run.records) else {}


def _finite(value: float | None) -> float | str | None:
    return "inf" if value == float("inf") else value
