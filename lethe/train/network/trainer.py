"""Trainer: the training of a network, shared by `fit` and `PrivacyEngine`, and the loop of `fit` on one screen (`take_steps`). It joins
the parts: batches, clipper, noise, step, recorder, checkpoints, callbacks. `fit` calls `train_network`, `PrivacyEngine` the methods.
"""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss  # pyright: ignore[reportPrivateUsage]

from lethe.errors import InputError, LetheError
from lethe.run.known_fields import require_run
from lethe.train.callbacks.notifier import Notifier
from lethe.train.callbacks.progress import Progress, progress_of
from lethe.train.checkpoints.checkpointing import Checkpointing
from lethe.train.checkpoints.training_state import HeldParameters, Training
from lethe.train.core.budgeted_noise import BudgetedNoise, refuse_policy
from lethe.train.core.comparison import FAILURES
from lethe.train.core.iterates import refuse_overflow
from lethe.train.core.recorder import Recorder
from lethe.train.core.tensors import local
from lethe.train.core.training_records import claims, network_record
from lethe.train.data.batches import BatchStream, LoadedBatch
from lethe.train.data.loaders import as_source
from lethe.train.data.sources import fields_of
from lethe.train.data.users import members_of
from lethe.train.distributed.placement import Placement, changed_parameters, reshard
from lethe.train.distributed.start import bare_module, refuse_other_start
from lethe.train.distributed.workers import Workers, ending_together
from lethe.train.fitted import Diagnostics, Fitted, spending
from lethe.train.network.batch_losses import BatchLosses, LossFunction, units_of
from lethe.train.network.noise.training_noise import sources_of
from lethe.train.network.optimizers import SCHEDULER, catch_up, scheduler_of
from lethe.train.network.plan import clipper_of, refuse_for_shards, refuse_groups, refuse_optimizer, trained_parameters
from lethe.train.network.post_processing import AVERAGE, PUBLIC, VALIDATION, MovingAverage, Validation
from lethe.train.network.report import EARLY, FirstSteps, said_of, warn_of_shapes, warn_where_nothing_contributes
from lethe.train.network.steps import DESCENT, Descent
from lethe.train.options import TrainOptions
from lethe.train.planning import TrainingPlan

Module = TypeVar("Module", bound=nn.Module)

# Of several processes all need the same.
_COMPARED = ("clip_groups", "proximal_groups", "physical_size", "secure", "isolation", "records_per_user", "views", "ema")


