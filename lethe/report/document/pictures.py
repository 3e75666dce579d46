"""The pictures of a report: small, in the colours of the page, with their words as words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lethe.report.document.svg import ALERT, GRID, INK, MAIN, MUTED, OTHER
from lethe.report.document.tradeoff import Lines, curve
from lethe.report.drawing import Axes, Figure, MaxNLocator, open_sides, svg, text_as_text

_WIDTH, _HEIGHT = 4.6, 3.1  # inches: on a telephone about the size of its screen, so that words stay readable
_MARKS_UP_TO = 60  # more points than this are drawn as a line
_DOTS = ((0, (1, 2.2)), (0, (3, 2)), (0, (6, 2)), (0, (9, 2, 1.5, 2)))


def _begin(height: float = _HEIGHT) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    open_sides(axes)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(MUTED)
    axes.tick_params(colors=MUTED, which="both")
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)
    return figure, axes


def _legend(axes: Axes, **place: Any) -> None:
    axes.legend(frameon=False, fontsize=9.5, labelcolor=INK, **place)


def attack_picture(lines: Lines, usual: Sequence[float], *, private: bool) -> str:
    """Type II error against type I error of the best attack.

    Args:
        lines: of the guarantee.
        usual: epsilons of pure differential privacy to draw beside it.
        private: whether anything is proved.
    """
    with text_as_text():
        figure, axes = _begin(3.9)
        alphas, betas = curve(lines)
        axes.fill_between(alphas, betas, color=ALERT, alpha=0.08, linewidth=0)
        axes.plot([0, 1], [1, 0], color=MUTED, linewidth=1, label="guessing (a coin)")
        for epsilon, dots in zip(usual, _DOTS, strict=True):
            pure = np.maximum(np.maximum(1 - math.exp(epsilon) * alphas, math.exp(-epsilon) * (1 - alphas)), 0)
            axes.plot(alphas, pure, color=OTHER, linewidth=1.1, linestyle=dots, label=f"epsilon = {epsilon:g}")
        axes.plot(alphas, betas, color=MAIN, linewidth=2.6, label="this certificate" if private else "nothing is proved")
        axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="false alarms (type I error)", ylabel="missed records (type II error)")
        axes.set_aspect("equal")
        _legend(axes, loc="upper right")
        return svg(figure)


def delta_picture(points: Sequence[tuple[float, float]], own: tuple[float, float]) -> str:
    """Epsilon against delta.

    Args:
        points: (delta, epsilon), with finite epsilons.
        own: the pair of the certificate.
    """
    with text_as_text():
        figure, axes = _begin()
        axes.set_xscale("log")
        if points:
            axes.plot(*zip(*points, strict=True), color=MAIN, linewidth=2.2)
        else:
            _say(axes, "no epsilon is proved at any delta")
        if own[1] < math.inf:
            axes.plot([own[0]], [own[1]], "o", color=MAIN, markersize=7)
        axes.set_ylim(0, 1.1 * max([epsilon for _, epsilon in points] + [own[1] if own[1] < math.inf else 0.0]) or 1.0)
        axes.set(xlabel="delta", ylabel="epsilon")
        return svg(figure)


def steps_picture(steps: Sequence[int], every: Sequence[tuple[int, float]], last: Sequence[tuple[int, float]], release: str) -> str:
    """Epsilon had the run stopped earlier.

    Args:
        steps: all that were tried.
        every: (steps, epsilon) of all iterates, where finite.
        last: the same of the last iterate.
        release: which of the two the run releases, "all" or "last".
    """
    with text_as_text():
        figure, axes = _begin()
        for name, points, colour, dash, own in (
            ("all iterates", every, OTHER, "--", release == "all"),
            ("last iterate", last, MAIN, "-", release == "last"),
        ):
            if points:
                label = f"{name} (what is released)" if own else name
                axes.plot(
                    *zip(*points, strict=True), dash, color=colour, linewidth=2.4 if own else 1.6, marker="o", markersize=4, label=label
                )
        if not every and not last:
            _say(axes, "nothing is proved after any step")
        else:
            _legend(axes, loc="best")
        top = max((value for _, value in (*every, *last)), default=1.0)
        axes.set_ylim(0, 1.1 * top or 1.0)
        axes.set_xlim(0, 1.03 * max(steps))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.set(xlabel="steps, had the run stopped there", ylabel="epsilon")
        return svg(figure)


def noise_picture(steps: Sequence[int], levels: Sequence[float]) -> str:
    """The noise multiplier of each step with noise; args: the steps, from 1, and their multipliers."""
    with text_as_text():
        figure, axes = _begin(2.5)
        thin = max(1, len(steps) // 2000)  # more points than a screen has say nothing more
        places = sorted({*range(0, len(steps), thin), len(steps) - 1})
        axes.plot(
            [steps[place] for place in places],
            [levels[place] for place in places],
            "o-" if len(steps) <= _MARKS_UP_TO else "-",
            color=MAIN,
            markersize=4,
            linewidth=1.8,
        )
        axes.set_ylim(0, 1.15 * max(levels) or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.set(xlabel="step", ylabel="noise multiplier")
        return svg(figure)


def curve_picture(steps: Sequence[int], values: Sequence[float], *, private: bool) -> str:
    """A quantity recorded during training.

    Args:
        steps, values: one value a step.
        private: whether no guarantee covers it; it is then dashed, and in the colour of warnings.
    """
    with text_as_text():
        figure, axes = _begin(2.5)
        axes.plot(steps, values, "--" if private else "-", color=ALERT if private else MAIN, linewidth=1.8)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.set(xlabel="step", ylabel="value (private)" if private else "value")
        return svg(figure)


def _say(axes: Axes, words: str) -> None:
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", color=ALERT)
