"""Training curves and scores: what the guarantee covers, and, only where asked for and marked, what it does not."""

from __future__ import annotations

from lethe.report.document.curves import Curve
from lethe.report.document.model import Block, Code, Notice, Picture, Section, Table, Text
from lethe.report.document.subject import Subject
from lethe.report.document.wording import count, number

_WARNING = Notice(
    "caution",
    "NOT COVERED BY THE GUARANTEE",
    "What is marked private below was computed on private data. Whoever sees it learns more than this report promises: do not publish it.",
)
_ROWS = 8


def training(subject: Subject) -> Section:
    """The section."""
    shown = tuple(one for one in subject.curves if subject.show_private or not one.private)
    scores = subject.scores if subject.show_private else ()
    hidden = len(subject.curves) - len(shown) + len(subject.scores) - len(scores)
    blocks: list[Block] = []
    if scores or any(one.private for one in shown):
        blocks.append(_WARNING)
    if scores:
        blocks.append(
            Table("Private: computed on the data itself", ("what", "value"), scores, numbers=(1,), marks=tuple("danger" for _ in scores))
        )
    for one in shown:
        blocks += _of_curve(one)
    if not shown:
        blocks.append(Text("No curve that the guarantee covers was recorded."))
    if hidden:
        words = (
            f"{hidden} score{'s or curves were' if hidden > 1 else ' or curve was'} computed on private data and left out of this report"
        )
        blocks.append(
            Text(
                f"{words}: no guarantee covers them. That is no breach, unless they are shown to others or anything was chosen by them: a "
                "setting, when to stop, which model to release. This shows them, for your own eyes only:"
            )
        )
        blocks.append(Code(_shown_by(subject)))
    data = {"curves": [one.model_dump() for one in shown], "scores": [list(one) for one in scores], "left_out": hidden}
    return Section("training", "Training curves", tuple(blocks), data)


def _shown_by(subject: Subject) -> str:
    command = next((one for one in subject.commands if one.startswith("lethe report ")), "")
    if not command:
        return 'lethe.report.write(..., "private_report.html", private=True)'
    return f"{command.removesuffix(' -o report.html')} --private -o private_report.html"


def _of_curve(one: Curve) -> list[Block]:
    mark = "private, not covered by the guarantee" if one.private else "covered by the guarantee, or of public data"
    stride = max(1, -(-len(one.steps) // _ROWS))
    places = sorted({*range(0, len(one.steps), stride), len(one.steps) - 1})
    rows = tuple((count(one.steps[place]), number(one.values[place])) for place in places)
    return [
        Picture(f"Line plot of {one.name} against steps; the table below has some points.", f"{one.name} ({mark}).", lambda: _drawn(one)),
        Table(f"{one.name} ({mark})", ("step", "value"), rows, numbers=(0, 1), marks=tuple("danger" if one.private else "" for _ in rows)),
    ]


def _drawn(one: Curve) -> str:
    from lethe.report.document.pictures import curve_picture  # pictures need the optional matplotlib

    return curve_picture(list(one.steps), list(one.values), private=one.private)
