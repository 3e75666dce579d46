"""The first screen: what the report is called and about, who is protected, how well the best attack does, what must be believed.

build.py puts it first: many readers read no further, so everything that can mislead must be said there.
"""

from datetime import date

from lethe.certificates.attack_rates import AttackRates
from lethe.certificates.statement import Statement
from lethe.report.model import COLOURS, Block, Facts, Panel, Picture, Series
from lethe.report.sections.promise import protected
from lethe.report.subject import NOT_USED, Subject
from lethe.report.wording import day, percent, times
from lethe.run.participation import NOUNS

_LONGEST = 60
_BAR = {"linewidth": 13, "solid_capstyle": "butt"}


def title(subject: Subject) -> str:
    """The purpose, where one is stated, or in a few words what was trained."""
    what = subject.what
    if isinstance(subject.proof, Statement) and (";" in what or len(what) > _LONGEST):
        stated = subject.stated
        what = "a release" if stated.records is None else f"a release from {stated.records:,} {NOUNS[stated.unit][1]}"
    return subject.purpose or f"Privacy report: {what}"


def about(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Data set, dates, and who ran it, as far as somebody has said so."""
    return (*subject.about, ("Report of", day(date.today())))


def opening(subject: Subject, rates: AttackRates) -> tuple[Block, ...]:
    """Who is protected and what must be believed, in words, and one picture."""
    rows = protected(subject)
    declared = [finding.name for finding in subject.known("declared")]
    believed = "what every report rests on (section 3)"
    if declared:
        believed = f"{times(len(declared), 'statement', 'statements')} of those who trained ({', '.join(declared)}), and {believed}"
    if used := [name for name, words in subject.columns if words != NOT_USED]:
        believed += f"; the ranges and categories of {times(len(used), 'column', 'columns')} stand there in words"
    right = 100.0 * min(rates.best_guess, 1.0)
    best_guess = percent(rates.best_guess)
    bars = [Series([50, 100], [0, 0], {"color": COLOURS["grid"], **_BAR}), Series([50, right], [0, 0], {"color": COLOURS["main"], **_BAR})]
    settings = {
        "xlim": (48, 102),
        "ylim": (-1.0, 1.6),
        "xticks": [50, 60, 70, 80, 90, 100],
        "yticks": [],
        "xlabel": f"guesses about one {subject.stated.unit} that are right, in %",
        "ylabel": "",
    }
    note = {"text": best_guess, "xy": (right, 0.55), "ha": "center", "color": COLOURS["ink"]}
    caption = f"50 % is a coin, 100 % no protection at all; the best attack is right at most {best_guess} of the time."
    if not subject.private:
        caption = "50 % is a coin, 100 % no protection at all, which is all that is promised here."
    return (
        Facts((("Who is protected", rows["Who"]), ("Against whom", rows["Against whom"]), ("What must be believed", believed))),
        Picture(caption, Panel(bars, settings, notes=[note]), height=1.15),
    )
