"""The state of a user's loop: which batches were delivered, whether each was used, what was recorded. `PrivacyEngine` passes each call
here. A step whose batch was skipped or used twice would not be the step that the certificate counts, so calls out of order are errors. The
logical batch is all records of a step, a micro-batch a part that is loaded at once.
"""

import warnings
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from lethe.errors import InputError, LetheWarning
from lethe.run.run import Run
from lethe.train.callbacks.notifier import Notifier
from lethe.train.clip.isolated import records_of
from lethe.train.core.iterates import refuse_overflow
from lethe.train.core.tensors import as_part_of, local
from lethe.train.data.batches import LoadedBatch
from lethe.train.data.sources import fields_of, mapping_of
from lethe.train.engine.step_guard import StepGuard
from lethe.train.fitted import Diagnostics
from lethe.train.network.batch_losses import units_of
from lethe.train.network.optimizers import usable_by
from lethe.train.network.steps import NoisySums
from lethe.train.network.trainer import Trainer


class LoopState:
    """Takes the micro-batches of a run one by one from the stream to the optimiser; see `PrivacyEngine`.

    Attributes:
        resumed: the steps that were done when training was resumed from a checkpoint; 0 if it began here.
        diagnostics: what happened to the data, private; None before `recorded_run`.
    """

    resumed: int
    _epoch_end: int | None = None
    diagnostics: Diagnostics | None = None
    _told: Notifier

    def _begin(self, trainer: Trainer, optimizer: torch.optim.Optimizer) -> None:
        """The loop begins, or goes on from its checkpoints; from here on the optimiser is guarded, and callbacks are told of its steps."""
        self._trainer, self._planned, self._noise, self._placement = trainer, trainer.run, trainer.noise, trainer.placement
        self._clipper, self._stream, self._workers, self._kept = trainer.clipper, trainer.stream, trainer.workers, trainer.kept
        self._average, self._source, self._recorder = trainer.average, trainer.source, trainer.recorder
        self._device, self._fields = trainer.device, fields_of(trainer.source)
        self._noisy = NoisySums(trainer.run, trainer.noise, None, trainer.adaptive, trainer.selected)
        self._parameters = list(trainer.named.values())
        trainer.begin("optimizer.step()")
        self.resumed, self._held = trainer.done, trainer.held
        self._optimizer = optimizer
        self._guard = StepGuard(optimizer, trainer, self._stepped)
        self._delivered: Any = None
        self._batch: LoadedBatch | None = None
        self._iteration: object = None
        self._counted = torch.zeros(0, dtype=torch.bool)
        self._used = self._broken = False

    @property
    def steps(self) -> int:
        """Steps taken, including those before training was resumed."""
        return self._guard.step - self._guard.pending

    @property
    def left(self) -> int:
        """Steps of the run whose batches were not delivered yet, or not used."""
        return self._planned.total_steps - self.drawn

    @property
    def drawn(self) -> int:
        """Steps of the run whose batches were delivered and used."""
        return self._stream.steps_done - (self._batch is not None and self._batch.last and not self._used)

    @property
    def batch_complete(self) -> bool:
        """Whether `backward` has completed a logical batch, so that optimizer.step() moves the model."""
        return self._batch is not None and self._batch.last and self._used

    @property
    def stepped(self) -> bool:
        """Whether the optimiser has just taken a logical step, and not left a half batch alone: `if engine.stepped: scheduler.step()`."""
        return self.batch_complete and not self._guard.pending and self.steps == self._stream.steps_done

    @property
    def counted(self) -> Tensor:
        """Which rows of the present micro-batch are records, shape (rows,), on the model's device; the others are padding."""
        return self._counted.clone()  # written into, it would tell how many records are not there

    def _stepped(self) -> None:
        self._trainer.first.after()
        if self._average is not None:
            self._average.add()
        if self._told.live:
            self._told.step(self._recorder)

    @property
    def left_of_epoch(self) -> int:
        """Of `left`, those of the present epoch; all where the loop knows no epochs."""
        return self.left if self._epoch_end is None else max(0, self._epoch_end - self.drawn)

    def deliver(self) -> Iterator[Any]:
        """The batches that are left of the epoch, or of all. One that was delivered and not used, to a cell of a notebook that looked at it
        or was interrupted, is delivered again: its records were not used."""
        with self._together():
            self._refuse_not_taken()
            if self._batch is None:
                self._held.keep()  # what accelerate.prepare, or a loop, put in before the first batch is where training begins
            if not (steps := self.left_of_epoch):
                if self._batch is None and self.resumed:
                    return  # it was killed after its last step
                which = "this epoch" if self.left else f"all {self._planned.total_steps} steps"
                raise InputError(
                    f"batches: those of {which} were delivered; more would cost more than was planned.",
                    source="epochs, or run.steps",
                    remedy="for epoch in engine.epochs(); training on takes another engine: lethe.total([first, second], delta).",
                )
            self._stream.close()
            if self._batch is not None and not self._used:
                self._stream.put_back()
            stop = self._stream.steps_done + steps
            self._iteration = iteration = object()
            try:
                for batch in self._stream:
                    tensors, counted = _with_a_row(batch)
                    self._batch, self._used, self._counted = batch, False, counted.to(self._device)
                    self._delivered = self._formed(tensors, self._counted)
                    yield self._delivered
                    if self._iteration is not iteration:
                        return  # another iterator has taken over
                    self._refuse_not_taken()
                    if not self._used:
                        raise InputError(
                            f"loader: a batch of step {batch.step} was left out: there was no engine.backward for it.",
                            source="which records meet which step is part of the guarantee",
                            remedy="use every batch, empty ones too; iterate over the loader anew to get this one again.",
                        )
                    if batch.last:
                        if self._kept.active:
                            self._kept.after(batch.step)
                        if batch.step == stop:
                            return
            finally:
                if self._iteration is iteration:
                    self._stream.close()
                    self._placement.let_go(refuse=False)

    def backward(self, batch: Any) -> Tensor:
        """Compute the losses, clip and add up; when the logical batch is complete, noise, and write the gradients.

        Args:
            batch: the loader's present micro-batch, padding included. What was done to it since must keep each row its own record's.
        Returns:
            The losses, detached, shape (rows,): private, and no part of what is certified.
        Raises:
            InputError: it has other rows, the losses are not one a record or depend on other records, or other gradients lie in the
                parameters.
            HypothesisError: the model keeps what it saw.
            LetheError: noise too small to survive rounding.
        """
        with self._together():
            self._refuse_broken()
            if (loaded := self._batch) is None or self._used:
                raise InputError(
                    f"backward: {'no batch has been taken from the loader' if loaded is None else 'the present batch was used already'}.",
                    source="a record may count once a step",
                    remedy="call backward once for each micro-batch of the loader.",
                )
            self._guard.clear()
            self._held.refuse_changes(f"before step {self.steps + 1}")
            if (rows := records_of(batch)) != len(self._counted):
                raise InputError(
                    f"backward: got a batch of {rows} rows; the loader's present one has {len(self._counted)}.",
                    source="which records meet which step is part of the guarantee",
                    remedy="give the batch as the loader gave it; what is done to single records, such as augmentation, keeps its rows.",
                )
            self._placement.gather()
            as_given = list(map(id, tree_leaves(batch))) == list(map(id, tree_leaves(self._delivered)))
            collated = {row: self._formed(record_tensors, None) for row, record_tensors in loaded.alone.items()} if as_given else {}
            units = None if loaded.places is None or not len(loaded.places) else units_of(loaded.places)
            counted = None if loaded.counted is None and loaded.tensors[0].shape[0] else self._counted
            try:
                with self._guard.computing():
                    losses = self._clipper.add(batch, counted=counted, units=units, collated=collated)
                self._used = True
                if self._told.asks_losses:
                    self._told.add_losses(losses, self._counted)
                self._complete(loaded)
            except BaseException as error:
                # Before anything is added an error of the batch, or of the losses, leaves it to be used again.
                self._broken = self._used or not isinstance(error, InputError)
                raise
            return losses

    def _formed(self, tensors: Sequence[Tensor], counted: Tensor | None) -> Any:
        """A batch as the loop is given it, on the model's device."""
        on_device = [tensor.to(self._device) for tensor in tensors]
        return tuple(on_device) if self._fields is None else mapping_of(self._fields, on_device, counted)

    def _complete(self, batch: LoadedBatch) -> None:
        """The micro-batch is in the sums; where it is the last of its step, they become the step's noisy gradient."""
        self._workers.refuse_another_group()
        if (noisy := self._trainer.step_sums(batch)) is None:
            self._guard.partial = True
            return
        means = {parameter: noisy[parameter] for parameter in self._parameters if parameter in noisy}  # without what is frozen for a while
        del noisy
        self._trainer.note(batch, self._noisy(batch.step, means))
        for parameter in means:
            means[parameter] = as_part_of(parameter, usable_by(self._optimizer, parameter, means[parameter]))
        self._guard.hand(batch.step, means)

    def _stated(self, steps_fixed_in_advance: bool) -> Run:
        """The run of the steps taken; the whole plan where training ended early and the number of steps was not fixed in advance."""
        if not isinstance(steps_fixed_in_advance, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"steps_fixed_in_advance: got {steps_fixed_in_advance!r}; it needs True or False.")
        if self._guard.pending:
            raise InputError(f"recorded_run: the gradient of step {self.steps + 1} was not used.", remedy="call optimizer.step() first.")
        self._held.refuse_changes(f"after step {self.steps}")
        recorded = self._executed(whole=not steps_fixed_in_advance and self.steps < self._planned.total_steps)
        self.diagnostics = self._trainer.diagnosed(self.steps)
        refuse_overflow(map(local, self._parameters), recorded)
        if self.steps >= self._planned.total_steps:
            self._kept.finish()
        return recorded

    def _spent(self, *, whole: bool) -> Run | None:
        """The run of all noise drawn so far, that of a step not yet taken included, or the whole plan, which is also that of noise that a
        matrix correlates; None: no noise was drawn."""
        self._held.refuse_changes(f"after step {self.steps}")
        noise = self._trainer.asked.noise
        whole = self._recorder.steps < self._planned.total_steps and (whole or (noise is not None and not noise.any_length))
        return self._executed(whole=whole) if self._recorder.steps else None

    def _executed(self, *, whole: bool) -> Run:
        """The run that was recorded, or the whole plan that it begins."""
        recorded = self._recorder.run(self._planned, enforced=False, whole=whole)
        return self._noise.executed(recorded, steps=self._recorder.steps)

    def save(self) -> None:
        """Save the training now, between two steps; it is saved by itself besides, every `Checkpoints.every` steps.

        Raises:
            InputError: there are no checkpoints, a step is under way, or the last one had no noise.
            HypothesisError: something else than a step moved the parameters; a training that goes on from there would not know of it.
            LetheError: the file cannot be written.
        """
        self._refuse_broken()
        if self._guard.pending or (self._batch is not None and not self.batch_complete):
            remedy = "call it after optimizer.step(), before the loader is asked for the next batch."
            raise InputError(f"save: step {self.steps + 1} is under way; half a step is in no checkpoint.", remedy=remedy)
        self._kept.save(self.steps)

    def close(self) -> None:
        """End reading ahead, unlock the checkpoints, and take the guard off: the optimiser is an ordinary one, and nothing is recorded."""
        self._stream.close()
        self._kept.close()
        self._guard.close()
        self._placement.let_go(refuse=False)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Within: an error ends the run in all processes; a process alone may try again."""
        if not self._workers.several:
            yield
            return
        self._refuse_broken()
        self._workers.refuse_another_group()
        try:
            with self._workers.watched(awaited=lambda: self._recorder.steps < self._planned.total_steps):
                yield
        except BaseException as error:
            if not isinstance(error, GeneratorExit):
                self._broken = True
                self._placement.let_go(refuse=False)
            raise

    def _refuse_not_taken(self) -> None:
        self._refuse_broken()
        if self._guard.pending:
            raise InputError(
                f"loader: step {self.steps + 1} was not taken.",
                source="a loop without optimizer.step(), or accelerator.accumulate(model), which skips it",
                remedy="call optimizer.step() after every engine.backward(batch); accumulate by TrainOptions(physical_size=64).",
            )

    def _refuse_broken(self) -> None:
        if self._broken:
            remedy = "certify what was done before with recorded_run, or begin again with another engine."
            raise InputError(f"the loop was interrupted within step {self.steps + 1}: some records may have been counted.", remedy=remedy)


class PrivateLoader:
    """The batches of a run, on the model's device: tuples of tensors, or dicts where records have fields.

    Its length is the number of logical batches that are left, of the epoch or of all; with a physical size there are more micro-batches,
    how many is left to chance.

    Attributes:
        dataset: that was given, if its length is the number of records; else, of a pair of arrays for instance, the source that reads it.
    """

    def __init__(self, state: LoopState, trainer: Trainer, data: Any) -> None:
        self._state, self._trainer = state, trainer
        dataset, source = data.dataset if isinstance(data, DataLoader) else data, trainer.source
        self.dataset = dataset if isinstance(dataset, Sized) and len(dataset) == len(source) else source

    @property
    def batch_size(self) -> int:
        """Records (of users: users) of a logical batch: their expected number where it is random."""
        return self._trainer.run.batch_size

    def __len__(self) -> int:
        return self._state.left_of_epoch

    def __iter__(self) -> Iterator[Any]:
        state, optimizer = self._state, self._trainer.optimizer
        saved = any(getattr(part, "optimizer", None) is optimizer for part in self._trainer.kept.also.values())
        scheduled = getattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched", False)
        if 0 < state.resumed == state.drawn and scheduled and not saved:
            message = (
                f"scheduler: training goes on after step {state.resumed}, and the learning rate's scheduler begins again, since it was not "
                'saved; give TrainOptions(checkpoints=Checkpoints(folder=..., also={"scheduler": scheduler})).'
            )
            warnings.warn(LetheWarning(message), stacklevel=2)
        return state.deliver()


def _with_a_row(batch: LoadedBatch) -> tuple[Sequence[Tensor], Tensor]:
    """The tensors, one row of zeros where there is none (many models take no empty batch), and which rows are records."""
    rows = len(batch.tensors[0])
    if batch.counted is not None or rows:
        return batch.tensors, torch.ones(rows, dtype=torch.bool) if batch.counted is None else batch.counted
    return tuple(tensor.new_zeros((1, *tensor.shape[1:])) for tensor in batch.tensors), torch.zeros(1, dtype=torch.bool)
