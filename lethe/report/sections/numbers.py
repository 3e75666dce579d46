"""The guarantee in numbers: against attacks, delta and steps; the noise; and what was recorded during training.

build.py calls a function for each of these sections, with the `Subject` whose certificate has the numbers.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lethe.accounting.certify import Cumulative, certify, cumulative_privacy, stopped
from lethe.accounting.heuristics import HEURISTIC, last_iterate_heuristic
from lethe.calculus.large_delta import is_large
from lethe.calculus.tradeoffs import TradeOff
from lethe.calculus.upward_formatting import shown
from lethe.certificates.attack_rates import AttackRates
from lethe.certificates.findings import OPTIMISER
from lethe.certificates.parts import plain_number
from lethe.documents.shortened import thinned
from lethe.errors import LetheError
from lethe.report.model import COLOURS, Block, Code, Notice, Panel, Picture, Section, Series, Table
from lethe.report.subject import Subject
from lethe.report.wording import percent
from lethe.run.noise.strategies import growths
from lethe.run.run import Run
from lethe.run.schedules import schedule_document

_RATES = ("false alarms, where it was not used", "finds it, where it was used, at most")
ALARMS = (0.001, 0.01, 0.05, 0.1, 0.25)
_DOTS = {0.1: (0, (1, 2.2)), 1.0: (0, (3, 2)), 3.0: (0, (6, 2)), 8.0: (0, (9, 2, 1.5, 2))}
"""The epsilons of pure differential privacy that the curve is drawn beside, and their looks."""
_POWERS = (3, 4, 5, 6, 7, 8, 9, 10, 12)
_POINTS, _ROWS = 12, 9
_SECONDS = 3.0  # of a few seconds that a report may take
_MARKS_UP_TO, _MOST_POINTS = 60, 2000  # more points than this are drawn as a line; more than a screen has say nothing more


def _look(colour: str, width: float = 2.2, **rest: Any) -> dict[str, Any]:
    return {"color": COLOURS[colour], "linewidth": width, "markersize": 4, **rest}


def _against_steps(series: Sequence[Series], up: str, across: str = "step", nothing: str = "") -> Panel:
    """Values from 0 up; `nothing` is written where there is no line."""
    where = {"xy": (0.5, 0.5), "xycoords": "axes fraction", "ha": "center", "va": "center", "color": COLOURS["alert"]}
    notes = [] if any(len(line.across) for line in series) else [{"text": nothing, **where}]
    settings = {"xlim": (0, None), "ylim": (0, None), "xlabel": across, "ylabel": up}
    return Panel(series, settings, whole=True, notes=notes, legend={"loc": "best"})


def _shown(
    caption: str, plot: Panel, title: str, columns: Mapping[str, Iterable[str]], marks: tuple[str, ...] = (), height: float = 3.1
) -> tuple[Picture, Table]:
    """A plot, and a table of its numbers by columns."""
    rows = tuple(zip(*columns.values(), strict=True))
    return Picture(caption, plot, height), Table(title, tuple(columns), rows, tuple(range(len(columns))), marks)


def attacks(subject: Subject, curve: TradeOff, rates: AttackRates) -> Section:
    """The trade-off curve: how well the best attack does, in plain rates."""
    alphas = np.linspace(0.0, 1.0, 201) ** 2  # finely spaced near 0, where the curve is steep
    betas = curve.type_two(alphas)
    series = [Series([0, 1], [1, 0], _look("muted", 1), "guessing (a coin)")]
    for usual, dots in _DOTS.items():
        errors = np.maximum(np.maximum(1 - math.exp(usual) * alphas, math.exp(-usual) * (1 - alphas)), 0)
        series.append(Series(alphas, errors, _look("other", 1.1, linestyle=dots), f"epsilon = {usual:g}"))
    series.append(Series(alphas, betas, _look("main", 2.6), "this certificate" if subject.private else "nothing is proved"))
    axes = {"xlabel": "false alarms (type I error)", "ylabel": "missed records (type II error)"}
    settings = {"xlim": (0, 1), "ylim": (0, 1.005), "aspect": "equal", **axes}
    rates_found = rates.true_positive_rates.items()
    guess = None if subject.run is None or _own_optimiser(subject) else last_iterate_heuristic(subject.run, subject.delta)
    heuristic_note = ""
    if subject.private and guess is not None and guess < subject.epsilon:
        heuristic_note = (
            f" With a linear loss, epsilon of the last iterate would be {shown(guess)} (arXiv:2410.06186): {HEURISTIC}, and no promise."
        )
    blocks = (
        "An attack says of one record “it was used” or “it was not” (or: another one stood in its place). It errs in two ways: a false "
        "alarm (type I error), or a miss of a record that was used (type II error). The curve is the fewest misses that any attack can "
        "have at each rate of false alarms: the nearer to the straight line of guessing, the better the protection.",
        *_shown(
            f"No attack can be below the thick line: the best guess is right at most {percent(rates.best_guess)} of the time. Thin lines: "
            "what the usual epsilons would allow at delta = 0 (called pure).",
            Panel(series, settings, shaded=True, legend={"loc": "upper right"}),
            "How often the best attack is right about one record, over many trainings",
            {name: map(percent, column) for name, column in zip(_RATES, zip(*rates_found, strict=True), strict=True)},
            height=3.9,
        ),
        f"The advantage of an attack (how much more often it says “it was used” where it was) is at most {percent(rates.advantage)}. As a "
        f"Gaussian mechanism: {rates.gaussian}. The regret is how much less often an attacker of that mechanism may err; below 0.01 it "
        f"says nearly all.{heuristic_note}",
    )
    data = {
        "type_1": alphas.tolist(),
        "type_2_at_least": betas.tolist(),
        "best_guess_right": rates.best_guess,
        "found_at_most": [{"false_alarms": alarm, "found": rate} for alarm, rate in rates_found],
        "advantage": rates.advantage,
        "gaussian": {"mu": plain_number(rates.mu), "slack": rates.slack, "regret": rates.regret},
        "heuristic_without_proof": None if guess is None else plain_number(guess),
    }
    return Section("attacks", "How well the best attack does", blocks, data)


def _own_optimiser(subject: Subject) -> bool:
    """Whether the steps were one of the caller's own optimiser, which makes something else of noise and gradients."""
    return any(finding.name == OPTIMISER for finding in subject.findings)


