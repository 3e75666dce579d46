"""Comparison: what every theorem said of a run, a row each, with the reason where one does not apply.

`lethe.compare` fills it with a `ComparisonRow` for each theorem; `lethe compare` and the report print it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lethe.calculus.large_delta import is_large, large_delta_note
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.parts import OtherStatus, plain_number
from lethe.documents.shortened import MOST_LINES, html_table
from lethe.errors import MissingExtraError
from lethe.run.run import Run

RowStatus = Literal["used"] | OtherStatus

NOT_PRIVATE = "NOT PRIVATE: no theorem bounds what this run reveals."

_USABLE = ("used", "looser", "dominated")
_COLUMNS = ("theorem", "epsilon", "status", "proves", "reason", "covers", "ours")


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

    def formatted_epsilon(self, digits: int = 4) -> str:
        """Its epsilon for a person: rounded up, in parentheses where it is only a claim."""
        if self.epsilon is None:
            return "-"
        return shown(self.epsilon, digits) if self.usable else f"({shown(self.epsilon, digits)})"

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data; an infinite epsilon is the text "inf"."""
        return {**asdict(self), "epsilon": plain_number(self.epsilon), "also": list(self.also), "citations": list(self.citations)}


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
        return f"run {self.run.run_id}: {self.run.total_steps} steps, {setting_of(self.run, self.delta)}"

    def explain(self) -> str:
        """The comparison as text, a line a theorem."""
        return "\n".join([self.title, *self.warnings, *_listed(self.rows), *self.notes])

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
        lines += _listed(shown_rows)
        refusals = [
            (len(holding) - len(shown_rows), "are looser"),
            (sum(row.epsilon is None for row in self.rows), "do not apply"),
            (sum(row.epsilon is not None and not row.usable for row in self.rows), "claim what is not proved"),
        ]
        counts = ", ".join(f"{count} {words}" for count, words in refusals if count)
        return "\n".join([*lines, f"others: {counts} (explain() names them)"] if counts else lines)

    def __repr__(self) -> str:
        holding = sum(row.proves for row in self.rows)
        return f"Comparison({self.certificate!r}, {holding} of {len(self.rows)} theorems prove something)"

    def to_frame(self) -> Any:
        """A pandas DataFrame, a line a theorem; an epsilon is NaN where a theorem is refused."""
        return frame_of((({}, row) for row in self.rows), title=self.title)

    def plot(self) -> Any:
        """A matplotlib Figure, the picture that `lethe compare -o` writes; save it with its `savefig`."""
        from lethe.report import figure_of  # which is drawn above

        return figure_of(self)

    def _repr_html_(self) -> str:
        """What every theorem says that applies, and how many do not, as a table for notebooks."""
        bounded = [row for row in self.rows if row.epsilon is not None]
        rows = [(row.theorem, row.formatted_epsilon(), row.standing, row.reason) for row in bounded]
        rows.append((f"{len(self.rows) - len(bounded)} more", "-", "refused", "explain() says why"))
        return html_table(" ".join([*self.warnings, self.title, *self.notes]), ("theorem", "epsilon", "standing", "why"), rows)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain data that JSON can hold."""
        return {
            "title": self.title,
            "delta": self.delta,
            **large_of(self.run, self.delta),
            "epsilon": plain_number(self.certificate.epsilon),
            "theorem": self.certificate.theorem,
            "rows": [row.to_dict() for row in self.rows],
            "certificate": self.certificate.to_dict(),
        }


def _listed(rows: Sequence[ComparisonRow]) -> list[str]:
    names = max((len(row.theorem) for row in rows), default=0)
    return [f"{row.theorem:<{names}}  {row.formatted_epsilon():>11}  {row.standing:<11}  {row.reason}" for row in rows]


def setting_of(run: Run, delta: float | None) -> str:
    """What a run is asked, in a few words."""
    about = run.neighbours if run.unit == "record" else f"{run.neighbours} of {run.records} users"
    setting = f"{run.batches.design} batches, {about}, release {run.release}"
    if delta is None:
        return setting
    return f"{setting}, delta {delta:g}{' >= 1/records' if is_large(delta, run.records) else ''}"


def large_of(run: Run, delta: float) -> dict[str, bool]:
    """An entry of a file where delta is large."""
    return {"large_delta": True} if is_large(delta, run.records) else {}


def frame_of(rows: Iterable[tuple[dict[str, Any], Any]], *, title: str) -> Any:
    """A pandas DataFrame with a line a row: columns that stand first, and a ComparisonRow; the title is kept in `attrs`."""
    try:
        import pandas  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise MissingExtraError("a frame needs pandas, which is not installed.", remedy="pip install pandas; or take to_dict()") from error
    lines = [{**first, **{name: getattr(row, name) for name in _COLUMNS}} for first, row in rows]
    frame: Any = pandas.DataFrame(lines)
    frame = frame.astype({"epsilon": float})  # of None NaN
    frame.attrs["title"] = title
    return frame
