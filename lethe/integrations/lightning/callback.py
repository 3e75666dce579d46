"""PrivateTraining: the Lightning callback with which a module's automatic optimisation takes the steps of a PrivacyEngine. Users add it to
`L.Trainer(callbacks=[...])`; Lightning calls its hooks, which replace the train loader and the optimiser's step.
"""

import dataclasses
import math
import os
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from torch import Tensor
from torch.utils.data import DataLoader

from lethe.calculus.domains import require_count, require_positive
from lethe.errors import InputError, LetheWarning
from lethe.errors.names import answering
from lethe.integrations.lightning.refusals import Callback, begin_alike, refuse_optimizers, refuse_trainer
from lethe.integrations.lightning.steps import Patches, PrivateSteps, StepLosses
from lethe.integrations.training import LogicalBatch, LogicalBatches, PlannedTraining, RecordedTraining, Target
from lethe.run.participation import Neighbours
from lethe.run.run import Run
from lethe.train import Checkpoints, Group, PrivacyEngine, TrainOptions
from lethe.train.callbacks.ledger_callback import Spender
from lethe.train.data.foreign_order import refuse_foreign_order
from lethe.train.data.loaders import records_of
from lethe.train.data.sources import Source, fields_of
from lethe.train.data.users import ids_of

_ELSEWHERE = {
    **dict.fromkeys(("epochs", "passes"), "L.Trainer(max_epochs=..., callbacks=[private])"),
    **dict.fromkeys(("steps", "max_steps"), "L.Trainer(max_steps=..., callbacks=[private])"),
    **dict.fromkeys(
        ("batch_size", "physical_size", "max_physical_batch_size"),
        "DataLoader(dataset, batch_size=...), and L.Trainer(accumulate_grad_batches=...) where a step has more records than fit at once",
    ),
    "noise_multiplier": "PrivateTraining(run=lethe.Run(noise_multiplier=..., ...), delta=...); with epsilon the noise is found",
}
"""What others take here, and Lightning or the run says."""


