"""Epsilon against delta: one training, every pair of numbers that may be quoted of it."""

from __future__ import annotations

import math

from lethe.calculus.large_delta import is_large
from lethe.calculus.upward_formatting import shown
from lethe.report.document.model import Picture, Section, Table, Text
from lethe.report.document.subject import Subject

_POWERS = (3, 4, 5, 6, 7, 8, 9, 10, 12)
_TITLE = "Epsilon against delta"


def deltas(subject: Subject) -> Section:
    """The section."""
    asked = sorted({*(10.0**-power for power in _POWERS), subject.delta}, reverse=True)
    allowed = [delta for delta in asked if delta == subject.delta or not _large(subject, delta)]
    pairs = [(delta, _epsilon(subject, delta)) for delta in allowed]
    data = {"pairs": [{"delta": delta, "epsilon": _finite(epsilon)} for delta, epsilon in pairs]}
    if all(epsilon == math.inf for _, epsilon in pairs):
        return Section("deltas", _TITLE, (Text("No epsilon is proved, whatever delta is."),), data)
    rows = tuple((f"{delta:g}", shown(epsilon)) for delta, epsilon in pairs)
    marks = tuple("strong" if delta == subject.delta else "" for delta in allowed)
    records = "" if subject.records is None else f" Deltas of 1 / {subject.records:,} or more promise next to nothing and are left out."
    blocks = (
        Text(
            "Epsilon and delta belong together: the same training has a smaller epsilon at a larger delta. Compare two trainings only at "
            f"the same delta.{records}"
        ),
        Picture(
            f"Line plot. Across: delta on a logarithmic axis. Up: the epsilon proved at it. At the delta asked for, {subject.delta:g}, "
            f"epsilon is {shown(subject.epsilon)}. The table below gives more points.",
            "The dot is the pair that this report speaks of.",
            lambda: _drawn(subject, pairs),
        ),
        Table("Pairs that hold of this training", ("delta", "epsilon"), rows, numbers=(0, 1), marks=marks),
    )
    return Section("deltas", _TITLE, blocks, data)


def _epsilon(subject: Subject, delta: float) -> float:
    return subject.epsilon if delta == subject.delta else subject.guarantee.epsilon(delta)


def _large(subject: Subject, delta: float) -> bool:
    return subject.records is not None and is_large(delta, subject.records)


def _drawn(subject: Subject, pairs: list[tuple[float, float]]) -> str:
    from lethe.report.document.pictures import delta_picture  # pictures need the optional matplotlib

    # A profile may take long for each epsilon, and the line through those of the table is smooth enough.
    return delta_picture([pair for pair in pairs if pair[1] < math.inf], (subject.delta, subject.epsilon))


def _finite(value: float) -> float | str:
    return "inf" if value == math.inf else value
