"""PrivateTraining: the callback of Lightning by which a module's automatic optimisation takes the steps of a PrivacyEngine."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor
from torch.utils.data import DataLoader

from lethe.calculus.domains import require_count, require_positive
from lethe.calculus.large_delta import open_delta
from lethe.documents.synonyms import answering
from lethe.errors import InputError, LetheWarning
from lethe.integrations.lightning.package import Callback
from lethe.integrations.lightning.patches import Patches
from lethe.integrations.lightning.planning import planned
from lethe.integrations.lightning.processes import without_reducer
from lethe.integrations.lightning.refusals import refuse_optimizers, refuse_trainer
from lethe.integrations.lightning.step_losses import StepLosses
from lethe.integrations.lightning.steps import PrivateSteps
from lethe.integrations.logical_batches import LogicalBatches
from lethe.integrations.recorded_training import PlannedTraining, RecordedTraining
from lethe.run.neighbours import Neighbours
from lethe.run.run import Run
from lethe.train import Checkpoints, Group, PrivacyEngine, TrainOptions
from lethe.train.callbacks.paying import Spender
from lethe.train.data.loaders import records_of, refuse_own_batches
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

    Each step takes a Poisson batch of the loader's batch_size x accumulate_grad_batches records a process (expected), of which the first
    factor are on its device at once (with `users`, both count users); clips each record's gradient; adds noise; and lets the module's
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
        epsilon: what the whole training may cost at `delta`, for Poisson batches and every iterate released.
        delta: in (0, 1), and below 1/records.
        allow_large_delta: whether a delta of 1/records or more is meant; the certificate then says so.
        clip_norm: the norm that each record's gradient is clipped to.
        run: instead of epsilon and clip_norm: any run that `PrivacyEngine` takes; the Trainer must take as many steps.
        neighbours: with epsilon: "add_or_remove", as other libraries count; "replace_one" or "zero_out" keep the number of records public.
        users: the unit of privacy is then a user: the id of each record's user, or the name of the column that holds them, which the
            module is not given (where a collate function reads it, take it out there). A user's gradient is that of the mean loss of its
            records, clipped once; batch sizes and epochs count users. The unit of a `run` is then user.
        records_per_user: at most so many of a user's records, at random, take part in a step; None: all of them.
        checkpoints: a folder, as private as the data, in which training is kept whenever the Trainer saves a checkpoint; needed to go on
            with `trainer.fit(module, ckpt_path=...)`. Steps whose noise may have been drawn count, and are not taken again.
        log_private: whether the mean loss of each step's records is logged, as train_loss. Such a log may not be published.
        declared_apart: declares that the collate function makes each row of its own record, and of random numbers that are its own.
        clip_groups, method, secure, isolation, seed, gradient_memory: as of `PrivacyEngine`.
        views: how often each record is read and collated in a step, where the data set augments at random: a record's gradient is that of
            the mean loss of its views, clipped once. The loader's batch_size still counts records.
        ema: of the iterates' moving average, such as 0.999: `private.averaged` after training, a state dict that the certificate covers.
        ledger: what pays for the training: `lethe.ledger.Spending(ledger, "patients")`; reserved before it begins, and settled with the
            recorded run.
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
        if delta is None:
            raise InputError("delta: none was given.", remedy="PrivateTraining(epsilon=3.0, delta=1e-5, clip_norm=1.0); below 1/records.")
        if (epsilon is None) == (run is None):
            raise InputError(
                f"epsilon: got {epsilon!r}, run: {'none' if run is None else 'a run'}; it needs one of them.",
                remedy="PrivateTraining(epsilon=3.0, delta=1e-5, clip_norm=1.0), or PrivateTraining(run=run, delta=1e-5).",
            )
        self._delta, self._allow_large_delta = open_delta(delta), allow_large_delta
        self._log_private, self._declared_apart = log_private, declared_apart
        for name, value in (("epsilon", epsilon), ("clip_norm", clip_norm)):
            if value is not None:
                require_positive(name, value)
        self._target: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "allow_large_delta": allow_large_delta, "run": run}
        self._target |= {"clip_norm": clip_norm, "neighbours": neighbours}
        self._users, self._read = users, {"records_per_user": records_per_user, "views": require_count("views", views)}
        self._patches = Patches()
        self._kept = None if checkpoints is None else Checkpoints.of(checkpoints)
        self._own_rhythm = isinstance(checkpoints, Checkpoints)
        self._options: dict[str, Any] = {"clip_groups": clip_groups, "method": method, "secure": secure, "isolation": isolation}
        self._options |= {"seed": seed, "gradient_memory": gradient_memory, "ema": ema, "ledger": ledger}
        self._steps: PrivateSteps | None = None
        self._before: tuple[Any, ...] = ()
        self._plan: PlannedTraining | None = None
        self.engine: PrivacyEngine | None = None
        self._restored = False

    @property
    def run(self) -> Run:
        """The run that is carried out, with its noise."""
        if self._plan is None:
            raise InputError("run: there is none before training begins.", remedy="call trainer.fit first.")
        return self._plan.run if self.engine is None else self.engine.run

    @property
    def averaged(self) -> dict[str, Tensor] | None:
        """The module's state dict with the moving average of the iterates so far, for `load_state_dict`; None without `ema`, or steps."""
        return None if self.engine is None else self.engine.averaged

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
            refuse_own_batches(loader)  # before a schedule asks for a number of steps, of which some loaders know none
        without_reducer(self._patches, trainer.strategy)

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
        refuse_own_batches(loader)
        column = (self._users,) if isinstance(self._users, str) else ()
        self._source: Source = records_of(loader, leave_out=column, declared_apart=self._declared_apart)
        self._ids = ids_of(self._users, loader)
        self._plan = planned(trainer, loader, len(self._source), users=self._ids, **self._target)
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
        kept = self._kept if self._kept is None or every is None else dataclasses.replace(self._kept, every=every)
        read = {"users": self._ids, **self._read}
        options = TrainOptions(physical_size=self._plan.physical_size, checkpoints=kept, **self._options, **read)
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
        self._batches.open(engine, engine.deliver(), done)
        self._steps = PrivateSteps(engine, losses, lost=lost, log_private=self._log_private)
        self._steps.put_on(trainer, pl_module, optimizer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log what is spent so far.

        Args:
            trainer, pl_module: of Lightning.
            outputs, batch, batch_idx: not used.
        """
        if self._steps is not None and self._steps.mean_loss is not None:
            pl_module.log("train_loss", self._steps.mean_loss, prog_bar=True)
        if trainer.global_step % trainer.log_every_n_steps == 0 or trainer.is_last_batch:
            pl_module.log(
                "epsilon",
                self._engine.epsilon(self._delta, steps_fixed_in_advance=True, allow_large_delta=self._allow_large_delta),
                prog_bar=True,
            )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Record what was trained, and leave module and optimiser as they were."""
        self._batches.drain()
        assert self._steps is not None
        self._steps.take_off()
        self._record = self._engine.record()
        self._engine.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave module and optimiser as they were.

        Args:
            trainer, pl_module: of Lightning.
            exception: not used.
        """
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Leave Trainer, module and optimiser as they were.

        Args:
            trainer, pl_module: of Lightning.
            stage: not used.
        """
        self._patches.take_off()
        if self._steps is not None:
            self._steps.take_off()
        if self.engine is not None:
            self.engine.close()
        if self._before:
            told, accumulated, source = self._before
            told.accumulate_grad_batches, told.fit_loop._data_source, self._before = accumulated, source, ()

    def state_dict(self) -> dict[str, Any]:
        """How many steps were taken: what else belongs to a checkpoint is private, and lies in the folder of `checkpoints`."""
        return {} if self.engine is None else {"steps": self.engine.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Note that there was a private training."""
        self._restored = "steps" in state_dict

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Keep the private part of the training as well.

        Args:
            trainer, pl_module: of Lightning.
            checkpoint: not used; what is public of this is in `state_dict`.
        """
        if self.engine is not None and self._kept is not None and self._record is None and self.run.noise_at == "every_step":
            self.engine.save()

    @property
    def _folder(self) -> str:
        return "" if self._kept is None else os.fspath(self._kept.folder)

    @property
    def _engine(self) -> PrivacyEngine:
        assert self.engine is not None
        return self.engine
