"""StepsTaken: the steps of a loop of one's own, that whose noise was drawn and which was not taken yet included, and the run they make."""

from __future__ import annotations

import copy

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch
from lethe.train.network.noise.shared import Noise, any_length, executed_with
from lethe.train.network.steps import Executed


class StepsTaken:
    """Notes the steps of a loop and states them as a run.

    Args:
        run: that is carried out.
        recorder: of its steps.
        noise: of them, which may be correlated.

    Attributes:
        count: how many steps were taken, including those before training was resumed.
        drawn: how many had their noise drawn, and are shared by all processes: `count`, or one more.
    """

    def __init__(self, run: Run, recorder: Recorder, noise: Noise) -> None:
        self._run, self.recorder, self._noise = run, recorder, noise
        self.count = self.drawn = 0
        self._next: tuple[Executed, Batch] | None = None

    def resume(self, count: int) -> None:
        """So many steps were taken before; the recorder knows them."""
        self.count = self.drawn = count

    def draw(self, step: int, executed: Executed, batch: Batch) -> None:
        """The noise of a step was drawn.

        Args:
            step: its number, from 1.
            executed: its step size and noise.
            batch: its units, over all processes.
        """
        self._next, self.drawn = (executed, batch), step

    def take(self) -> None:
        """The step whose noise was drawn last is being taken."""
        self._note_in(self.recorder)
        self.count += 1

    def stated(self, steps_fixed_in_advance: bool) -> Run:
        """The run of the steps taken; the whole plan where training ended early and the number of steps was not fixed in advance.

        Raises:
            InputError: neither True nor False.
            HypothesisError: no Run describes them.
        """
        if not isinstance(steps_fixed_in_advance, bool):
            raise InputError(f"steps_fixed_in_advance: got {steps_fixed_in_advance!r}; it needs True or False.")
        if self.count >= self._run.total_steps or steps_fixed_in_advance:
            return executed_with(self._noise, self.recorder.run(self._run, enforced=False))
        return executed_with(self._noise, self.recorder.beginning_of(self._run, enforced=False), steps=self.count)

    def begun(self) -> Run | None:
        """The run of all noise drawn so far, that of a step not yet taken included; None: none was.

        Of noise that a matrix correlates, which is for the whole run alone, the whole plan.
        """
        recorder = self.recorder
        if self.drawn > self.count:
            recorder = copy.deepcopy(recorder)
            self._note_in(recorder)
        if not recorder.steps:
            return None
        whole = recorder.steps < self._run.total_steps and not any_length(self._noise)
        recorded = (recorder.beginning_of if whole else recorder.run)(self._run, enforced=False)
        return executed_with(self._noise, recorded, steps=recorder.steps)

    def _note_in(self, recorder: Recorder) -> None:
        assert self._next is not None
        executed, batch = self._next
        recorder.note(
            step_size=executed.step_size,
            noise_std=executed.noise_std,
            clip_norm=self._run.clip_norm,
            divisor=self._run.batch_size,
            batch=batch,
        )