class PrivateTraining(RecordedTraining, Callback):
    r"""Trains a LightningModule privately, by its own `training_step`, with `L.Trainer(callbacks=[PrivateTraining(...)])`.

        private = PrivateTraining(epsilon=3.0, delta=1e-5, clip_norm=1.0)
        trainer = L.Trainer(max_epochs=10, callbacks=[private])
        trainer.fit(module, loader)
        private.certificate_

    Each step takes a batch of about the loader's batch_size x accumulate_grad_batches records a process, of which the first factor are on
    its device at once (with `users`, both count users): an epoch holds each record once, in a step drawn anew and in secret, and drops
    none (random allocation). A step clips each record's gradient; adds noise; and lets the module's
    optimiser and schedule do the rest, once each step. Data set and collate function of the train loader are used; its sampler is not.
    max_epochs and max_steps say how many steps the run has. A Trainer that ends earlier is certified for all of them. gradient_clip_val
    clips the *noisy* gradient, which costs nothing.

    `training_step` returns one loss a record, shape (B,): `reduction="none"`. If it returns one number, as most do, each record passes
    through it alone, which is as exact and slower. It is called on parts of batches as well, and more than once. What it logs is not
    logged, since it is computed of private records. `epsilon`, what is spent so far, is logged in its place. What validation shows is
    covered as far as its data are not private.

    In several processes, one for each device (`strategy="ddp"`), each clips its share of every batch, and process 0 adds the noise, once.
    No DistributedDataParallel is made; all processes begin with the weights of process 0, as under it.

    Refused, by name and with the reason: other strategies, float16 with loss scaling, manual optimisation, compiled modules, callbacks that
    change parameters, trial runs on the private records, and whatever else would break privacy.

    Args:
        epsilon: what the whole training may cost at `delta`, every iterate released; other batches are said in a `run`.
        delta: in (0, 1), and below 1/records.
        allow_large_delta: whether a delta of 1/records or more is meant; the certificate then says so.
        clip_norm: the norm that each record's gradient is clipped to.
        run: instead of epsilon and clip_norm: any run that `PrivacyEngine` takes; the Trainer must take as many steps.
        neighbours: with epsilon: "add_or_remove", as other libraries count; "replace_one" or "zero_out" keep the number of records public.
        checkpoints: a folder, as private as the data, in which training is kept whenever the Trainer saves a checkpoint; needed to go on
            with `trainer.fit(module, ckpt_path=...)`. Steps whose noise may have been drawn count, and are not taken again.
        log_private: whether the mean loss of each step's records is logged, as train_loss. Such a log may not be published.
        declared_apart: declares that the collate function makes each row of its own record, and of random numbers that are its own.
        clip_groups, method, secure, isolation, seed, gradient_memory, users, records_per_user, views, ema, ledger: as of `TrainOptions`.
            With users, batch sizes and epochs count them, a `run` is of unit user, and the module is not given a column that names them.
    Raises:
        InputError: arguments that cannot be used; when training begins, a Trainer or a module that cannot be trained.
        CalibrationError: no noise meets the target.
    """

    _TRAIN = "trainer.fit"

    @answering(_ELSEWHERE)
    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        allow_large_delta: bool = False,
        clip_norm: float | None = None,
        run: Run | None = None,
        neighbours: Neighbours = "add_or_remove",
        users: Any = None,
        records_per_user: int | None = None,
        checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
        log_private: bool = False,
        declared_apart: bool = False,
        clip_groups: Sequence[Group] | str | None = None,
        method: str | None = None,
        secure: bool = False,
        isolation: str = "checked",
        seed: int | None = None,
        gradient_memory: int | None = None,
        views: int = 1,
        ema: float | None = None,
        ledger: Spender | None = None,
    ) -> None:
        super().__init__()
        arguments: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "run": run, "neighbours": neighbours}
        self._target = Target(call="PrivateTraining(...)", allow_large_delta=allow_large_delta, **arguments)
        self._clip_norm, self._log_private, self._declared_apart = clip_norm, log_private, declared_apart
        for name, value in (("epsilon", epsilon), ("clip_norm", clip_norm)):
            if value is not None:
                require_positive(name, value)
        self._users, self._read = users, {"records_per_user": records_per_user, "views": require_count("views", views)}
        self._patches = Patches()
        self._kept = None if checkpoints is None else Checkpoints.of(checkpoints)
        self._own_rhythm = isinstance(checkpoints, Checkpoints)
        self._options: dict[str, Any] = {"clip_groups": clip_groups, "method": method, "secure": secure, "isolation": isolation}
        self._options |= {"seed": seed, "gradient_memory": gradient_memory, "ema": ema, "ledger": ledger}
        self._steps: PrivateSteps | None = None
        self._before: tuple[Any, ...] = ()
        self._plan: PlannedTraining | None = None
        self._restored = False

    @property
    def run(self) -> Run:
        """The run that is carried out, with its noise."""
        if self._plan is None:
            raise InputError("run: there is none before training begins.", remedy="call trainer.fit first.")
        return self._plan.run if self.engine is None else self.engine.run

    # What Lightning calls.

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what cannot be trained, before anything is.

        Args:
            trainer, pl_module: of Lightning.
            stage: what the Trainer is about to do; only "fit" trains.
        """
        if stage != "fit":
            return
        if self.engine is not None:
            raise InputError("PrivateTraining: this one has trained.", remedy="make another one; it is another run, and its cost adds up.")
        refuse_trainer(trainer, pl_module, log_private=self._log_private)
        if isinstance(loader := trainer.fit_loop._data_source.instance, DataLoader):
            refuse_foreign_order(loader)  # before a schedule asks for a number of steps, of which some loaders know none
        if hasattr(trainer.strategy, "configure_ddp"):  # the module is left bare where ddp would wrap it
            self._patches.put(trainer.strategy, "configure_ddp", lambda: begin_alike(trainer.strategy.lightning_module))

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Put the run's logical batches in the place of the train loader."""
        loop = trainer.fit_loop
        loader = loop._data_source.dataloader()
        if not isinstance(loader, DataLoader):
            raise InputError(
                f"train_dataloaders: got {type(loader).__name__}; it needs one DataLoader.",
                source="trainer.fit, train_dataloader",
                remedy="give DataLoader(dataset, batch_size=..., collate_fn=...) of all private records.",
            )
        refuse_foreign_order(loader)
        column = (self._users,) if isinstance(self._users, str) else ()
        self._source: Source = records_of(loader, leave_out=column, declared_apart=self._declared_apart)
        self._ids = ids_of(self._users, loader)
        self._plan = self._planned(trainer, loader)
        refuse_optimizers(trainer, log_private=self._log_private)
        self._batches = LogicalBatches(cast(Any, self._source), self._plan.steps_per_epoch)
        self._before = (trainer, trainer.accumulate_grad_batches, loop._data_source)
        loop._data_source = dataclasses.replace(loop._data_source, instance=self._batches, name="")
        loop._combined_loader = None  # a schedule that asked for the number of steps has loaded the plain one
        trainer.accumulate_grad_batches = 1

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the engine, and put it where training was."""
        assert self._plan is not None
        done, optimizer = trainer.global_step, trainer.optimizers[0]
        if done and (self._kept is None or not self._restored):
            raise InputError(
                f"ckpt_path: {done} steps were taken before, and there is no record here of their noise.",
                source="ckpt_path, PrivateTraining(checkpoints=...)",
                remedy="give PrivateTraining the checkpoints folder of that training; to start anew from its weights: "
                "Module.load_from_checkpoint(path).",
            )
        losses = StepLosses(trainer, pl_module, named=fields_of(self._source) is not None)
        settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        every = self._plan.run.total_steps if not self._own_rhythm else None
        checkpoints = self._kept if self._kept is None or every is None else dataclasses.replace(self._kept, every=every)
        read = {"users": self._ids, **self._read}
        options = TrainOptions(physical_size=self._plan.physical_size, checkpoints=checkpoints, **self._options, **read)
        engine = PrivacyEngine(pl_module, optimizer, losses, self._source, self._plan.run, options=options)
        self.engine = engine
        if engine.steps and not done:
            raise InputError(
                f"fit: {engine.steps} steps of this run were taken before, in {self._folder}; they are released and count.",
                source="PrivateTraining(checkpoints=...)",
                remedy='trainer.fit(module, ckpt_path="last") goes on; another folder begins another run, whose cost adds up.',
            )
        # Schedules are where the Trainer's own checkpoint was, and go on from there with the steps that were lost.
        for group, setting in zip(optimizer.param_groups, settings, strict=True):
            group.update(setting)
        lost = engine.steps - done
        if lost < 0:
            raise InputError(
                f"ckpt_path: its {done} steps are more than the {engine.steps} in {self._folder}: it is another training's.",
                remedy="give the checkpoint and the folder of one training.",
            )
        if lost:
            warnings.warn(
                LetheWarning(
                    f"steps {done + 1} to {engine.steps} were released and are not in ckpt_path: they count, and training goes on after "
                    "them."
                ),
                stacklevel=2,
            )
        self._batches.open(engine, done)
        strategy = trainer.strategy
        add_up = None if trainer.world_size == 1 else lambda total: strategy.reduce(total, reduce_op="sum")

        def gradient(batch: LogicalBatch) -> Tensor | None:
            return self._noisy_gradient(batch, self._log_private, add_up, strategy.root_device)

        self._steps = PrivateSteps(losses, gradient, lost=lost)
        self._steps.put_on(self._patches, pl_module, optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log what is spent so far.

        Args: as `PrivateTraining.setup`.
        """
        if self._steps is not None and self._steps.mean_loss is not None:
            pl_module.log("train_loss", self._steps.mean_loss, prog_bar=True)
        if trainer.global_step % trainer.log_every_n_steps == 0 or trainer.is_last_batch:
            pl_module.log("epsilon", self._epsilon(), prog_bar=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Record what was trained, and leave module and optimiser as they were."""
        self._batches.drain()
        self._patches.take_off()
        self._record = self._engine.record()
        self._engine.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave module and optimiser as they were.

        Args: as `PrivateTraining.setup`.
        """
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave Trainer, module and optimiser as they were.

        Args: as `PrivateTraining.setup`.
        """
        self._patches.take_off()
        if self.engine is not None:
            self.engine.close()
        if self._before:
            trainer_before, accumulated, source = self._before
            trainer_before.accumulate_grad_batches, trainer_before.fit_loop._data_source, self._before = accumulated, source, ()

    def state_dict(self) -> dict[str, Any]:
        """How many steps were taken: what else belongs to a checkpoint is private, and lies in the folder of `checkpoints`."""
        return {} if self.engine is None else {"steps": self.engine.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Note that there was a private training."""
        self._restored = "steps" in state_dict

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the private part of the training as well; what is public of it is in `state_dict`.

        Args: as `PrivateTraining.setup`.
        """
        if self.engine is not None and self._kept is not None and self._record is None and self.run.noise_at == "every_step":
            self.engine.save()

    @property
    def _folder(self) -> str:
        return "" if self._kept is None else os.fspath(self._kept.folder)

    def _planned(self, trainer: Any, loader: DataLoader[Any]) -> PlannedTraining:
        """The run of a Trainer: a batch is the loader's batch_size x accumulate_grad_batches, and T is max_steps, or max_epochs."""
        run, norm, accumulated = self._target.run, self._clip_norm, int(trainer.accumulate_grad_batches)
        if run is None and norm is None:
            raise InputError(
                "clip_norm: none was given; it needs the norm that each record's gradient is clipped to.",
                remedy="PrivateTraining(epsilon=3.0, delta=1e-5, clip_norm=1.0).",
            )
        sizes = (int(loader.batch_size or 1), accumulated, trainer.world_size)
        groups = trainer.optimizers[0].param_groups if trainer.optimizers else []
        rate = groups[0]["lr"] if groups else None  # without an optimiser, which is refused in a moment, there is one of no parameters
        plan = self._target.planned(len(self._source), sizes, partial(_steps, trainer), rate, clip_norm=norm, users=self._ids)
        if run is None:
            return plan
        steps, size = _steps(trainer, plan.steps_per_epoch), math.prod(sizes)
        for name, value, planned_value, agrees in (
            ("clip_norm", norm, run.clip_norm, norm in (None, run.clip_norm)),
            ("accumulate_grad_batches", accumulated, f"{run.batch_size} {run.unit}s a step", accumulated == 1 or size == run.batch_size),
        ):
            if not agrees:
                raise InputError(
                    f"{name}: got {value!r}; the run says {planned_value}.",
                    source="Trainer, run",
                    remedy="leave it out: the run's is used.",
                )
        if steps != run.total_steps:
            raise InputError(
                f"max_steps: the Trainer takes {steps} steps; the run says {run.total_steps}.",
                source=f"max_steps and max_epochs of the Trainer, with {plan.steps_per_epoch} steps an epoch",
                remedy=f"Trainer(max_steps={run.total_steps}, max_epochs=-1).",
            )
        return plan


def _steps(trainer: Any, per_epoch: int) -> int:
    """How many logical batches max_steps and max_epochs allow; an error where neither does."""
    most_steps, most_epochs = trainer.max_steps, trainer.max_epochs
    limits = [*([most_steps] if most_steps != -1 else []), *([most_epochs * per_epoch] if most_epochs not in (None, -1) else [])]
    if not limits or min(limits) < 1:
        raise InputError(
            f"max_epochs: got {most_epochs}, max_steps: {most_steps}; it needs to be known how long training lasts, at most.",
            source="the noise, and what is spent, follow from the number of steps",
            remedy="Trainer(max_epochs=...), or Trainer(max_steps=...).",
        )
    return min(limits)
