"""The guarantee in numbers: against attacks, delta and steps; the noise; and what was recorded during training."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lethe.accounting.certify import Cumulative, certify, cumulative_privacy, stopped
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import is_large
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import OPTIMISER
from lethe.errors import LetheError
from lethe.report.model import Block, Code, Notice, Picture, Section, Table, Text
from lethe.report.subject import Curve, Subject
from lethe.report.wording import count, number, percent
from lethe.run.noise.base import growths
from lethe.run.run import Run
from lethe.run.schedules import schedule_document

_ALARMS = (0.001, 0.01, 0.05, 0.1, 0.25)
_DOTS = {0.1: (0, (1, 2.2)), 1.0: (0, (3, 2)), 3.0: (0, (6, 2)), 8.0: (0, (9, 2, 1.5, 2))}
"""The epsilons of pure differential privacy that the curve is drawn beside, and their looks."""
_POWERS = (3, 4, 5, 6, 7, 8, 9, 10, 12)
_COLUMNS = {"last": "last_iterate", "all": "every_iterate"}
_POINTS, _ROWS = 12, 8
_SECONDS = 3.0  # of a few seconds that a report may take
_MARKS_UP_TO, _MOST_POINTS = 60, 2000  # more points than this are drawn as a line; more than a screen has say nothing more
_LEVELS, _SMALLEST, _LARGEST = 36, 0.02, 60.0
_NO_MORE = 1e-8  # a delta below which larger epsilons say nothing that could be seen
_ROUNDING = 1e-12  # of a few additions and products of numbers below 1
_NOT_COVERED = Notice(
    "caution",
    "NOT COVERED BY THE GUARANTEE",
    "What is marked private below was computed on private data. Whoever sees it learns more than this report promises: do not publish it.",
)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lines:
    r"""The lines that bound every test's errors from below, one pair for each epsilon with the delta that is proved at it.

    A mechanism that is $(\epsilon, \delta(\epsilon))$-DP has type II error $\beta \ge \max(1 - \delta - e^\epsilon\alpha,
    e^{-\epsilon}(1 - \delta - \alpha), 0)$ at type I error $\alpha$, so that the largest holds: too few of them make the curve too
    pessimistic, never too optimistic. `Guarantee.tradeoff` is exact at one rate, and asks a profile many times for it.

    Reference: Dong, Roth, Su 2019, arXiv:1905.02383, Proposition 2.5 and 2.12.
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    @classmethod
    def of(cls, guarantee: Guarantee, epsilon: float) -> Lines:
        """The lines of a guarantee, among them that of the epsilon that is certified, where it is finite."""
        if epsilon == math.inf and guarantee.delta(_LARGEST) == 1.0:
            return cls((0.0,), (1.0,))
        found = {level: guarantee.delta(level) for level in ({0.0} if epsilon == math.inf else {0.0, epsilon})}
        for level in np.geomspace(_SMALLEST, _LARGEST, _LEVELS).tolist():
            found[level] = guarantee.delta(level)
            if found[level] <= _NO_MORE:
                break
        ordered = tuple(sorted(found))
        return cls(ordered, tuple(found[level] for level in ordered))

    def type_two(self, type_one: float) -> float:
        """The least type II error, rounded down, of a test with this type I error in [0, 1]."""
        best = 0.0
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            best = max(best, 1.0 - delta - math.exp(epsilon) * type_one, math.exp(-epsilon) * (1.0 - delta - type_one))
        return max(0.0, best - _ROUNDING)

    def found(self, type_one: float) -> float:
        """The most of the true members that a test with this rate of false alarms finds, rounded up."""
        return min(1.0, 1.0 - self.type_two(type_one))

    @property
    def right(self) -> float:
        """How often the best guess between two data sets that are equally likely is right, at most: (1 + delta(0)) / 2."""
        return min(1.0, 0.5 + 0.5 * self.deltas[0] + _ROUNDING)

    def curve(self, points: int = 201) -> tuple[Array, Array]:
        """Type I and type II errors, finely spaced near 0 where the curve is steep."""
        inner = np.linspace(0.0, 1.0, points) ** 2
        return inner, np.array([self.type_two(float(level)) for level in inner])


