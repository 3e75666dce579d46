"""Privacy against steps: what would be proved had the run stopped earlier, of all iterates and of the last one."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

from lethe.accounting.certify import certify
from lethe.accounting.cumulative import Cumulative, cumulative_privacy, stopped
from lethe.calculus.upward_formatting import shown
from lethe.errors import LetheError
from lethe.report.document.model import Block, Picture, Section, Table, Text
from lethe.report.document.subject import Subject
from lethe.report.document.wording import count
from lethe.run.run import Run

_COLUMNS = {"last": "last_iterate", "all": "every_iterate"}
_POINTS = 12
_SECONDS = 3.0  # of a few seconds that a report may take


def steps(subject: Subject) -> Section | None:
    """The section; None of what is no run."""
    run = subject.run
    if run is None:
        return None
    title = "Privacy against steps"
    if run.seeded:
        words = "Nothing is proved of a seeded run after any step."
        return Section("steps", title, (Text(words),), {"why_not": words})
    found = _cumulative(run, subject.delta)
    if isinstance(found, str):
        return Section("steps", title, (Text(f"No curve: {found}"),), {"why_not": found})
    columns = [
        ("steps", tuple(map(count, found.steps))),
        ("all iterates", tuple(map(shown, found.every_iterate))),
        ("last iterate", tuple(map(shown, found.last_iterate))),
    ]
    both = columns[1][1] != columns[2][1]
    if not both:
        del columns[1 if run.release == "last" else 2]
    rows = tuple(zip(*(values for _, values in columns), strict=True))
    released = "the last iterate" if run.release == "last" else "all iterates"
    compared = (
        " “All iterates”: an attacker sees the model after every step, as the usual accounting assumes. “Last iterate”: an attacker "
        f"sees one model only, and noise covers the traces of the steps before it. Released here: {released}. The other column is for "
        f"comparison, and each number is about one release alone.{_without_noise(run, found)}"
    )
    lines = "One line for all iterates, one for the last alone" if both else f"One line for {released}"
    blocks: tuple[Block, ...] = (
        Text(f"Epsilon by the number of steps, had the training ended there.{compared if both else f' Released: {released}.'}"),
        Picture(
            f"Line plot. Across: steps. Up: epsilon. {lines}; the table below has the numbers.",
            f"Epsilon at delta = {subject.delta:g}, had the run stopped there.",
            lambda: _drawn(found, run.release, both=both),
        ),
        Table(
            f"Epsilon at delta = {subject.delta:g}",
            tuple(name for name, _ in columns),
            rows,
            numbers=tuple(range(len(columns))),
            marks=(*("" for _ in rows[1:]), "strong"),
        ),
    )
    return Section("steps", title, blocks, {**found.to_dict(), "released": _COLUMNS[run.release]})


def _without_noise(run: Run, found: Cumulative) -> str:
    """Why nothing is proved of all iterates, where steps without noise are the reason."""
    bare = int((run.uncorrelated.noise_multipliers == 0.0).sum())
    if bare == 0 or found.every_iterate[-1] < math.inf:
        return ""
    told = f"{count(bare)} of {count(run.total_steps)} steps {'has' if bare == 1 else 'have'} no noise"
    return f" Of all iterates nothing is proved (infinity): {told}, and the model after such a step may never be shown."


def _cumulative(run: Run, delta: float) -> Cumulative | str:
    """The points that can be had in a few seconds, or why there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a large delta, which the report says on top
        try:
            points = _POINTS if run.noise_budget is not None else max(2, min(_POINTS, int(_SECONDS / _seconds(run, delta))))
            return cumulative_privacy(run, delta, points=points, allow_large_delta=True)
        except LetheError as error:
            return error.what


def _seconds(run: Run, delta: float) -> float:
    """How long a point takes, measured in the middle."""
    unit = run.steps_per_pass if run.noise_at == "pass_ends" else 1
    middle = min(run.total_steps, max(unit, run.total_steps // 2 // unit * unit))
    began = time.perf_counter()
    for release in ("all", "last"):
        certify(stopped(run, middle).replace(release=release), delta, allow_large_delta=True)
    return max(time.perf_counter() - began, 1e-6)


def _drawn(found: Cumulative, release: str, *, both: bool) -> str:
    from lethe.report.document.pictures import steps_picture  # pictures need the optional matplotlib

    drawn = {which: _finite_pairs(found, which) if both or which == _COLUMNS[release] else [] for which in _COLUMNS.values()}
    return steps_picture(found.steps, drawn["every_iterate"], drawn["last_iterate"], release)


def _finite_pairs(found: Cumulative, which: str) -> list[tuple[int, float]]:
    values: Any = getattr(found, which)
    return [(step, value) for step, value in zip(found.steps, values, strict=True) if value < math.inf]
