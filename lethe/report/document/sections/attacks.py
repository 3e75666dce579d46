"""The trade-off curve: how well the best attack does, in plain rates."""

from __future__ import annotations

from lethe.report.document.model import Picture, Section, Table, Text
from lethe.report.document.subject import Subject
from lethe.report.document.tradeoff import Lines, curve
from lethe.report.document.wording import percent

_ALARMS = (0.001, 0.01, 0.05, 0.1, 0.25)
USUAL = (0.1, 1.0, 3.0, 8.0)
"""The epsilons of pure differential privacy that the curve is drawn beside."""


def attacks(subject: Subject, lines: Lines) -> Section:
    """The section."""
    alphas, betas = curve(lines)
    rows = tuple((percent(alarm), percent(lines.found(alarm))) for alarm in _ALARMS)
    blocks = (
        Text(
            "An attack says of one record “it was used” or “it was not” (or: another one stood in its place). It errs in two ways: it "
            "raises a false alarm (type I error), or it misses a record that was used (type II error). The curve is the fewest misses that "
            "any attack can have at each rate of false alarms. The nearer it is to the straight line of guessing, the better the "
            "protection."
        ),
        Picture(
            "Line plot. Across: false alarms (type I error) from 0 to 1. Up: missed records (type II error) from 0 to 1. The certified "
            f"curve lies below the straight line of guessing; the best guess is right at most {percent(lines.right)} of the time. The "
            "table below gives points on it.",
            "No attack can be below the thick line. Thin lines: what the usual epsilons would allow at delta = 0 (called pure).",
            lambda: _drawn(subject, lines),
        ),
        Table(
            "How often the best attack is right about one record, over many trainings",
            ("false alarms, where it was not used", "finds it, where it was used, at most"),
            rows,
            numbers=(0, 1),
        ),
    )
    data = {
        "type_1": alphas.tolist(),
        "type_2_at_least": betas.tolist(),
        "best_guess_right": lines.right,
        "found_at_most": [{"false_alarms": alarm, "found": lines.found(alarm)} for alarm in _ALARMS],
    }
    return Section("attacks", "How well the best attack does", blocks, data)


def _drawn(subject: Subject, lines: Lines) -> str:
    from lethe.report.document.pictures import attack_picture  # pictures need the optional matplotlib

    return attack_picture(lines, USUAL, private=subject.private)