class Trainer:
    """A network ready to be trained: everything that can be checked before the first batch is checked when it is made.

    A loop of one's own gives a loss of torch.nn, or the function of a batch to one loss a record; it needs an optimiser, and asks no filter
    of a noise_budget. Everything else is as given to `fit`, and raised as there; the checkpoints are closed then.

    Attributes:
        asked: the run with the clipping that is used.
        run: the same, of the noise that is drawn anew at each step.
        named: the trained parameters.
        kept: the checkpoints.
        adaptive: the clip norm in force; None: it is the run's.
        selected: tables of which only selected rows get noise; None: there are none.
        held: from `begin` on, the parameters as the last step left them; and `done`, how many were taken before.
    """

    held: HeldParameters

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        plan: TrainingPlan,
        options: TrainOptions,
        optimizer: torch.optim.Optimizer | None,
        notifier: Notifier,
        *,
        own_loop: bool,
    ) -> None:
        data, run = plan.data, plan.run
        require_run(run, correlated=True)
        if isinstance(model, nn.Module):
            reshard(model)
        column = options.users if isinstance(options.users, str) else None
        self.options, self.optimizer, self.told, self.steps_per_epoch = options, optimizer, notifier, plan.steps_per_epoch
        self.source = (source := as_source(data, leave_out=() if column is None else (column,)))
        criterion = not own_loop or isinstance(loss, _Loss)
        losses = BatchLosses(model, loss, source, column) if criterion else loss
        self.asked, self.clipper, self.adaptive, self.selected = clipper_of(model, losses, run, options, budgeted=not own_loop)
        self.run = run = self.asked.uncorrelated
        self._step_sizes = run.step_sizes
        self.named = named = trained_parameters(model)
        parameters = list(named.values())
        self._trained = set(parameters)
        # Each step is then a Gaussian mechanism of fewer parameters; noise that a matrix correlates is for all steps of all of them.
        self._may_freeze = own_loop and self.asked.noise is None
        if own_loop or optimizer is not None:
            refuse_optimizer(optimizer, run, named, model)
        self.first = FirstSteps(
            self.clipper, named, None if options.proximal_groups else optimizer, () if self.selected is None else self.selected.tables
        )
        self.average = None if options.ema is None else MovingAverage(options.ema, named, run)
        if options.proximal_groups is not None:
            refuse_groups(options.proximal_groups, run)
        refuse_policy(run, options.noise_policy)
        self.budget = None if run.noise_budget is None else BudgetedNoise(run, options.noise_policy)
        self.device, self.workers = parameters[0].device, Workers.current()
        self.workers.refuse_device(self.device)
        self.placement = Placement(model, named, self.workers)
        self._shared = self.workers.several or self.placement.sharded
        if self.placement.sharded:
            refuse_for_shards(run, options)
        seeded, policed = options.seeded(run), options.noise_policy is not None
        arguments = (options.checkpoints, self.asked, options.noise_generator, self.workers)
        self.kept = checkpointing = Checkpointing(*arguments, seeded=seeded, policed=policed)
        self.recorder = Recorder(run, seeded=seeded)
        self.scheduler = self.validation = None
        try:
            if not own_loop:
                self.scheduler = scheduler_of(optimizer, options.lr_scheduler, run.total_steps)
                self.validation = self._validation(model, loss)
            batches, self.noise = sources_of(self.asked, options, self.placement, self.workers, start=checkpointing.starts)
            grouped = {"users": options.users, "records_per_user": options.records_per_user, "views": options.views}
            members = members_of(run, data, source, **grouped, seed=options.seed)
            sharing = {"rank": self.workers.rank, "world_size": self.workers.world_size}
            self.stream = BatchStream(run, source, batches, physical_size=options.physical_size, members=members, **sharing)
            compared = {name: getattr(options, name) for name in _COMPARED} | {"seeded": seeded, "fields": fields_of(source)}
            compared["users"] = None if members is None else members.digest()
            pays = notifier.pays
            refuse_other_start(self.workers, model, self.asked, source, optimizer=optimizer, options=compared, pays=pays)
        except BaseException:
            checkpointing.close()
            raise

    def _validation(self, model: nn.Module, loss: Any) -> Validation | None:
        options = self.options
        if options.validation_data is None:
            if options.patience is not None:
                raise InputError(
                    f"patience: got {options.patience!r}, and no validation data.",
                    source="TrainOptions.patience",
                    remedy="give public records: TrainOptions(validation_data=..., patience=3).",
                )
            return None
        settings = {"patience": options.patience, "physical_size": options.physical_size, "workers": self.workers}
        return Validation(model, loss, options.validation_data, self.run, **settings)

    def begin(self, by: str, update: Descent | None = None) -> None:
        """Begin, or go on from the checkpoints; callbacks are told. `by` is for errors what takes the steps: `update`, or a loop."""
        self.held = HeldParameters(self.named, by, self.placement)
        parts = {AVERAGE: self.average, DESCENT: None if update is None or update.precision is None else update}
        parts |= {SCHEDULER: self.scheduler, VALIDATION: self.validation, "lethe adaptive clip norm": self.adaptive}
        self.done = done = self.kept.begin(
            Training(
                named=self.named if update is None else update.iterate,
                clipper=self.clipper,
                optimizer=self.optimizer,
                stream=self.stream,
                recorder=self.recorder,
                held=self.held,
                also={name: part for name, part in parts.items() if part is not None},
                **self.noise.correlated_states(),
            )
        )
        if update is not None:
            update.show()
        self.held.keep()  # from now on a change of parameters is somebody else's
        if self.budget is not None:
            self.budget.pay_again(done)
        recorded_run = self.asked if update is None or update.precision is None else self.asked.replace(precision=update.precision)
        budget = None if self.budget is None else self.budget.filter
        self.told.begin(recorded_run, seeded=self.recorder.seeded, done=done, budget=budget)

    def step_sums(self, batch: LoadedBatch) -> Mapping[nn.Parameter, Tensor] | None:
        """The clipped sums of a step, over all processes, of which `batch` was added last, and whose noise may be drawn now; None: more of
        its batches follow."""
        self.held.refuse_changes(f"in the forward pass or the loss of step {batch.step}")
        if not batch.last:
            self.placement.collect(self.clipper.take)
            return None
        sums = self.clipper.take(rows=self.noise.by_rows is not None)
        if self.adaptive is not None:
            self.adaptive.count = sums.pop(self.adaptive.key).to(self.device)
            self.workers.add_up([self.adaptive.count])
        if self._shared:
            self.placement.let_go()
            sums = self.placement.add_up(sums)
        elif sums.keys() != self._trained and not (self._may_freeze and sums and sums.keys() < self._trained):
            raise changed_parameters()
        self.first.before()
        if self.kept.active:
            self.kept.before_noise(batch.step)
        return sums

    def note(self, batch: LoadedBatch, noise_std: float) -> None:
        """Record the step that a batch is the last of, with its noise in parameter units; say, while there is time, what rounding tells,
        and that nothing contributes."""
        self.recorder.note(step_size=float(self._step_sizes[batch.step - 1]), noise_std=noise_std, batch=batch.whole)
        self.first.noised(noise_std)
        steps_here = batch.step - self.done
        if steps_here == 1:
            warn_of_shapes(self.clipper, self.run, self.device, self.stream)
        if steps_here == EARLY:
            warn_where_nothing_contributes(self.clipper, f"of the first {steps_here} steps")

    def diagnosed(self, steps: int) -> Diagnostics:
        """The report of a training that is over after so many steps, with a warning where nothing contributed."""
        warn_where_nothing_contributes(self.clipper, "step of this training")
        ways = " and ".join(sorted(self.clipper.ways)) or None
        return Diagnostics.of(self.run, steps=steps, contributed=self.clipper.contributed, gradients=ways)

    def take_steps(self, update: Descent, finished: Progress) -> None:
        """The loop of `fit`: the clipped sums of each step, over all of its micro-batches, and what `update` makes of them."""
        begun, notifier, budget, parameters, steps = 0, self.told, self.budget, list(self.named.values()), self.run.total_steps
        scheduler, validation = self.scheduler, self.validation
        if validation is not None and validation.over:
            return
        for batch in self.stream:
            if batch.step != begun:
                begun = batch.step
                if budget is not None and not budget.pays(begun, parameters):
                    return
                self.held.refuse_changes(f"before step {begun}")
                if self._shared:
                    self.placement.gather()
            if batch.tensors[0].shape[0]:
                losses = self._add(batch)
                if notifier.asks_losses:
                    notifier.add_losses(losses, batch.counted)
            if (sums := self.step_sums(batch)) is None:
                continue
            noise_std = update(begun, sums)
            del sums  # they would be there beside those of the next step
            self.held.keep()
            if self.average is not None:
                self.average.add()
            self.note(batch, noise_std)
            self.first.after()
            if scheduler is not None:
                scheduler.step()
            if validation is not None and begun % self.steps_per_epoch == 0:
                validation.measure()
            ends = (budget is not None and budget.ends_after(begun)) or (validation is not None and validation.over)
            finished(begun, steps)
            if self.kept.active:
                self.kept.after(begun, last=ends)
            if notifier.live:
                notifier.step(self.recorder)
            if validation is not None and validation.over:
                return

    def _add(self, batch: LoadedBatch) -> Tensor:
        """Add the clipped gradients of a loaded batch of at least one row; returns its losses, detached, shape (rows,)."""
        losses = self.clipper.losses
        assert isinstance(losses, BatchLosses)
        device_batch = losses.batch(batch.tensors, self.device, batch.counted)
        try:
            return self.clipper.add(
                device_batch,
                counted=None if batch.counted is None else batch.counted.to(self.device),
                units=None if batch.places is None else units_of(batch.places),
                collated={row: losses.batch(record_tensors, self.device, None) for row, record_tensors in batch.alone.items()}
                if batch.alone
                else None,
            )
        except torch.OutOfMemoryError:
            raise
        except FAILURES as error:
            cause = error.__cause__ if isinstance(error, LetheError) else error
            explained = losses.explained(cause, device_batch) if isinstance(cause, Exception) else None
            if explained is None:
                raise
            raise explained from cause


