"""Callback: what a logger of training implements, and the facts about each step that it receives, private ones apart. A user passes
callbacks to `fit` or `PrivacyEngine`; `Notifier` calls their methods, in process 0 only.
"""

from dataclasses import dataclass

from lethe.certificates.records import TrainingRecord
from lethe.run.run import Run
from lethe.train.fitted import Diagnostics


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateStep:
    """What a step saw of the records. No certificate covers it: it is for whoever holds the data.

    Args:
        records: how many records the batch really had; of batches of random size a secret of the draw.
        loss: the mean loss of these records before the step, on process 0's share of them; None of an empty batch, of linear models,
            whose loss is never computed, and where release is last, since it would tell of an iterate that is not released.
    """

    records: int
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """A step that was taken and counted. All of it but `private` follows from the run, or from what was released before.

    Args:
        step: its number, from 1; after a resume it goes on where the checkpoint ends.
        steps: T of the run; it may end sooner.
        step_size: the factor of the mean gradient.
        noise_std: of the noise in the parameters, in parameter units; of correlated noise, of what is drawn anew for the step.
        noise_multiplier: of the same noise relative to the clip norm, on the sum of the gradients; 0 of a step without noise.
        clip_norm: C; None: no clipping.
        batch_size: b, the nominal one, which a sum of gradients is divided by.
        spent: the zCDP spent so far of the run's noise_budget, the most of any record; None without a budget.
        private: for callbacks whose `private` is True; else None.
    """

    step: int
    steps: int
    step_size: float
    noise_std: float
    noise_multiplier: float
    clip_norm: float | None
    batch_size: int
    spent: float | None = None
    private: PrivateStep | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingEnd:
    """A training that ended well, or a record taken of a loop on its way.

    Args:
        run: as recorded: what to certify.
        steps: that were taken.
        record: `lethe.certify(record, delta)` certifies and seals it.
        spent: as in `StepEnd`.
        diagnostics: what happened to the data, for callbacks whose `private` is True; else None.
    """

    run: Run
    steps: int
    record: TrainingRecord
    spent: float | None = None
    diagnostics: Diagnostics | None = None


class Callback:
    """Is told how a training goes: by `lethe.train.fit(..., callbacks=[...])` and `PrivacyEngine(..., callbacks=[...])`.

    Override what you need. A callback is told facts that are public and never sees a parameter, a gradient or a record: with
    `release: last` no iterate but the last may leave the training, not even as a norm. One that sets `private = True` is told in addition
    what `PrivateStep` and `Diagnostics` hold; what it keeps is as private as the data.

    What goes wrong in `on_train_begin` ends the training before its first step. Later an `Exception` of a callback is a
    `CallbackWarning`: the callback is called no more and training goes on, since a run that was broken off has to be paid for again if
    anything of it was seen. `on_step_end` is called when the step is counted and recorded, so that what it raises, a
    `KeyboardInterrupt` too, leaves no step half counted. It cannot end the training: the number of steps is part of what is certified.

    Of several processes that train together, number 0 calls its callbacks.
    """

    private: bool = False

    def on_train_begin(self, run: Run, *, steps_done: int) -> None:
        """Training is about to take its first step.

        Args:
            run: that is carried out; `seeded` where somebody can make its noise again.
            steps_done: 0, or how many were taken before training was resumed from a checkpoint.
        """

    def on_step_end(self, step: StepEnd) -> None:
        """A step was taken."""

    def on_train_end(self, end: TrainingEnd) -> None:
        """`fit` is about to return; or a loop's `record` or `recorded_run` is, again where the loop has gone on since."""

    def on_exception(self, kind: str) -> None:
        """`fit` ends with an error, and no model may be released. A loop of one's own ends unseen.

        Args:
            kind: the name of the error's class; what it says may tell of the records.
        """
