"""Progress of a training, for whoever waits: a function called after each step, or a bar on a terminal with the loss and epsilon so far.
`fit` adds a `ProgressBar` to the callbacks where standard error is a terminal; the training loops call the function of `progress_of`.
"""

import sys
from collections.abc import Callable
from contextlib import suppress

from rich.console import Console
from rich.errors import LiveError
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from lethe.accounting.certify import certify, stopped
from lethe.errors import InputError, LetheError
from lethe.run.run import Run
from lethe.train.callbacks.callback import Callback, StepEnd, TrainingEnd

Progress = Callable[[int, int], None]
"""Is given the number of each finished step, from 1, and that of all."""


def progress_of(progress: bool | Progress) -> Progress:
    """The function that was given, or one that does nothing."""
    if callable(progress):
        return progress
    if not isinstance(progress, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"progress: got {progress!r}; it needs True, False or a function of (step, steps).")
    return lambda step, steps: None


_COUNTS = 20  # how often epsilon is computed: once may take a tenth of a second


class ProgressBar(Callback):
    """A bar on standard error. The loss in it is private, and for whoever holds the data. Epsilon is shown at `delta`; None: it is not."""

    private = True

    def __init__(self, delta: float | None = None) -> None:
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self._bar, self._delta, self._epsilon = Bar(*columns, console=Console(stderr=True)), delta, ""

    @staticmethod
    def wanted(progress: object) -> bool:
        """Whether `progress` is True and standard error a terminal."""
        return progress is True and sys.stderr.isatty()

    def on_train_begin(self, run: Run, *, steps_done: int) -> None:
        """Show the bar."""
        self._run, self._task = run, self._bar.add_task("", total=run.total_steps, completed=steps_done)
        with suppress(LiveError):  # another bar is there already, which this training is a part of
            self._bar.start()

    def on_step_end(self, step: StepEnd) -> None:
        """Move it."""
        loss = "" if step.private is None or step.private.loss is None else f"loss {step.private.loss:.4g}"
        if step.step % max(1, step.steps // _COUNTS) == 0:
            self._epsilon = self._epsilon_at(step.step)
        self._bar.update(self._task, completed=step.step, description="  ".join(part for part in (loss, self._epsilon) if part))

    def on_train_end(self, end: TrainingEnd) -> None:
        """Leave it as it is."""
        self._bar.stop()

    def on_exception(self, kind: str) -> None:
        """Leave it as it is."""
        self._bar.stop()

    def _epsilon_at(self, step: int) -> str:
        if self._delta is None or self._run.release == "last" or self._run.noise_multiplier is None:
            return ""
        try:
            return f"epsilon {certify(stopped(self._run, step), self._delta, allow_large_delta=True).epsilon:.3g}"
        except LetheError:  # such as of correlated noise, which is for all steps or none
            return ""
