"""Notifier: calls the callbacks of one training, in process 0 only, and turns an error of a callback into a warning instead of a lost
training. Every training loop (`fit`'s for linear models and networks, and `PrivacyEngine`) has one, and calls `begin`, `step` and `end`.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from lethe.calculus.filters import BudgetFilter
from lethe.errors import CallbackWarning, InputError
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.callbacks.callback import Callback, PrivateStep, StepEnd, TrainingEnd
from lethe.train.callbacks.ledger_callback import Paying
from lethe.train.core.recorder import Recorder


class Notifier:
    """The callbacks of one training, and one that pays, told of the beginning only where no other objected. Without any, all return at
    once.
    """

    def __init__(
        self, callbacks: Callback | Iterable[Callback] = (), payer: Paying | None = None, watched: tuple[Callback, ...] = ()
    ) -> None:
        self._asked, self._payer, self.pays = _checked(callbacks), payer, payer is not None
        self._callbacks = (*watched, *self._asked)
        self.live: list[Callback] = []
        self.asks_losses = False
        self._run: Run | None = None
        self._budget: BudgetFilter | None = None
        self._ended: tuple[int, str] | None = None
        self._loss: Tensor | float = 0.0
        self._losses = 0

    @property
    def private(self) -> bool:
        """Whether a callback that was asked for, and not a bar that only shows, is told of the records."""
        return any(callback.private for callback in self._asked)

    @contextmanager
    def preparing(self, run: Run) -> Iterator[None]:
        """Within: what the run costs is reserved, and an error is told by the name of its class."""
        try:
            if self._payer is not None:
                self._payer.reserve(run)
            yield
        except BaseException as error:
            kind = type(error).__name__
            self._each("an error", lambda callback: callback.on_exception(kind))
            if self._payer is not None:
                self._payer.on_exception(kind)
            raise

    def begin(self, run: Run, *, seeded: bool, done: int = 0, budget: BudgetFilter | None = None) -> None:
        """Call each callback's `on_train_begin`; an error ends the training.

        `done` steps were taken before; `seeded`: somebody can make its noise or secret batches again.
        """
        callbacks = self._callbacks if self._payer is None else (*self._callbacks, self._payer)
        if not callbacks or (dist.is_available() and dist.is_initialized() and dist.get_rank()):
            return
        require_run(run, correlated=True)
        self._run, self._budget = run.replace(seeded=seeded or run.seeded), budget
        for callback in callbacks:
            callback.on_train_begin(self._run, steps_done=done)
            self.live.append(callback)
        self.asks_losses = run.release == "all" and any(callback.private for callback in callbacks)

    def add_losses(self, losses: Tensor, counted: Tensor | None) -> None:
        """Losses of the rows of a micro-batch, shape (B,), that are `counted` (None: all), where somebody `asks_losses`."""
        record_losses = losses.detach()
        record_losses = record_losses if counted is None else record_losses[counted.to(record_losses.device)]
        self._loss = self._loss + record_losses.double().sum()
        self._losses += len(record_losses)

    def step(self, recorder: Recorder) -> None:
        """Call `on_step_end` of the `live` callbacks with the step that was recorded last."""
        assert self._run is not None
        step, last, run = recorder.steps, recorder.last, self._run
        loss = float(self._loss) / self._losses if self._losses else None
        self._loss, self._losses = 0.0, 0
        public = StepEnd(
            step=step,
            steps=run.total_steps,
            step_size=last.step_size,
            noise_std=last.noise_std,
            noise_multiplier=_multiplier(run, step, last.step_size, last.noise_std),
            clip_norm=run.clip_norm,
            batch_size=run.batch_size,
            spent=None if self._budget is None else self._budget.spent(),
        )
        whole = replace(public, private=PrivateStep(records=last.records, loss=loss))
        self._each(f"step {step}", lambda callback: callback.on_step_end(whole if callback.private else public))

    def end(self, end: TrainingEnd) -> None:
        """Call `on_train_end`, once for each number of steps and run."""
        if self._ended == (which := (end.steps, end.run.run_id)):
            return
        self._ended, public = which, replace(end, diagnostics=None)
        self._each("the end", lambda callback: callback.on_train_end(end if callback.private else public))

    def _each(self, when: str, call: Callable[[Callback], Any]) -> None:
        for callback in tuple(self.live):
            try:
                call(callback)
            except Exception as error:
                self.live = [live_callback for live_callback in self.live if live_callback is not callback]
                warnings.warn(
                    CallbackWarning(
                        f"{type(callback).__name__} failed at {when} and is called no more; training goes on, and is counted as before. "
                        f"It raised {type(error).__name__}: {error}"
                    ),
                    stacklevel=2,
                )


def _checked(callbacks: object) -> tuple[Callback, ...]:
    several = callbacks if isinstance(callbacks, Iterable) and not isinstance(callbacks, Callback | str) else (callbacks,)
    checked: list[Callback] = []
    for candidate in several:
        if not isinstance(candidate, Callback) or not isinstance(candidate.private, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"callbacks: got {candidate!r}; it needs objects of lethe.train.Callback, whose private is True or False.",
                source="callbacks",
                remedy="derive its class from Callback; a function of (step, steps) goes to `progress`.",
            )
        checked.append(candidate)
    return tuple(checked)


def _multiplier(run: Run, step: int, step_size: float, noise_std: float) -> float:
    """The run's own number where its noise was taken, else what the policy's noise comes to."""
    if run.noise_multiplier is not None and noise_std == float(run.uncorrelated.noise_stds[step - 1]):
        return float(run.uncorrelated.noise_multipliers[step - 1])
    return noise_std / (step_size * (run.clip_bound / run.batch_size))
