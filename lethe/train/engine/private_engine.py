"""PrivacyEngine: private training in a user's own loop; model, parameter names and optimiser stay as they are. The user calls it; so do
the Lightning and transformers integrations. It checks arguments, and `LoopState` does what happens at each step.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lethe.accounting.certify import certify
from lethe.certificates.records import HypothesisClaim, TrainingRecord
from lethe.errors import InputError, UnknownNameError
from lethe.errors.names import answering
from lethe.run.run import Run
from lethe.train.callbacks.callback import Callback, TrainingEnd
from lethe.train.callbacks.ledger_callback import paying
from lethe.train.callbacks.notifier import Notifier
from lethe.train.clip.isolated import Losses
from lethe.train.core.training_records import claims, network_record
from lethe.train.distributed.start import bare_module, bare_optimizer, without_reducer
from lethe.train.distributed.workers import Workers
from lethe.train.engine.opacus import ARGUMENTS, NAMES, OF_LOSSES
from lethe.train.engine.state import LoopState, PrivateLoader
from lethe.train.engine.step_guard import refuse_another_engine
from lethe.train.network.optimizers import as_one
from lethe.train.network.trainer import Trainer
from lethe.train.options import TrainOptions, in_options
from lethe.train.planning import Words, planned

_OF_FIT = ("lr_scheduler", "validation_data", "patience", "proximal_groups", "noise_policy")


class PrivacyEngine(LoopState):
    r"""Clips gradients, adds noise and records the run in a user's own loop; calls out of order are refused.

        engine = PrivacyEngine(model, optimizer, losses, dataset, epsilon=3.0, delta=1e-5, epochs=10, batch_size=256)
        for batch in engine.batches():
            engine.backward(batch)
            optimizer.step()
            optimizer.zero_grad()
        print(engine.epsilon())

    `backward` on the last micro-batch of a logical batch writes $\frac1b(\sum_i \mathrm{Clip}_C(\nabla f_i) + \zeta)$,
    $\zeta \sim N(0, z^2C^2I)$, into the parameters' `.grad`; on the others `.grad` stays None, so that `optimizer.step()` changes
    nothing and may be called after each. An empty batch comes as one row of zeros that does not count (`counted`), and takes its
    noisy step like any other.

    Refused, with the reason: a step without `backward`, or beside `loss.backward()`; a batch that is left out or used twice; gradients
    that are gone; a step beyond the run; trained parameters that anything but `optimizer.step()` writes to. What the optimiser's step, its
    own hooks included, and gradient clipping make of noisy gradients is their own affair. The function of the losses is compared with
    single records in some batches, as in `fit`.

    In a process group of `torch.distributed`, all processes run the same loop, each on its share of every batch; batch_size is of each, as
    in PyTorch. What is refused in one ends the loop in all. The model may be a `DistributedDataParallel`, or in shards (`fully_shard`), of
    which all processes call `record` and `recorded_run` together.

    Layers may be frozen and unfrozen between steps (`requires_grad_`), of those that were trained when the engine was made, in one process:
    a step clips, noises and moves those that are trained then.

    `declared` says, statement by statement, what the certificate rests on and nobody checked: what the loop does to a batch before
    `backward`; where training begins (the model's weights and the optimiser's state must not depend on the private data, but by a training
    that is certified as well; the two then add up). Not seen is an optimiser that looks at private data besides its gradients, and what
    else a loop computes from the data and tells (a training loss that is printed is not certified).

    Args:
        model: any model that `fit` takes, trained in place.
        optimizer: over its parameters, or several, each over its own, all of which take each step; they see noisy mean gradients only.
        losses: a loss of torch.nn, of outputs and targets, as for `fit`; or (batch) -> one loss a record, shape (B,), such as
            `lambda batch: criterion(model(batch[0]), batch[1])`, of a criterion with reduction="none". It is given batches as `batches`
            gives them, and parts of them, down to one record.
        data: what `fit` takes; of records that are mappings the batches are dicts.
        run, epsilon, delta, epochs, batch_size, clip_norm, callbacks: as of `fit`. The run's release must be all, without regulariser and
            pass_weights. Callbacks are told of the end when the loop is asked for its record or its recorded run.
        options: as of `fit`, but for what belongs to its own loop. With users a micro-batch holds all rows of its users that take part in
            the step, and the losses have one entry a row. With views each record is so many rows next to one another. Checkpoints are
            written when the next batch is asked for, so that all that a loop does after a step is in them; schedulers are named in
            `Checkpoints(also={"scheduler": scheduler})`.
    Raises:
        CalibrationError, InputError, HypothesisError: as `fit`.
    """

    @answering({**in_options("PrivacyEngine(model, optimizer, losses, data, ...)"), **ARGUMENTS})
    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        losses: nn.Module | Losses,
        data: Any,
        run: Run | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        clip_norm: float | None = None,
        callbacks: Callback | Iterable[Callback] = (),
        options: TrainOptions | None = None,
    ) -> None:
        self._options = options = TrainOptions.of(options)
        options.refuse("PrivacyEngine", *_OF_FIT)
        self._workers = Workers.current()
        self._told = Notifier(callbacks, paying(options.ledger, options.checkpoints))
        with self._workers.watched():
            if not callable(losses):
                raise InputError(
                    f"losses: got {type(losses).__name__}; it needs the function of a batch to one loss a record.", remedy=OF_LOSSES
                )
            bare, stepping = bare_module(model), as_one(bare_optimizer(optimizer))
            rate = stepping.param_groups[0]["lr"] if isinstance(stepping, torch.optim.Optimizer) else None
            words, large = Words(epsilon, delta, epochs, batch_size, clip_norm), options.allow_large_delta
            plan = planned(run, words, data, users=options.users, rate=rate, allow_large_delta=large)
            with self._told.preparing(plan.run):
                refuse_another_engine(stepping)
                trainer = Trainer(
                    bare,
                    losses if isinstance(losses, nn.Module) else without_reducer(model, losses),
                    plan,
                    options,
                    stepping,
                    self._told,
                    own_loop=True,
                )
                try:
                    self._begin(trainer, stepping)
                except BaseException:
                    trainer.kept.close()
                    raise
        self._delta, self._model, self._loader = plan.delta, model, PrivateLoader(self, trainer, data)
        self._workers.end()

    def batches(self) -> PrivateLoader:
        """The batches that are left, on the model's device: all of the run, or within `epochs` those of the epoch."""
        return self._loader

    def epochs(self) -> Iterator[int]:
        """The numbers of the epochs that are left, from 0; after a resume from the interrupted one, whose batches then are the rest.

        for epoch in engine.epochs():
            for batch in engine.batches():
                ...
        """
        steps = self._trainer.steps_per_epoch
        try:
            while self.left:
                before = self.drawn
                self._epoch_end = min((before // steps + 1) * steps, self._planned.total_steps)
                yield before // steps
                if self.drawn == before:
                    raise InputError(
                        f"epochs: no batch of epoch {before // steps} was used.",
                        source="engine.epochs()",
                        remedy="for epoch in engine.epochs(): for batch in engine.batches(): engine.backward(batch); ...",
                    )
        finally:
            self._epoch_end = None

    @property
    def run(self) -> Run:
        """The run that is carried out."""
        return self._trainer.asked

    def recorded_run(self, *, steps_fixed_in_advance: bool = False) -> Run:
        r"""The run to certify: that of `record`.

        A certificate of T steps is for a T that is fixed in advance. A loop that ends at a step $\tau$ chosen along the way shows, by where
        it ends, what made it end, and no certificate of $\tau$ steps covers that. So before the last step the *planned* run is returned:
        all its iterates are covered.

        Args:
            steps_fixed_in_advance: True declares that the number of steps taken was settled before training, and by nothing of the private
                data: no released iterate, no accuracy, no time it took. Then the shorter run that was executed is returned.
        Raises:
            InputError: a gradient was written and no step taken with it, or the argument is neither True nor False.
            HypothesisError: no step was taken, or they are not the beginning of the plan; or something else moved the parameters.
            LetheError: the parameters overflowed, or noise was too small to survive rounding.
            StoppedElsewhere: another process had an error, or is gone.
        """
        return self.record(steps_fixed_in_advance=steps_fixed_in_advance).run

    def record(self, *, steps_fixed_in_advance: bool = False) -> TrainingRecord:
        """The training record: the recorded run, and the parameters and buffers that the model has now. Call it before another iterate or
        an average is loaded: these are functions of released iterates.

        `lethe.certify(engine.record(), delta)` certifies the run and seals it: it binds it to these weights.

        Args, Raises: as `recorded_run`.
        """
        run = self._placement.read(self._stated, steps_fixed_in_advance)
        record = network_record(run, bare_module(self._model), self._claims(), self.averaged, isolation=self._options.isolation)
        self._told.end(TrainingEnd(run=run, steps=self.steps, record=record, diagnostics=self.diagnostics))
        return record

    @property
    def averaged(self) -> dict[str, Tensor] | None:
        """The model's state dict with the moving average of the iterates so far, for `load_state_dict`; None without `ema`, or steps."""
        average = self._average
        return average.of(bare_module(self._model)) if average is not None and average.begun else None

    def epsilon(self, delta: float | None = None, *, steps_fixed_in_advance: bool = False, allow_large_delta: bool = False) -> float:
        """That of the certificate, at any time: of the whole plan, whatever made the loop end before its last step.

        Args:
            delta: None: that which the noise was planned for.
            steps_fixed_in_advance: as of `recorded_run`: that of the steps whose noise was drawn so far, 0.0 before them.
            allow_large_delta: whether a delta of 1/records or more is meant.
        Raises:
            InputError: no delta, or one that is not in (0, 1), or not below 1/records.
            HypothesisError: something else than a step moved the parameters.
        """
        if delta is None and (delta := self._delta) is None:
            raise InputError("delta: none was given, and none was planned for.", source="run", remedy="engine.epsilon(delta=1e-5).")
        run = self._spent(whole=not steps_fixed_in_advance)
        spent = certify(
            self.run if run is None else run, delta, allow_large_delta=allow_large_delta
        ).epsilon  # before the first step too, so that a wrong delta is refused
        return 0.0 if run is None and steps_fixed_in_advance else spent

    @property
    def declared(self) -> tuple[str, ...]:
        """The assumptions of the certificate that nobody checked, one statement each."""
        return tuple(claim.detail for claim in self._claims())

    def _claims(self) -> tuple[HypothesisClaim, ...]:
        users, private = self.run.unit == "user", self._told.private
        return claims(data=self._source, isolation=self._clipper.isolation, optimiser=True, loop=True, users=users, private=private)

    def __getattr__(self, name: str) -> Any:
        """What Opacus' engine has besides: an error with the line that does it here."""
        raise UnknownNameError(f"PrivacyEngine has no {name!r}.", remedy=NAMES.get(name))