def deltas(subject: Subject) -> Section:
    """Epsilon against delta: one training, every pair of numbers that may be quoted of it."""
    title, own_delta, records = "Epsilon against delta", subject.delta, subject.stated.records
    asked = sorted({*(10.0**-power for power in _POWERS), own_delta}, reverse=True)
    allowed = [delta for delta in asked if delta == own_delta or records is None or not is_large(delta, records)]
    pairs = [(delta, subject.epsilon if delta == own_delta else subject.proof.guarantee.epsilon(delta)) for delta in allowed]
    data = {"pairs": [{"delta": delta, "epsilon": epsilon} for delta, epsilon in pairs]}
    finite = [pair for pair in pairs if pair[1] < math.inf]
    if not finite:
        return Section("deltas", title, ("No epsilon is proved, whatever delta is.",), data)
    left_out = "" if records is None else f" Deltas of 1 / {records:,} or more promise next to nothing and are left out."
    dot = [Series([own_delta], [subject.epsilon], _look("main", marker="o", markersize=7))] if subject.private else []
    # A profile may take long for each epsilon, and the line through those of the table is smooth enough.
    series = [Series.through(finite, _look("main")), *dot]
    blocks = (
        f"The same training has a smaller epsilon at a larger delta: compare two trainings only at the same delta.{left_out}",
        *_shown(
            "The dot is the pair that this report speaks of.",
            Panel(series, {"ylim": (0, None), "xlabel": "delta", "ylabel": "epsilon"}, log="x"),
            "Pairs that hold of this training",
            {"delta": (f"{delta:g}" for delta in allowed), "epsilon": (shown(epsilon) for _, epsilon in pairs)},
            tuple("strong" if delta == own_delta else "" for delta in allowed),
        ),
    )
    return Section("deltas", title, blocks, data)


