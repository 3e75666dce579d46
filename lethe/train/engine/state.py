"""The state of a user's loop: the current micro-batch, whether it was used, and what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.callbacks.telling import Telling
from lethe.train.checkpoints.training_state import Training
from lethe.train.checks.held_parameters import HeldParameters
from lethe.train.checks.loss import LossFunction
from lethe.train.checks.mixed_inputs import LoopInputs
from lethe.train.checks.shared_factors import SharedFactors
from lethe.train.core.declared import declared_of, of_loss
from lethe.train.core.noise_resolution import refuse_overflow
from lethe.train.core.recorder import Recorder
from lethe.train.core.tensors import as_part_of, local
from lethe.train.data import LoadedBatch
from lethe.train.engine.loop_losses import LoopLosses
from lethe.train.engine.padding_check import LoopAlone
from lethe.train.engine.refusals import ALONE, all_delivered, left_out, not_taken, torn
from lethe.train.engine.rows import add_clipped, with_a_row
from lethe.train.engine.step_guard import StepGuard
from lethe.train.engine.steps_taken import StepsTaken
from lethe.train.fitted import Report
from lethe.train.model_state.outputs import one_loss_each
from lethe.train.model_state.untouched_state import UntouchedState
from lethe.train.network.noise.shared import kept_noise
from lethe.train.network.preparation import PreparedNetwork
from lethe.train.network.report import reported, warn_early
from lethe.train.network.steps import NoisySums

Tensors = tuple[Tensor, ...]


class LoopState:
    """Takes the micro-batches of a run one by one from the stream to the optimiser; see `PrivacyEngine`.

    Args:
        ready: the network, of which no gradient was computed yet. What goes wrong in one of several processes ends the run in all; the
            training is taken up again from its checkpoints, if there are any.
        optimizer: is guarded from here on.
        callbacks: are told of each step that was taken.
        verify: look at the losses that are handed over, and at padded batches.
    """

    def __init__(self, ready: PreparedNetwork, optimizer: torch.optim.Optimizer, callbacks: Telling, *, verify: bool = True) -> None:
        run, clipper, named, stream, kept = ready.run, ready.clipper, ready.named, ready.stream, ready.kept
        self._run, self._clipper, self._stream, self._workers = run, clipper, stream, ready.workers
        self.placement = ready.placement
        self._noisy = NoisySums(run, ready.noise)
        self._parameters = list(named.values())
        self._device, self.total_steps, self.batch_size = self._parameters[0].device, run.total_steps, run.batch_size
        self._untouched = UntouchedState(clipper.model, attributes=True)
        self._taken = StepsTaken(run, Recorder(run, seeded=ready.seeded), ready.noise)
        self._kept = kept
        self._held = HeldParameters(clipper.model, named, step="optimizer.step()", remedy=ALONE, placement=ready.placement)
        recorder = self._taken.recorder
        parts: dict[str, Any] = {"held": self._held, "untouched": self._untouched, **kept_noise(ready.noise)}
        training = Training(named=named, clipper=clipper, optimizer=optimizer, stream=stream, recorder=recorder, **parts)
        self.resumed = kept.begin(training)
        self._taken.resume(self.resumed)
        self._held.keep()  # from now on a change of parameters is the user's
        self._callbacks, self.average = callbacks, ready.average
        callbacks.begin(ready.asked, seeded=recorder.seeded, done=self.resumed)
        self._guard = StepGuard(optimizer, named, run, self._held, self._taking, self._stepped, done=self.resumed)
        self._verify = verify
        self._inputs, self._alone, self._factors = LoopInputs(clipper.model), LoopAlone(clipper.model), SharedFactors()
        self._losses = LoopLosses(clipper)
        self._delivered: Tensors = ()
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
        if not self.placement.sharded:
            self._untouched.refuse_before_step()
        self._taken.take()

    def _stepped(self) -> None:
        if not self.placement.sharded:
            self._untouched.keep()
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

    def deliver(self, steps: int) -> Iterator[Tensors]:
        """The batches of the next so many steps. One that was delivered and not used, to a cell of a notebook that looked at it or was
        interrupted, is delivered again: its records have met nothing."""
        with self._told():
            yield from self._deliver(steps)

    def _deliver(self, steps: int) -> Iterator[Tensors]:
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
                tensors, counted = with_a_row(batch)
                self._batch, self._used, self._counted = batch, False, counted.to(self._device)
                given = tuple(tensor.to(self._device) for tensor in tensors)
                self._delivered = self._inputs.keep(given, wanted=self._verify, needed=bool(batch.alone))
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

    @contextmanager
    def recording(self) -> Iterator[None]:
        """The clipper's, for the rows of the present micro-batch."""
        with self._told():
            batch = self._present("recording")
            self._losses.forget()
            parts = self._clipper.parts.looked()
            self._held.refuse_changes(f"before step {self.steps + 1}", parts)
            self._untouched.look(parts)
            self.placement.gather()
            looked_at = self._inputs.watched(), self._alone.watched(self._verify and bool(batch.alone))
            parts = None if self.placement.sharded else parts
            with self._clipper.recording(records=len(self.counted), parts=parts), looked_at[0], looked_at[1]:
                yield

    def losses(self, criterion: LossFunction, outputs: Any, targets: Tensor) -> Tensor:
        """The losses of the records, by a loss function that is checked together with the model.

        Args:
            criterion: (outputs, targets) -> losses of shape (B,).
            outputs: of the model.
            targets: shape (B, ...).
        """
        with self._told():
            return self._losses(criterion, outputs, targets)

    @property
    def declared_of_loss(self) -> tuple[str, ...]:
        """What of them is about the losses, the loop, the optimiser, and what a unit is."""
        return of_loss(optimiser=True, loop=True, bare=self._losses.bare, users=self._run.unit == "user")

    @property
    def declared(self) -> tuple[str, ...]:
        """The assumptions of the certificate that nobody checked."""
        source, checked, loss = self._stream.source, self._clipper.verified, self.declared_of_loss
        missing, attributes = (self._losses.missing, self._alone.missing), self._untouched.declared
        return declared_of(data=source, verify=self._verify, checked=checked, loss=loss, missing=missing, attributes=attributes)

    def backward(self, losses: Tensor) -> None:
        """Clip and add; after the last micro-batch of a step add noise and hand the gradients over."""
        with self._told():
            self._backward(losses)

    def _backward(self, losses: Tensor) -> None:
        batch = self._present("backward")
        self._guard.clear()
        asked, losses = self._losses.call_of(losses), one_loss_each(losses)
        if self._verify and isinstance(losses, Tensor):
            criterion = None if asked is None else asked.criterion
            self._factors.refuse(self._clipper.before_layers(losses), len(self.counted), self._delivered, criterion)
        asked = asked if batch.alone else None  # the model's outputs are not held through the backward pass
        try:
            add_clipped(self._clipper, losses, batch, self.counted)
        except InputError:  # found before anything was added
            raise
        except BaseException:
            self._broken = True
            raise
        self._used = True
        try:
            if self._verify and batch.alone:
                self._alone.require(self._delivered, batch.alone, asked, written=self._inputs.written(self.counted))
            self._callbacks.add_losses(losses, self._counted)
            self._complete(batch)
        except BaseException:
            self._broken = True
            raise

    def _complete(self, batch: LoadedBatch) -> None:
        """The micro-batch is in the sums; where it is the last of its step, they become the step's noisy gradient."""
        parts = self._clipper.parts.looked()
        self._held.refuse_changes(f"in the forward pass of step {batch.step}", parts)
        if not batch.last:
            self.placement.collect(self._clipper.take)
            self._guard.wait()
            return
        sums = self._clipper.take()
        self.placement.refuse_others(sums)
        self.placement.let_go()
        self._untouched.refuse_changes_after(batch.step - self.resumed, None if self.placement.sharded else parts)
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
        self._untouched.refuse_changes()
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
