"""PrivateTrainer: transformers.Trainer, whose steps are those of a PrivacyEngine."""

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

from transformers import TrainerCallback
from transformers.trainer_utils import TrainOutput

from lethe.errors import InputError, require_finite
from lethe.integrations.training import LogicalBatches, Target
from lethe.integrations.transformers.arguments import (
    TRAINING,
    Known,
    refuse_arguments,
    refuse_evaluated,
    refuse_surroundings,
    refuse_unknown,
)
from lethe.integrations.transformers.loop import PRIVATE, PrivateLoop
from lethe.integrations.transformers.losses import criterion_of, refuse_other_loss
from lethe.integrations.transformers.records import (
    KeptState,
    add_certificate,
    caught_up,
    checkpoints_of,
    refuse_begun,
    refuse_earlier,
    source_of,
)
from lethe.run.participation import Neighbours
from lethe.run.run import Run
from lethe.train import Checkpoints, Group, PrivacyEngine, TrainOptions
from lethe.train.callbacks.paying import Spender
from lethe.train.data.users import ids_of

_DATASET = 3  # the place of train_dataset among the arguments of a Trainer


class PrivateTrainer(PrivateLoop):
    r"""`transformers.Trainer` that trains privately: the same arguments, and (epsilon, delta) or a Run.

        trainer = PrivateTrainer(model=model, args=args, train_dataset=dataset, epsilon=3.0, delta=1e-5)
        trainer.train()
        trainer.certificate_

    Each step takes a batch of about per_device_train_batch_size x gradient_accumulation_steps records a process, of which the first factor
    are on its device at once (with `users`, both count users): an epoch holds each record once, in a step drawn anew and in secret, and
    drops none (random allocation). A step clips each record's gradient to max_grad_norm, which is *not*
    applied to the noisy mean; adds noise; and lets optimiser and schedule do the rest. A record's loss is normalised by its own tokens,
    never by those of the batch (`num_items_in_batch` is not used). It is the model's own loss of the record alone, which is compared
    before training.

    Not logged, unless asked for: the training loss and how long training took, which no certificate covers. `epsilon`, what is spent so
    far, is logged in their place. What evaluation shows is covered as far as eval_dataset is not private.

    Arguments that would break privacy, or that are not honoured, are refused by name. `checkpoint-N` holds a released iterate; a folder
    beside output_dir, OUTPUT_DIR.private, holds what training goes on from (`train(resume_from_checkpoint=True)`), and is as private as the
    data. Batches and noise are drawn from fresh entropy; `seed` is for initialisation and dropout.

    Args:
        args: positional arguments of the Trainer, in its order.
        epsilon: what the whole training may cost at `delta`, every iterate released; other batches are said in a `run`.
        delta: in (0, 1), and below 1/records.
        allow_large_delta: whether a delta of 1/records or more is meant; the certificate then says so.
        run: instead of epsilon: any run that `PrivacyEngine` takes.
        neighbours: with epsilon: "add_or_remove", as other libraries count; "replace_one" or "zero_out" keep the number of records public.
        compute_loss_func: as of the Trainer, to one loss a record. A `compute_loss` that is overridden must return that, too.
        log_private: whether training loss and times are logged. Such a log may not be published.
        declared_apart: declares that the data collator makes each row of its own record and of random numbers that are its own; needed
            where it is random, as for masked language models.
        checkpoints: where training is kept, instead of OUTPUT_DIR.private.
        clip_groups, method, secure, isolation, gradient_memory, users, records_per_user, views, ema, ledger: as of `TrainOptions`; with
            users, batch sizes and epochs count them, and a `run` is of unit user.
        noisy_grad_norm: clips the noisy mean gradient to this norm, as the Trainer does by max_grad_norm; it costs no privacy.
        others: arguments of the Trainer by name.
    Raises:
        InputError: arguments that cannot be used.
        CalibrationError: no noise meets the target.
    """

    _KNOWN: ClassVar[Known] = TRAINING
    _TRAIN = "trainer.train()"

    def __init__(
        self,
        *args: Any,
        epsilon: float | None = None,
        delta: float | None = None,
        allow_large_delta: bool = False,
        run: Run | None = None,
        neighbours: Neighbours = "add_or_remove",
        users: Any = None,
        records_per_user: int | None = None,
        log_private: bool = False,
        declared_apart: bool = False,
        checkpoints: Checkpoints | str | os.PathLike[str] | None = None,
        clip_groups: Sequence[Group] | str | None = None,
        method: str | None = None,
        secure: bool = False,
        isolation: str = "checked",
        gradient_memory: int | None = None,
        views: int = 1,
        ema: float | None = None,
        ledger: Spender | None = None,
        noisy_grad_norm: float | None = None,
        **others: Any,
    ) -> None:
        refuse_unknown(type(self), others)
        given = others.get("args", args[1] if len(args) > 1 else None)
        if given is not None:
            refuse_arguments(given, self._KNOWN)
        own: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "run": run, "neighbours": neighbours}
        self._target = Target(call="PrivateTrainer(...)", allow_large_delta=allow_large_delta, **own)
        dataset = others.get("train_dataset", next(iter(args[_DATASET:]), None))
        self._users = ids_of(users, dataset)  # before columns that the model does not take are dropped
        self._noisy_norm = None if noisy_grad_norm is None else require_finite("noisy_grad_norm", noisy_grad_norm, low=0.0, strict=True)
        super().__init__(*args, **others)
        refuse_arguments(self.args, self._KNOWN)
        refuse_surroundings(self)
        refuse_evaluated(self.train_dataset, self.eval_dataset)
        self._log_private, self._declared_apart, self._kept = log_private, declared_apart, checkpoints
        self._options: dict[str, Any] = {"clip_groups": clip_groups, "method": method, "secure": secure, "isolation": isolation}
        self._options |= {"gradient_memory": gradient_memory, "ledger": ledger, "ema": ema}
        self._options |= {"users": self._users, "records_per_user": records_per_user, "views": views}
        self._plan, self._criterion, self._recording, self._resume = None, None, False, False
        if self.train_dataset is not None:
            self._planned  # noqa: B018  # what contradicts is refused before training

    def train(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, ignore_keys_for_eval: list[str] | None = None
    ) -> TrainOutput:
        """Train to the end of the run, once.

        Args:
            resume_from_checkpoint: True: go on where this training was killed.
            trial: of a search for hyperparameters: refused.
            ignore_keys_for_eval: as of the Trainer.
        Raises:
            InputError: a second training, or arguments that cannot be used.
            HypothesisError, LetheError: see `PrivacyEngine`.
        """
        if trial is not None:
            self.hyperparameter_search()
        if self.engine is not None:
            raise InputError("train: this trainer has trained.", remedy="make another one; it is another run, and its cost adds up.")
        refuse_arguments(self.args, self._KNOWN)
        folder = self._folder()
        self._resume = refuse_earlier(resume_from_checkpoint, self.args, folder)
        try:
            with self._one_batch_a_step():
                output = super().train(ignore_keys_for_eval=ignore_keys_for_eval)
        finally:
            if self.engine is not None:
                self.engine.close()
        if self._log_private:
            return output
        return TrainOutput(output.global_step, math.nan, {key: value for key, value in output.metrics.items() if key not in PRIVATE})

    def hyperparameter_search(self, *args: Any, **others: Any) -> Any:
        """Refused: every trial is a training of its own, and their costs add up."""
        raise InputError(
            "hyperparameter_search: every trial is a training on the private records, and their costs add up.",
            remedy="choose by public data, or plan for the number of trials: lethe.total of their certificates.",
        )

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> tuple[Any, Any]:
        with self._without_reducer():
            model, batches = super()._prepare_for_training(max_steps, train_dataloader, None)
        self._open(batches)
        return model, batches

    def _open(self, batches: LogicalBatches) -> None:
        """Make the engine, and put the Trainer where its checkpoint was."""
        optimizer, model = cast(Any, self.optimizer), cast(Any, self.model)
        source = source_of(self, declared_apart=self._declared_apart)
        self._criterion = self._own_criterion(model)
        if type(self).compute_loss is PrivateTrainer.compute_loss and self.compute_loss_func is None:
            own = super().compute_loss
            refuse_other_loss(self._losses, lambda batch: own(model, batch), model, source, half=self.accelerator.mixed_precision == "bf16")
        kept = checkpoints_of(self._kept, self.args)
        if kept is not None:
            kept = dataclasses.replace(kept, also={**kept.also, "scheduler": self.lr_scheduler, "trainer": KeptState(self)})
        options = TrainOptions(physical_size=self._planned.physical_size, checkpoints=kept, **self._options)
        engine = PrivacyEngine(model, optimizer, self._losses, source, self._planned.run, options=options)
        self.engine, self._batches = engine, batches
        refuse_begun(engine.resumed, self._resume, self._folder())
        caught_up(self.lr_scheduler, engine.steps - self.state.global_step)
        self.state.global_step = engine.steps
        batches.open(engine)
        self.callback_handler.callbacks.insert(0, _Epochs(len(batches)))

    def _own_criterion(self, model: Any) -> Any:
        """The loss of each record."""
        return criterion_of(model, self.args.label_smoothing_factor, self.compute_loss_func)

    def create_model_card(self, *args: Any, **others: Any) -> None:
        """The Trainer's model card, with the certificate in its metadata and below, once training is over."""
        super().create_model_card(*args, **others)
        if self._record is not None and self.is_world_process_zero():
            add_certificate(Path(str(self.args.output_dir)) / "README.md", self.certificate_)

    @contextmanager
    def _one_batch_a_step(self) -> Iterator[None]:
        """Within: the Trainer takes a logical batch for one that need not be accumulated, and as many steps as the run has."""
        args, said = self.args, (self.args.gradient_accumulation_steps, self.args.max_steps)
        args.gradient_accumulation_steps, args.max_steps = 1, self._planned.run.total_steps
        try:
            yield
        finally:
            args.gradient_accumulation_steps, args.max_steps = said


class _Epochs(TrainerCallback):
    """Says how far training is, also where it was taken up again."""

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        state.epoch = state.global_step / self._steps_per_epoch
