"""What a log says of a run: its settings, notes in words, and the certified epsilon of the steps so far, while training goes on."""

from __future__ import annotations

import math
from collections.abc import Callable

from lethe.accounting.certify import certify, stopped
from lethe.calculus.large_delta import delta_for
from lethe.documents.version import __version__
from lethe.errors import HypothesisError
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.train.callbacks.callback import StepEnd

Setting = str | float | bool

PRIVATE_NOTE = (
    "Computed from the records, and covered by no certificate: for whoever holds the data. Publishing any of it makes the epsilon that is "
    "logged beside it untrue. Keep it as private as the data, and delete it before the log is shared."
)
PRIVATE_LAST = " With release: last the training loss is not logged, not even here: it tells of iterates that must not leave the training."


_LAST = (
    "release: last. No iterate but the last may leave the training, so nothing has been released yet, and there is no epsilon of the steps "
    "so far. dp/certified_epsilon, at the end, is of the last iterate."
)
_BUDGET = (
    "A noise budget. dp/epsilon is of the whole budget from the first step on, since where training stops may depend on what was released; "
    "dp/budget_spent says how much of it (zCDP) the steps have used, which is no guarantee."
)
_ALL = (
    "dp/epsilon is what lethe.certify proves of a run of as many steps, every iterate released. It is for a number of steps that was fixed "
    "in advance: a training that is broken off because of what was seen in it costs the epsilon of the whole plan."
)
_SEEDED = " The noise came from a seed or generator that somebody chose: whoever has it knows the noise, and epsilon is infinite."


class EpsilonSoFar:
    r"""$\varepsilon(\delta)$ of what was released up to a step, from public facts: the run, and the noise multipliers that were used.

    Of a run with `release: all` it is `lethe.certify` of the run of that many steps; of one with `release: last` there is none; of one with
    a noise budget it is of the whole budget. A certification takes 1 to 10 ms, and some 100 ms where batches are drawn at random, whatever
    the number of steps.

    Args:
        run: that is carried out.
        delta: in (0, 1).
        steps_done: that were taken before, with the run's own noise.
        allow_large_delta: whether a delta of 1/records or more is meant.
    Raises:
        InputError: delta cannot be used.
    """

    def __init__(self, run: Run, delta: float, *, steps_done: int = 0, allow_large_delta: bool = False) -> None:
        self._run, self._delta = run, delta_for(run.records, delta, allow_large_delta=allow_large_delta)
        planned = run.noise_multiplier is not None
        self._used: list[float] = run.uncorrelated.noise_multipliers[:steps_done].tolist() if planned else []

    @property
    def note(self) -> str:
        """What the number is, or why there is none, in words."""
        said = _LAST if self._run.release == "last" else _ALL if self._run.noise_budget is None else _BUDGET
        return said + (_SEEDED if self._run.seeded else "")

    def planned(self) -> float | None:
        """The epsilon of the whole run as planned; None where its noise is chosen along the way.

        Raises:
            InputError: delta is not above what a cap on the batches costs.
        """
        run = self._run
        if run.noise_multiplier is None:
            return None
        return self._certified(lambda: run)

    def note_step(self, step: StepEnd) -> None:
        """A step was taken; its noise is noted where the plan does not say it."""
        if self._run.noise_budget is not None:
            self._used.append(step.noise_multiplier)

    def at(self, step: StepEnd) -> float | None:
        """Epsilon of the steps up to this one, the last that was noted; None where nothing was released."""
        run, taken = self._run, step.step
        if run.release == "last":
            return None
        if run.noise_budget is not None:
            sizes = run.step_sizes[:taken].tolist()
            return self._certified(lambda: run.replace(steps=taken, step_size=sizes, noise_multiplier=list(self._used)))
        if run.noise_at == "pass_ends" and taken not in run.noisy_steps + 1:
            return math.inf  # an iterate that has no noise of its own is out
        if run.noise is not None and not run.noise.any_length:
            return self._certified(lambda: run)  # a matrix is for the whole run, whose epsilon covers its beginning
        return self._certified(lambda: stopped(run, taken))

    def _certified(self, run: Callable[[], Run]) -> float:
        try:
            return certify(run(), self._delta, allow_large_delta=True).epsilon  # the delta was looked at
        except HypothesisError:
            return math.inf


def settings_of(run: Run, delta: float, planned_epsilon: float | None) -> dict[str, Setting]:
    """The public settings of a run, by name; without a planned epsilon its noise is chosen along the way."""
    document, batches = run.to_document(), run.batches
    in_groups = batches.participation is Participation.DRAW_IN_PUBLIC_GROUP
    settings: dict[str, Setting] = {
        "lethe": __version__,
        "run_id": run.run_id,
        "records": float(run.records),
        "batches": batches.design,
        **({"groups": float(batches.groups_of_records)} if in_groups else {}),
        "batch_size": float(run.batch_size),
        "steps": float(run.total_steps),
        "noise_at": run.noise_at,
        **({} if run.noise is None else {"noise": run.noise.kind}),
        "release": run.release,
        "neighbours": run.neighbours,
        **({} if run.unit == "record" else {"unit": run.unit}),
        "seeded": run.seeded,
        "delta": delta,
    }
    for name in ("step_size", "clip_norm", "noise_multiplier", "noise_budget"):
        value = document.get(name)
        settings[name] = float(value) if isinstance(value, int | float) else "none" if value is None else "schedule"
    if run.noise_multiplier is None:
        settings["noise_multiplier"] = "chosen along the way"
    if planned_epsilon is not None:
        settings["planned_epsilon"] = planned_epsilon
    return settings
