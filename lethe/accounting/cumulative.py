"""Cumulative privacy: what would be proved of a run if it had stopped after each earlier step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lethe.accounting.certify import certify, require_run
from lethe.calculus.large_delta import delta_for
from lethe.calculus.upward_formatting import shown
from lethe.documents.shortened import MOST_LINES, thinned
from lethe.errors import InputError
from lethe.errors.names import in_other_words
from lethe.run.run import Run

_POINTS = 24


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cumulative:
    """Epsilons at some steps.

    Args:
        delta: at which they hold.
        steps: after how many steps the run is taken to stop, ascending.
        every_iterate: epsilon of all iterates up to there.
        last_iterate: epsilon of that iterate alone; inf where some touch has no noise after it yet.
    """

    delta: float
    steps: tuple[int, ...]
    every_iterate: tuple[float, ...]
    last_iterate: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Cumulative({len(self.steps)} places up to step {self.steps[-1]}, delta {self.delta:g})"

    def __str__(self) -> str:
        """Epsilon of all iterates, and of the last one where that is another, after some of the steps."""
        both = self.every_iterate != self.last_iterate
        rows = [f"{'steps':>10}  every iterate{'  last iterate' if both else ''}"]
        for place in thinned(len(self.steps), MOST_LINES - 1):
            every, last = shown(self.every_iterate[place]), shown(self.last_iterate[place])
            rows.append(f"{self.steps[place]:>10}  {every:>13}{f'  {last:>12}' if both else ''}")
        return "\n".join(rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity is the text "inf"."""
        told = [["inf" if value == float("inf") else value for value in values] for values in (self.every_iterate, self.last_iterate)]
        return {"delta": self.delta, "steps": list(self.steps), "every_iterate": told[0], "last_iterate": told[1]}


@in_other_words
def cumulative_privacy(
    run: Run,
    delta: float,
    *,
    points: int = _POINTS,
    allow_large_delta: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Cumulative:
    """Epsilon of the run's beginning, for some of its steps (whole passes, where noise is at pass ends), the last one among them.

    Args:
        run: with its noise; fixed in advance.
        delta: in (0, 1), and below 1/records.
        points: at how many steps, at least 2.
        allow_large_delta: whether a delta >= 1/records is meant; it is then shown with the number.
        progress: told (steps done, steps in all).
    Raises:
        InputError: an argument out of range, or a run without noise, with noise that was chosen along the way, or with noise correlated
            by a matrix, which is one for all its steps.
    """
    delta = delta_for(require_run(run, correlated=True).records, delta, allow_large_delta=allow_large_delta)
    if run.noise_budget is not None:
        raise InputError(
            "noise_budget: what was spent at a step of a run with a budget filter says nothing of its beginning alone.",
            remedy="use lethe.calculus.filters.Odometer.",
        )
    unit = run.steps_per_pass if run.noise_at == "pass_ends" else 1
    most = -(-run.total_steps // unit)
    counts = np.unique(np.linspace(1, most, min(max(2, points), most)).round().astype(np.int64))
    steps = [min(int(count) * unit, run.total_steps) for count in counts]
    every: list[float] = []
    last: list[float] = []
    for count in steps:  # of as many records each, for which the delta has been looked at
        beginning = stopped(run, count)
        every.append(certify(beginning.replace(release="all"), delta, allow_large_delta=True).epsilon)
        last.append(certify(beginning.replace(release="last"), delta, allow_large_delta=True).epsilon)
        if progress is not None:
            progress(len(every), len(steps))
    return Cumulative(delta=delta, steps=tuple(steps), every_iterate=tuple(every), last_iterate=tuple(last))


def stopped(run: Run, steps: int) -> Run:
    """The run's first `steps` steps, with the noise and the step sizes they have in the whole run."""
    if run.noise is not None:  # of one noise multiplier at every step
        return run.replace(steps=steps, step_size=run.step_sizes[:steps].tolist())
    entries = int(np.searchsorted(run.noisy_steps, steps))
    noise = run.noise_multipliers[run.noisy_steps][:entries]
    if run.noise_at == "pass_ends" and run.noisy_steps[entries - 1] != steps - 1:
        raise InputError(f"steps: got {steps}; this run has noise at pass ends only, and can be taken to stop there.")
    return run.replace(steps=steps, step_size=run.step_sizes[:steps].tolist(), noise_multiplier=noise.tolist())