def steps(subject: Subject) -> Section | None:
    """Privacy against steps: what would be proved had the run stopped earlier, of all iterates and of the last; None of what is no run."""
    run, title = subject.run, "Privacy against steps"
    if run is None:
        return None
    cumulative = "Nothing is proved of a seeded run after any step." if run.seeded else _cumulative(run, subject.delta)
    if isinstance(cumulative, str):
        return Section("steps", title, (cumulative if run.seeded else f"No curve: {cumulative}",), {"why_not": cumulative})
    columns = {"all": ("all iterates", cumulative.every_iterate), "last": ("last iterate", cumulative.last_iterate)}
    released = columns[run.release][0]
    both = tuple(map(shown, cumulative.every_iterate)) != tuple(map(shown, cumulative.last_iterate))
    columns_shown = list(columns.values()) if both else [columns[run.release]]
    words = f"Epsilon by the number of steps, had the training ended there. Released: the {released}."
    if both:
        words += (
            " “All iterates”: an attacker sees the model after every step, as the usual accounting assumes. “Last iterate”: an attacker "
            "sees one model only, and noise covers the traces of the steps before it. The other column is for comparison, and each number "
            f"is about one release alone.{_without_noise(run, cumulative)}"
        )
    series: list[Series] = []
    for name, epsilons in columns_shown:
        points = [(step, value) for step, value in zip(cumulative.steps, epsilons, strict=True) if value < math.inf]
        look = _look("main" if name == "last iterate" else "other", 2.4 if name == released else 1.6, marker="o")
        look["linestyle"] = "-" if name == "last iterate" else "--"
        series.append(Series.through(points, look, f"{name} (what is released)" if name == released else name))
    blocks: tuple[Block, ...] = (
        words,
        *_shown(
            f"Epsilon at delta = {subject.delta:g}, had the run stopped there.",
            _against_steps(series, "epsilon", "steps, had the run stopped there", "nothing is proved after any step"),
            f"Epsilon at delta = {subject.delta:g}",
            {"steps": (f"{step:,}" for step in cumulative.steps), **{name: map(shown, epsilons) for name, epsilons in columns_shown}},
            (*("" for _ in cumulative.steps[1:]), "strong"),
        ),
    )
    column = "every_iterate" if run.release == "all" else "last_iterate"
    return Section("steps", title, blocks, {**cumulative.to_dict(), "released": column})


