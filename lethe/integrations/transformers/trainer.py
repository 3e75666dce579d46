"""privatize: makes of a class or an object of any of transformers' Trainers one whose steps are those of a PrivacyEngine. Users call it;
`PrivacyMixin` takes its arguments, makes the engine and the record, and `PrivateLoop` (loop.py) the steps.
"""

import dataclasses
import inspect
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import TrainOutput

from lethe.certificates.records import HypothesisClaim
from lethe.errors import InputError, require_finite
from lethe.integrations.training import LogicalBatches, RecordedTraining, Target
from lethe.integrations.transformers.arguments import refuse_arguments, refuse_evaluated, refuse_surroundings, refuse_unknown
from lethe.integrations.transformers.loop import PrivateLoop, PublicLog, public
from lethe.integrations.transformers.models import prepared, quantised, refuse_kind, refuse_prepared
from lethe.integrations.transformers.on_policy import Answers, is_on_policy, refuse_of_batch
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
from lethe.train.callbacks.ledger_callback import Spender
from lethe.train.core.training_records import released_states
from lethe.train.data.users import ids_of

_PUBLIC_EVALUATION = "of the iterates, all released, the one that is best by {metric} on eval_dataset, which is public"


class PrivacyMixin(PrivateLoop):
    """What `privatize` puts before the Trainer's class: it takes the arguments of both."""

    _TRAIN = "trainer.train()"

    def __init__(self, *args: Any, **options: Any) -> None:
        privacy = {name: options.pop(name) for name in _PRIVACY if name in options}
        refuse_unknown(type(self), options, _PRIVACY)
        parent_init = type(self).__mro__[type(self).__mro__.index(RecordedTraining) + 1].__init__
        names = [name for name in inspect.signature(parent_init).parameters if name != "self"]
        arguments = {**dict(zip(names, args, strict=False)), **options}
        if arguments.get("args") is not None:
            refuse_arguments(arguments["args"])
        dataset = arguments.get("train_dataset")
        refuse_evaluated(dataset, arguments.get("eval_dataset"))
        super().__init__(**arguments)
        self._be_private(dataset, **privacy)

    def _be_private(
        self,
        dataset: Any,
        *,
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
    ) -> None:
        """Take what is asked for; `dataset` is that which the user gave."""
        target_fields: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "run": run, "neighbours": neighbours}
        self._target = Target(call=f"{type(self).__name__}(...)", allow_large_delta=allow_large_delta, **target_fields)
        self._users = ids_of(users, dataset)  # before columns that the model does not take are dropped
        self._noisy_norm = None if noisy_grad_norm is None else require_finite("noisy_grad_norm", noisy_grad_norm, low=0.0, strict=True)
        refuse_arguments(self.args)
        refuse_surroundings(self)
        refuse_evaluated(self.train_dataset, self.eval_dataset)
        refuse_prepared(self, dataset)
        if is_on_policy(self):
            refuse_of_batch(self)
        self._log_private, self._declared_apart, self._checkpoints = log_private, declared_apart, checkpoints
        self._options: dict[str, Any] = {"clip_groups": clip_groups, "method": method, "secure": secure, "isolation": isolation}
        self._options |= {"gradient_memory": gradient_memory, "ledger": ledger, "ema": ema}
        self._options |= {"users": self._users, "records_per_user": records_per_user, "views": views}
        self._plan, self._resume = None, False
        prepared(cast(Any, self.model))
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
        refuse_arguments(self.args)
        folder = self._folder()
        self._resume = refuse_earlier(resume_from_checkpoint, self.args, folder)
        try:
            with self._one_batch_a_step():
                output = super().train(ignore_keys_for_eval=ignore_keys_for_eval)
        finally:
            if self.engine is not None:
                self.engine.close()
        return output if self._log_private else TrainOutput(output.global_step, math.nan, public(output.metrics))

    def hyperparameter_search(self, *args: Any, **options: Any) -> Any:
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
        if is_on_policy(self):
            self._collated = Answers(self)
            source = self._collated.source
        else:
            source, self._collated = source_of(self, declared_apart=self._declared_apart)
        if quantised(model):  # some of its layers store their weights elsewhere when they are called first
            parts = (part.to(self.args.device) for part in source.fetch(slice(0, 1)))
            with torch.no_grad():
                self._losses(self._on_device(dict(zip(source.fields or (), parts, strict=True))))
        checkpoints = checkpoints_of(self._checkpoints, self.args)
        if checkpoints is not None:
            checkpoints = dataclasses.replace(
                checkpoints, also={**checkpoints.also, "scheduler": self.lr_scheduler, "trainer": KeptState(self)}
            )
        options = TrainOptions(physical_size=self._planned.physical_size, checkpoints=checkpoints, **self._options)
        engine = PrivacyEngine(model, optimizer, self._losses, source, self._planned.run, options=options)
        self.engine, self._batches = engine, batches
        refuse_begun(engine.resumed, self._resume, self._folder())
        caught_up(self.lr_scheduler, engine.steps - self.state.global_step)
        self.state.global_step, self.state.epoch = engine.steps, engine.steps / len(batches)
        batches.open(engine)
        self.callback_handler.callbacks.insert(0, _Epochs(len(batches)))

    def _load_best_model(self) -> None:
        """As of the Trainer; the record then is of that iterate, and says by what it was chosen."""
        super()._load_best_model()
        assert self._record is not None
        chosen = HypothesisClaim("best model", _PUBLIC_EVALUATION.format(metric=self.args.metric_for_best_model))
        states = {"model": cast(Any, self.model).state_dict(), **({} if self.averaged is None else {"moving average": self.averaged})}
        self._record = dataclasses.replace(self._record, declared=(*self._record.declared, chosen), released=released_states(states))

    def create_model_card(self, *args: Any, **options: Any) -> None:
        """The Trainer's model card, with the certificate in its metadata and below, once training is over."""
        super().create_model_card(*args, **options)
        if self._record is not None and self.is_world_process_zero():
            add_certificate(Path(str(self.args.output_dir)) / "README.md", self.certificate_)

    def _send_telemetry(self) -> None:
        """TRL's telemetry, replaced: nothing is sent."""

    @contextmanager
    def _one_batch_a_step(self) -> Iterator[None]:
        """Within: the Trainer takes a logical batch for one that need not be accumulated, and as many steps as the run has."""
        args = self.args
        now = {"gradient_accumulation_steps": 1, "max_steps": self._planned.run.total_steps, "steps_per_generation": 1}
        saved = {name: getattr(args, name) for name in now if hasattr(args, name)}
        vars(args).update({name: now[name] for name in saved})
        try:
            yield
        finally:
            vars(args).update(saved)


