"""The state of a user's loop: the current micro-batch, whether it was used, and what was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.callbacks.telling import Telling
from lethe.train.checkpoints.held_parameters import HeldParameters
from lethe.train.checkpoints.moved_state import MovedState
from lethe.train.checkpoints.training_state import Training
from lethe.train.clip.batch import records_of
from lethe.train.core.declared import declared_of, of_loss
from lethe.train.core.noise_resolution import refuse_overflow
from lethe.train.core.recorder import Recorder
from lethe.train.core.tensors import as_part_of, local
from lethe.train.data import LoadedBatch
from lethe.train.data.sources.fields import attending, fields_of
from lethe.train.engine.refusals import all_delivered, left_out, not_taken, torn
from lethe.train.engine.step_guard import StepGuard
from lethe.train.engine.steps_taken import StepsTaken
from lethe.train.fitted import Report
from lethe.train.network.batch_losses import units_of
from lethe.train.network.noise.shared import kept_noise
from lethe.train.network.preparation import PreparedNetwork
from lethe.train.network.report import reported, warn_early
from lethe.train.network.steps import NoisySums


class LoopState:
    """Takes the micro-batches of a run one by one from the stream to the optimiser; see `PrivacyEngine`.

    Args:
        ready: the network, of which no gradient was computed yet. What goes wrong in one of several processes ends the run in all; the
            training is taken up again from its checkpoints, if there are any.
        optimizer: is guarded from here on.
        callbacks: are told of each step that was taken.
    """

    def __init__(self, ready: PreparedNetwork, optimizer: torch.optim.Optimizer, callbacks: Telling) -> None:
        run, clipper, named, stream, kept = ready.run, ready.clipper, ready.named, ready.stream, ready.kept
        self._run, self._clipper, self._stream, self._workers = run, clipper, stream, ready.workers
        self.placement = ready.placement
        self._noisy = NoisySums(run, ready.noise)
        self._parameters = list(named.values())
        self._device, self.total_steps, self.batch_size = self._parameters[0].device, run.total_steps, run.batch_size
        self._fields = fields_of(ready.source)
        self._taken = StepsTaken(run, Recorder(run, seeded=ready.seeded), ready.noise)
        self._kept = kept
        self._held = HeldParameters(named, "optimizer.step()", ready.placement)
        recorder = self._taken.recorder
        parts: dict[str, Any] = {"held": self._held, "untouched": MovedState(clipper.model), **kept_noise(ready.noise)}
        training = Training(named=named, clipper=clipper, optimizer=optimizer, stream=stream, recorder=recorder, **parts)
        self.resumed = kept.begin(training)
        self._taken.resume(self.resumed)
        self._held.keep()  # from now on a change of parameters is the user's
        self._callbacks, self.average = callbacks, ready.average
        callbacks.begin(ready.asked, seeded=recorder.seeded, done=self.resumed)
        self._guard = StepGuard(optimizer, named, run, self._held, self._taking, self._stepped, done=self.resumed)
        self._delivered: Any = None
        self._batch: LoadedBatch | None = None
        self._iteration: object = None
        self._counted: Tensor | None = None
        self._used = self._broken = False
        self.report: Report | None = None

    @property
    def steps(self) -> int:
        """Steps taken, including those before training was resumed."""
        return self._taken.count

    @property
    def left(self) -> int:
        """Steps of the run whose batches were not delivered yet, or not used."""
        return self._run.total_steps - self.drawn

    @property
    def drawn(self) -> int:
        """Steps of the run whose batches were delivered and used."""
        return self._stream.steps_done - (self._batch is not None and self._batch.last and not self._used)

    @property
    def complete(self) -> bool:
        """Whether the present micro-batch was used and is the last of its logical batch."""
        return self._batch is not None and self._batch.last and self._used

    def _taking(self) -> None:
        self._taken.take()

    def _stepped(self) -> None:
        if self.average is not None:
            self.average.add()
        self._callbacks.step(self._taken.recorder)

    @property
    def stepped(self) -> bool:
        """Whether the optimiser has taken the step that the present micro-batch completes."""
        return self.complete and not self._guard.pending and self.steps == self._stream.steps_done

    @property
    def left_in_pass(self) -> int:
        """Steps of the present pass (of the next one where a pass is over) whose batches were not delivered yet."""
        per_pass = self._run.steps_per_pass
        return per_pass - self.drawn % per_pass

    @property
    def counted(self) -> Tensor:
        """Which rows of the present micro-batch are records; a copy, since how many are padding tells of the records that are not there."""
        if self._counted is None:
            raise InputError("counted: no batch has been taken from the loader.", remedy="iterate over the loader.")
        return self._counted.clone()

    def deliver(self, steps: int) -> Iterator[Any]:
        """The batches of the next so many steps. One that was delivered and not used, to a cell of a notebook that looked at it or was
        interrupted, is delivered again: its records have met nothing."""
        with self._told():
            yield from self._deliver(steps)

    def _deliver(self, steps: int) -> Iterator[Any]:
        self._refuse_not_taken()
        if not self.left and self._batch is None and self.resumed:
            return  # it was killed after its last step
        if not self.left:
            raise all_delivered(self._run)
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
                    self._guard.refuse_strangers()
                    raise left_out(batch.step)
                if batch.last:
                    self._kept.after(batch.step)
                if batch.last and batch.step == stop:
                    return
        finally:
            if self._iteration is iteration:
                self._stream.close()
                self.placement.let_go(refuse=False)

    @property
    def declared_of_loss(self) -> tuple[str, ...]:
        """What of them is about the losses, the loop, the optimiser, and what a unit is."""
        return of_loss(optimiser=True, loop=True, users=self._run.unit == "user")

    @property
    def declared(self) -> tuple[str, ...]:
        """The assumptions of the certificate that nobody checked."""
        return declared_of(data=self._stream.source, isolation=self._clipper.isolation, loss=self.declared_of_loss)

    def backward(self, batch: Any) -> Tensor:
        """Clip and add; after the last micro-batch of a step add noise and hand the gradients over."""
        with self._told():
            loaded = self._present("backward")
            self._guard.clear()
            self._held.refuse_changes(f"before step {self.steps + 1}")
            if (rows := records_of(batch)) != len(self.counted):
                raise InputError(
                    f"backward: got a batch of {rows} rows; the loader's present one has {len(self.counted)}.",
                    source="which records meet which step is part of the guarantee",
                    remedy="give the batch as the loader gave it; what is done to single records, such as augmentation, keeps its rows.",
                )
            self.placement.gather()
            whole = bool(self.counted.all())
            as_given = _leaves(batch) == _leaves(self._delivered)
            collated = {row: self._formed(own, None) for row, own in loaded.alone.items()} if as_given else {}
            units = None if loaded.places is None or not len(loaded.places) else units_of(loaded.places)
            try:
                with self._guard.computing():
                    losses = self._clipper.add(batch, counted=None if whole else self.counted, units=units, collated=collated)
            except InputError:  # found before anything was added
                raise
            except BaseException:
                self._broken = True
                raise
            self._used = True
            try:
                self._callbacks.add_losses(losses, self._counted)
                self._complete(loaded)
            except BaseException:
                self._broken = True
                raise
            return losses

    def _formed(self, tensors: Sequence[Tensor], counted: Tensor | None) -> Any:
        """A batch as the loop is given it, on the model's device."""
        there = [tensor.to(self._device) for tensor in tensors]
        if self._fields is None:
            return tuple(there)
        named = dict(zip(self._fields, there, strict=True))
        return named if counted is None else attending(named, counted)

    def _complete(self, batch: LoadedBatch) -> None:
        """The micro-batch is in the sums; where it is the last of its step, they become the step's noisy gradient."""
        self._held.refuse_changes(f"in the forward pass or the loss of step {batch.step}")
        if not batch.last:
            self.placement.collect(self._clipper.take)
            self._guard.wait()
            return
        sums = self._clipper.take()
        self.placement.refuse_others(sums)
        self.placement.let_go()
        self._workers.refuse_another_group()
        noisy = self.placement.add_up(sums)
        self._kept.before_noise(batch.step)
        self._taken.draw(batch.step, self._noisy(batch.step, list(noisy.values())), batch.whole)
        self._guard.hand(batch.step, {parameter: as_part_of(parameter, noise) for parameter, noise in noisy.items()})
        warn_early(self._clipper, self._run, self._device, self._stream, step=batch.step - self.resumed)

    def recorded_run(self, steps_fixed_in_advance: bool) -> Run:
        """The run of the steps taken; the whole plan where training ended early and the number of steps was not fixed in advance."""
        if self._guard.pending:
            raise InputError(
                f"recorded_run: the gradient of step {self.steps + 1} was written and not used.", remedy="call optimizer.step() first."
            )
        self._held.refuse_changes(f"after step {self.steps}")
        recorded = self._taken.stated(steps_fixed_in_advance)
        self.report = reported(self._clipper, self._run, steps=self.steps)
        refuse_overflow(map(local, self._parameters), recorded)
        if self.steps >= self._run.total_steps:
            self._kept.finish()
        return recorded

    def begun_run(self) -> Run | None:
        """The run of all noise drawn so far, that of a step not yet taken included; None: none was.

        Raises:
            HypothesisError: something else than a step moved the parameters.
        """
        self._held.refuse_changes(f"after step {self.steps}")
        return self._taken.begun()

    def save(self) -> None:
        """Save the training between two steps."""
        self._refuse_broken()
        begun = self._batch is not None and not (self._used and self._batch.last)
        if begun or self._guard.pending:
            raise InputError(
                f"save: step {self.steps + 1} is under way; half a step is in no checkpoint.",
                remedy="call it after optimizer.step(), before the loader is asked for the next batch.",
            )
        self._kept.save(self.steps)

    def close(self) -> None:
        """End reading ahead, unlock the checkpoints and take the guard off."""
        self._stream.close()
        self._kept.close()
        self._guard.close()
        self.placement.let_go(refuse=False)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Within: an error ends the run in all processes; a process alone may try again."""
        if not self._workers.several:
            yield
            return
        self._refuse_broken()
        self._workers.refuse_another_group()
        try:
            with self._workers.watched(awaited=lambda: self._taken.drawn < self._run.total_steps):
                yield
        except GeneratorExit:
            raise
        except BaseException:
            self._broken = True
            self.placement.let_go(refuse=False)
            raise

    def _present(self, what: str) -> LoadedBatch:
        """The micro-batch that is to be used now."""
        self._refuse_broken()
        if self._batch is None or self._used:
            got = "no batch has been taken from the loader" if self._batch is None else "the present batch was used already"
            raise InputError(
                f"{what}: {got}.",
                source="a record may count once a step",
                remedy="record and call backward once for each micro-batch of the loader.",
            )
        return self._batch

    def _refuse_not_taken(self) -> None:
        self._refuse_broken()
        if self._guard.pending:
            raise not_taken(self.steps)

    def _refuse_broken(self) -> None:
        if self._broken:
            raise torn(self.steps)


def _with_a_row(batch: LoadedBatch) -> tuple[Sequence[Tensor], Tensor]:
    """The tensors, one row of zeros where there is none (many models take no empty batch), and which rows are records."""
    rows = len(batch.tensors[0])
    if batch.counted is not None:
        return batch.tensors, batch.counted
    if rows:
        return batch.tensors, torch.ones(rows, dtype=torch.bool)
    return tuple(tensor.new_zeros((1, *tensor.shape[1:])) for tensor in batch.tensors), torch.zeros(1, dtype=torch.bool)


def _leaves(batch: Any) -> list[int]:
    """Which tensors a batch is made of."""
    return [id(leaf) for leaf in tree_leaves(batch)]