def _without_noise(run: Run, cumulative: Cumulative) -> str:
    """Why nothing is proved of all iterates, where steps without noise are the reason."""
    bare = int((run.uncorrelated.noise_multipliers == 0.0).sum())
    if bare == 0 or cumulative.every_iterate[-1] < math.inf:
        return ""
    words = f"{bare:,} of {run.total_steps:,} steps {'has' if bare == 1 else 'have'} no noise"
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
    columns = {"noise multiplier": levels}
    if not _own_optimiser(subject):  # one of the caller's own makes something else of the noise
        columns["noise on the weights (standard deviation)"] = stds
    columns["step size"] = np.asarray(run.step_sizes)[noisy]
    rows = thinned(len(noisy), _ROWS)
    table = {name: [f"{each[at]:.6g}" for at in rows] for name, each in columns.items()}
    at = "every step" if run.noise_at == "every_step" else "the last step of every pass, and of all"
    same = f", each time with the same multiplier {levels[0]:.6g}" if float(levels.min()) == float(levels.max()) else ""
    words = f"Noise is added at {at}: {len(noisy):,} of {run.total_steps:,} steps{same}."
    if len(noisy) == 1:
        words = f"Noise is added once, at step {noisy[0] + 1:,}, with the multiplier {levels[0]:.6g}."
    if run.noise is not None:
        drawn = f"{run.uncorrelated.noise_multipliers.max():.6g}"
        words += (
            f" It is correlated over the steps ({run.noise.summary}): what is drawn for a step has the multiplier {drawn}, and each step "
        )
        words += "takes back part of the noise of the steps before it."
    if float(levels.min()) == 0.0:
        words += " Where the multiplier is 0, there is no noise."
    point_indices = thinned(len(noisy), _MOST_POINTS)
    look = _look("main", 1.8, marker="o" if len(noisy) <= _MARKS_UP_TO else "")
    line = Series([int(noisy[index]) + 1 for index in point_indices], levels[point_indices], look)
    blocks = (
        f"{words} The multiplier is the standard deviation of the noise on the sum of a batch's gradients, in units of the longest "
        "gradient that a record may have.",
        *_shown(
            "Noise multiplier of each step with noise.",
            _against_steps([line], "noise multiplier"),
            "Noise and step size",
            {"step": [f"{noisy[at] + 1:,}" for at in rows], **table},
            height=2.5,
        ),
    )
    stored = None if run.noise_multiplier is None else schedule_document(run.noise_multiplier)
    data = {"noise_at": run.noise_at, "noise_multiplier": stored, "steps_with_noise": len(noisy)}
    return Section("noise", "Noise schedule", blocks, data)


def training(subject: Subject) -> Section:
    """Training curves and scores: what the guarantee covers, and, only where asked for and marked, what it does not."""
    curves = tuple(curve for curve in subject.curves if subject.show_private or not curve.private)
    scores = subject.scores if subject.show_private else ()
    hidden = len(subject.curves) - len(curves) + len(subject.scores) - len(scores)
    blocks: list[Block] = []
    if scores or any(curve.private for curve in curves):
        words = (
            "What is marked private below was computed on private data: whoever sees it learns more than is promised. Do not publish it."
        )
        blocks.append(Notice("caution", "NOT COVERED BY THE GUARANTEE", words))
    if scores:
        caption = "Private: computed on the data itself"
        blocks.append(Table(caption, ("what", "value"), scores, numbers=(1,), marks=("danger",) * len(scores)))
    for one in curves:
        mark = "private, not covered by the guarantee" if one.private else "covered by the guarantee, or of public data"
        rows = thinned(len(one.steps), _ROWS)
        columns = {"step": [f"{one.steps[at]:,}" for at in rows], "value": [f"{one.values[at]:.6g}" for at in rows]}
        look = _look("alert", 1.8, linestyle="--") if one.private else _look("main", 1.8)
        plot = _against_steps([Series(one.steps, one.values, look)], "value (private)" if one.private else "value")
        marks = ("danger" if one.private else "",) * len(rows)
        blocks += _shown(f"{one.name} ({mark}).", plot, f"{one.name} ({mark})", columns, marks, height=2.5)
    if not curves:
        blocks.append("No curve that the guarantee covers was recorded.")
    if hidden:
        command = next((command for command in subject.commands if command.startswith("lethe report ")), "").removesuffix(" -o report.html")
        in_python = 'lethe.report.write(..., "private_report.html", private=True)'
        blocks += [
            f"{hidden} score{'s or curves were' if hidden > 1 else ' or curve was'} computed on private data and left out: no guarantee "
            "covers them. That is no breach, unless they are shown to others or anything was chosen by them: a setting, when to stop, "
            "which model to release. This shows them, for your own eyes only:",
            Code(f"{command} --private -o private_report.html" if command else in_python),
        ]
    data = {"curves": [curve.model_dump() for curve in curves], "scores": [list(one) for one in scores], "left_out": hidden}
    return Section("training", "Training curves", tuple(blocks), data)