_PRIVACY = tuple(inspect.signature(PrivacyMixin._be_private).parameters)[2:]


class _Epochs(TrainerCallback):
    """Says how far training is, also where it was taken up again."""

    def __init__(self, steps_per_epoch: int) -> None:
        self._steps_per_epoch = steps_per_epoch

    def on_step_end(self, args: Any, state: Any, control: Any, **options: Any) -> None:
        state.epoch = state.global_step / self._steps_per_epoch


def privatize(trainer: Any, **privacy: Any) -> Any:
    r"""Any of transformers' Trainers, or of TRL's, that trains privately: the same arguments, and (epsilon, delta) or a Run.

        trainer = privatize(trainer, epsilon=3.0, delta=1e-5)  # one that was made, and has not trained
        trainer = privatize(DPOTrainer)(model=model, args=args, train_dataset=dataset, epsilon=3.0, delta=1e-5)
        trainer.train()
        trainer.certificate_

    A record is a row of the data set: a text, a conversation, a pair of answers. Its loss is what `compute_loss` gives of that row alone,
    where `num_items_in_batch` is the number of its own labels that count. A `compute_loss` that is one number for a batch is taken for a
    mean over those labels or, if that is wrong, over records: some batches are compared with single records. Where it is neither, as with
    what is centred or sorted over the batch, records are computed one after another, which a warning says once. Of trainers that learn from
    answers of the model, such as GRPO, a record is a prompt; one at a time is answered, scored and differentiated.

    Each step takes a batch of about per_device_train_batch_size x gradient_accumulation_steps records a process, of which the first factor
    are on its device at once (with `users`, both count users): an epoch holds each record once, in a step drawn anew and in secret, and
    drops none (random allocation). A step clips each record's gradient to max_grad_norm, which is *not* applied to the noisy mean; adds
    noise; and lets optimiser and schedule do the rest.

    Not logged, unless asked for: what is computed of the training records, and how long training took, which no certificate covers.
    `epsilon`, what is spent so far, is logged in their place. What evaluation shows, or chooses (`load_best_model_at_end`), is covered as
    far as eval_dataset is public.

    `checkpoint-N` holds a released iterate; a folder beside output_dir, OUTPUT_DIR.private, holds what training goes on from
    (`train(resume_from_checkpoint=True)`), and is as private as the data. Batches and noise are drawn from fresh entropy; `seed` is for
    initialisation and dropout. With `torch_compile` evaluation is compiled, and training is not.

    Args:
        trainer: a class that derives from transformers' Trainer, or an object of one.
        epsilon: what the whole training may cost at `delta`, every iterate released; other batches are said in a `run`.
        delta: in (0, 1), and below 1/records.
        allow_large_delta: whether a delta of 1/records or more is meant; the certificate then says so.
        run: instead of epsilon: any run that `PrivacyEngine` takes.
        neighbours: with epsilon: "add_or_remove", as other libraries count; "replace_one" or "zero_out" keep the number of records public.
        log_private: whether what is private is logged. Such a log may not be published.
        declared_apart: declares that the data collator makes each row of its own record and of random numbers that are its own; needed
            where it is random, but for transformers' own for masked language models.
        checkpoints: where training is kept, instead of OUTPUT_DIR.private.
        clip_groups, method, secure, isolation, gradient_memory, users, records_per_user, views, ema, ledger: as of `TrainOptions`; with
            users, batch sizes and epochs count them, and a `run` is of unit user.
        noisy_grad_norm: clips the noisy mean gradient to this norm, as the Trainer does by max_grad_norm; it costs no privacy.
    Returns:
        A class, which takes the privacy's arguments beside the Trainer's, of a class; of an object that object.
    Raises:
        InputError: arguments, or a Trainer, that cannot be used.
        CalibrationError: no noise meets the target.
    """
    if isinstance(trainer, type):
        if privacy:
            raise InputError(
                f"privatize: got a class and {', '.join(privacy)}.", remedy=f"privatize({trainer.__name__})(..., epsilon=3.0, delta=1e-5)."
            )
        return _class_of(trainer)
    kind = _class_of(type(trainer))
    refuse_unknown(kind, [name for name in privacy if name not in _PRIVACY], _PRIVACY)
    if isinstance(trainer, PrivateLoop) or trainer.state.global_step:
        raise InputError("privatize: this trainer is private, or has trained.", remedy="make a new one, with the weights to begin from.")
    trainer.__class__ = kind
    trainer._be_private(trainer.train_dataset, **privacy)
    return trainer


@cache
def _class_of(kind: type) -> type:
    """The private class of a Trainer's class, made once by putting the private methods before its own."""
    if issubclass(kind, PrivateLoop):
        return kind
    refuse_kind(kind)
    bases = (PrivacyMixin, PublicLog) if kind is Trainer else (PrivacyMixin, kind, PublicLog)
    return type(f"Private{kind.__name__}", bases, {"__doc__": f"`privatize({kind.__name__})`", "__module__": kind.__module__})


PrivateTrainer = privatize(Trainer)