@ending_together
def train_network(
    model: Module,
    loss: LossFunction,
    plan: TrainingPlan,
    options: TrainOptions,
    optimizer: torch.optim.Optimizer | None,
    notifier: Notifier,
) -> Fitted[Module]:
    """Train a module in place, as `lethe.train.fit` says: checks, the loop, checks."""
    model = bare_module(model)
    trainer = Trainer(model, loss, plan, options, optimizer, notifier, own_loop=False)
    run, named, noise, placement, budget = trainer.run, trainer.named, trainer.noise, trainer.placement, trainer.budget
    with closing(trainer.kept) as checkpointing:
        parts = {"budget": budget, "adaptive": trainer.adaptive, "selected": trainer.selected}
        update = Descent(named, run, noise, optimizer, groups=options.proximal_groups or (), **parts)
        try:
            trainer.begin("fit's own step", update)
            if trainer.scheduler is not None:
                catch_up(trainer.scheduler, trainer.done)
            trainer.take_steps(update, progress_of(options.progress))
        finally:
            trainer.stream.close()
            placement.let_go(refuse=False)
        trainer.held.refuse_changes("after the last step")
        trainer.workers.from_root(placement.whole)
        refuse_overflow(map(local, named.values()), run)
        early = (
            budget is None and trainer.validation is not None and trainer.validation.over
        )  # where it ends depends on iterates: all planned steps count
        executed = noise.executed(trainer.recorder.run(run, enforced=False, whole=early), steps=trainer.recorder.steps)
        recorded = executed.replace(precision=update.precision)
        checkpointing.finish()
        averaged = None if trainer.average is None else trainer.average.of(model)
        model.zero_grad(set_to_none=True)  # what the forward pass may have put there has no noise
        placement.meet()
        claims_made = claims(
            data=trainer.source,
            isolation=options.isolation,
            optimiser=optimizer is not None,
            users=run.unit == "user",
            private=notifier.private,
        )
        claims_made = claims_made if options.patience is None else (*claims_made, PUBLIC)
        return Fitted(
            model=model,
            run=recorded,
            record=network_record(recorded, model, claims_made, averaged, isolation=options.isolation),
            averaged=averaged,
            validation_losses=() if trainer.validation is None else tuple(trainer.validation.losses),
            clip_norms=None if trainer.adaptive is None else tuple(trainer.adaptive.norms[:-1]),
            checked=said_of(trainer.clipper),
            diagnostics=trainer.diagnosed(trainer.recorder.steps),
            **spending(None if budget is None else budget.filter, seeded=recorded.seeded),
        )