def _picture(lines: Iterable[Sequence[Any]], across: str, up: str, **options: Any) -> Callable[[], str]:
    """What draws these lines, once a format can show it."""

    def draw() -> str:
        from lethe.report.drawing import Line, small_picture  # pictures need the optional matplotlib

        return small_picture([Line(*line) for line in lines], across, up, **options)

    return draw


def _few(length: int, most: int) -> list[int]:
    """So many places, or a few more, evenly apart, and the last one."""
    return sorted({*range(0, length, max(1, -(-length // most))), length - 1})


def attacks(subject: Subject, lines: Lines) -> Section:
    """The trade-off curve: how well the best attack does, in plain rates."""
    alphas, betas = lines.curve()
    pure = {usual: np.maximum(np.maximum(1 - math.exp(usual) * alphas, math.exp(-usual) * (1 - alphas)), 0) for usual in _DOTS}
    drawn: list[Sequence[Any]] = [([0, 1], [1, 0], "muted", "guessing (a coin)", {"linewidth": 1})]
    for usual, errors in pure.items():
        drawn.append((alphas, errors, "other", f"epsilon = {usual:g}", {"linewidth": 1.1, "linestyle": _DOTS[usual]}))
    drawn.append((alphas, betas, "main", "this certificate" if subject.private else "nothing is proved", {"linewidth": 2.6}))
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
            _picture(drawn, "false alarms (type I error)", "missed records (type II error)", height=3.9, shade=True),
        ),
        Table(
            "How often the best attack is right about one record, over many trainings",
            ("false alarms, where it was not used", "finds it, where it was used, at most"),
            tuple((percent(alarm), percent(lines.found(alarm))) for alarm in _ALARMS),
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


def deltas(subject: Subject) -> Section:
    """Epsilon against delta: one training, every pair of numbers that may be quoted of it."""
    title, own = "Epsilon against delta", subject.delta
    asked = sorted({*(10.0**-power for power in _POWERS), own}, reverse=True)
    allowed = [delta for delta in asked if delta == own or subject.records is None or not is_large(delta, subject.records)]
    pairs = [(delta, subject.epsilon if delta == own else subject.guarantee.epsilon(delta)) for delta in allowed]
    data = {"pairs": [{"delta": delta, "epsilon": epsilon} for delta, epsilon in pairs]}
    finite = [pair for pair in pairs if pair[1] < math.inf]
    if not finite:
        return Section("deltas", title, (Text("No epsilon is proved, whatever delta is."),), data)
    records = "" if subject.records is None else f" Deltas of 1 / {subject.records:,} or more promise next to nothing and are left out."
    dot = ([own], [subject.epsilon], "main", "", {"marker": "o", "markersize": 7}) if subject.private else ([], [])
    blocks = (
        Text(
            "Epsilon and delta belong together: the same training has a smaller epsilon at a larger delta. Compare two trainings only at "
            f"the same delta.{records}"
        ),
        Picture(
            f"Line plot. Across: delta on a logarithmic axis. Up: the epsilon proved at it. At the delta asked for, {own:g}, "
            f"epsilon is {shown(subject.epsilon)}. The table below gives more points.",
            "The dot is the pair that this report speaks of.",
            # A profile may take long for each epsilon, and the line through those of the table is smooth enough.
            _picture([(*zip(*finite, strict=True), "main", "", {"linewidth": 2.2}), dot], "delta", "epsilon", log=True),
        ),
        Table(
            "Pairs that hold of this training",
            ("delta", "epsilon"),
            tuple((f"{delta:g}", shown(epsilon)) for delta, epsilon in pairs),
            numbers=(0, 1),
            marks=tuple("strong" if delta == own else "" for delta in allowed),
        ),
    )
    return Section("deltas", title, blocks, data)


def steps(subject: Subject) -> Section | None:
    """Privacy against steps: what would be proved had the run stopped earlier, of all iterates and of the last; None of what is no run."""
    run, title = subject.run, "Privacy against steps"
    if run is None:
        return None
    found = "Nothing is proved of a seeded run after any step." if run.seeded else _cumulative(run, subject.delta)
    if isinstance(found, str):
        return Section("steps", title, (Text(found if run.seeded else f"No curve: {found}"),), {"why_not": found})
    columns = {"all": ("all iterates", found.every_iterate), "last": ("last iterate", found.last_iterate)}
    own, (released, values) = run.release, columns[run.release]
    both = tuple(map(shown, found.every_iterate)) != tuple(map(shown, found.last_iterate))
    kept = list(columns.values()) if both else [columns[own]]
    the = "the last iterate" if own == "last" else released
    compared = (
        " “All iterates”: an attacker sees the model after every step, as the usual accounting assumes. “Last iterate”: an attacker "
        f"sees one model only, and noise covers the traces of the steps before it. Released here: {the}. The other column is for "
        f"comparison, and each number is about one release alone.{_without_noise(run, found)}"
    )
    drawn: list[Sequence[Any]] = []
    for name, epsilons in kept:
        points = [(step, value) for step, value in zip(found.steps, epsilons, strict=True) if value < math.inf]
        look = {"marker": "o", "markersize": 4, "linewidth": 2.4 if name == released else 1.6}
        look |= {} if name == "last iterate" else {"linestyle": "--"}
        label = f"{name} (what is released)" if name == released else name
        drawn.append((*zip(*points, strict=True), "main" if name == "last iterate" else "other", label, look) if points else ([], []))
    lines = "One line for all iterates, one for the last alone" if both else f"One line for {the}"
    nothing = "nothing is proved after any step"
    blocks: tuple[Block, ...] = (
        Text(f"Epsilon by the number of steps, had the training ended there.{compared if both else f' Released: {the}.'}"),
        Picture(
            f"Line plot. Across: steps. Up: epsilon. {lines}; the table below has the numbers.",
            f"Epsilon at delta = {subject.delta:g}, had the run stopped there.",
            _picture(drawn, "steps, had the run stopped there", "epsilon", nothing=nothing),
        ),
        Table(
            f"Epsilon at delta = {subject.delta:g}",
            ("steps", *(name for name, _ in kept)),
            tuple(zip(map(count, found.steps), *(map(shown, epsilons) for _, epsilons in kept), strict=True)),
            numbers=tuple(range(len(kept) + 1)),
            marks=(*("" for _ in values[1:]), "strong"),
        ),
    )
    return Section("steps", title, blocks, {**found.to_dict(), "released": _COLUMNS[own]})


def _without_noise(run: Run, found: Cumulative) -> str:
    """Why nothing is proved of all iterates, where steps without noise are the reason."""
    bare = int((run.uncorrelated.noise_multipliers == 0.0).sum())
    if bare == 0 or found.every_iterate[-1] < math.inf:
        return ""
    words = f"{count(bare)} of {count(run.total_steps)} steps {'has' if bare == 1 else 'have'} no noise"
    return f" Of all iterates nothing is proved (infinity): {words}, and the model after such a step may never be shown."


def _cumulative(run: Run, delta: float) -> Cumulative | str:
    """As many points as can be had in a few seconds, by how long one in the middle takes; or why there are none."""
    unit = run.steps_per_pass if run.noise_at == "pass_ends" else 1
    middle = min(run.total_steps, max(unit, run.total_steps // 2 // unit * unit))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a large delta, which the report says on top
        try:
            points, began = _POINTS, time.perf_counter()
            if run.noise_budget is None:
                for release in ("all", "last"):
                    certify(stopped(run, middle).replace(release=release), delta, allow_large_delta=True)
                points = max(2, min(_POINTS, int(_SECONDS / max(time.perf_counter() - began, 1e-6))))
            return cumulative_privacy(run, delta, points=points, allow_large_delta=True)
        except LetheError as error:
            return error.what


def noise(subject: Subject) -> Section | None:
    """The noise schedule: where the noise of a run is, and how large; None of what is no run."""
    run = subject.run
    if run is None:
        return None
    noisy = run.noisy_steps
    # Of correlated noise what a step has, which is more than what is drawn for it.
    grown = 1.0 if run.noise is None else growths(run.noise, run.total_steps)[noisy]
    levels, stds = (values[noisy] * grown for values in (run.uncorrelated.noise_multipliers, run.uncorrelated.noise_stds))
    columns = {
        "noise multiplier": levels,
        "noise on the weights (standard deviation)": stds,
        "step size": np.asarray(run.step_sizes)[noisy],
    }
    if any(finding.name == OPTIMISER for finding in subject.findings):
        del columns["noise on the weights (standard deviation)"]  # an optimiser of the caller's own makes something else of the noise
    rows = [(count(int(noisy[at]) + 1), *(number(float(each[at])) for each in columns.values())) for at in _few(len(noisy), _ROWS)]
    at = "every step" if run.noise_at == "every_step" else "the last step of every pass, and of all"
    same = f", each time with the same multiplier {number(float(levels[0]))}" if float(levels.min()) == float(levels.max()) else ""
    words = f"Noise is added at {at}: {count(len(noisy))} of {count(run.total_steps)} steps{same}."
    if len(noisy) == 1:
        words = f"Noise is added once, at step {count(int(noisy[0]) + 1)}, with the multiplier {number(float(levels[0]))}."
    if run.noise is not None:
        drawn = float(run.uncorrelated.noise_multipliers.max())
        words += (
            f" It is correlated over the steps ({run.noise.summary}): what is drawn for a step has the multiplier {number(drawn)}, and "
            "each step takes back part of the noise of the steps before it."
        )
    if float(levels.min()) == 0.0:
        words += " Where the multiplier is 0, there is no noise."
    places = _few(len(noisy), _MOST_POINTS)
    look = {"marker": "o", "markersize": 4} if len(noisy) <= _MARKS_UP_TO else {}
    line = ([int(noisy[place]) + 1 for place in places], levels[places], "main", "", look)
    blocks = (
        Text(
            f"{words} The multiplier is the standard deviation of the noise on the sum of a batch's gradients, in units of the longest "
            "gradient that a record may have."
        ),
        Picture(
            "Line plot. Across: steps. Up: noise multiplier of each step with noise; the table below has some of them.",
            "Noise multiplier of each step with noise.",
            _picture([line], "step", "noise multiplier", height=2.5),
        ),
        Table("Noise and step size", ("step", *columns), tuple(rows), numbers=tuple(range(len(columns) + 1))),
    )
    stored = None if run.noise_multiplier is None else schedule_document(run.noise_multiplier)
    data = {"noise_at": run.noise_at, "noise_multiplier": stored, "steps_with_noise": len(noisy)}
    return Section("noise", "Noise schedule", blocks, data)


def training(subject: Subject) -> Section:
    """Training curves and scores: what the guarantee covers, and, only where asked for and marked, what it does not."""
    curves = tuple(one for one in subject.curves if subject.show_private or not one.private)
    scores = subject.scores if subject.show_private else ()
    hidden = len(subject.curves) - len(curves) + len(subject.scores) - len(scores)
    blocks: list[Block] = [_NOT_COVERED] if scores or any(one.private for one in curves) else []
    if scores:
        marks = tuple("danger" for _ in scores)
        blocks.append(Table("Private: computed on the data itself", ("what", "value"), scores, numbers=(1,), marks=marks))
    for one in curves:
        blocks += _of_curve(one)
    if not curves:
        blocks.append(Text("No curve that the guarantee covers was recorded."))
    if hidden:
        command = next((one for one in subject.commands if one.startswith("lethe report ")), "").removesuffix(" -o report.html")
        in_python = 'lethe.report.write(..., "private_report.html", private=True)'
        blocks += [
            Text(
                f"{hidden} score{'s or curves were' if hidden > 1 else ' or curve was'} computed on private data and left out of this "
                "report: no guarantee covers them. That is no breach, unless they are shown to others or anything was chosen by them: a "
                "setting, when to stop, which model to release. This shows them, for your own eyes only:"
            ),
            Code(f"{command} --private -o private_report.html" if command else in_python),
        ]
    data = {"curves": [one.model_dump() for one in curves], "scores": [list(one) for one in scores], "left_out": hidden}
    return Section("training", "Training curves", tuple(blocks), data)


def _of_curve(one: Curve) -> list[Block]:
    mark = "private, not covered by the guarantee" if one.private else "covered by the guarantee, or of public data"
    places = _few(len(one.steps), _ROWS)
    rows = tuple((count(one.steps[place]), number(one.values[place])) for place in places)
    line = (one.steps, one.values, "alert" if one.private else "main", "", {"linestyle": "--"} if one.private else {})
    draw = _picture([line], "step", "value (private)" if one.private else "value", height=2.5)
    return [
        Picture(f"Line plot of {one.name} against steps; the table below has some points.", f"{one.name} ({mark}).", draw),
        Table(f"{one.name} ({mark})", ("step", "value"), rows, numbers=(0, 1), marks=tuple("danger" if one.private else "" for _ in rows)),
    ]
