"""The loop of transformers.Trainer, whose steps are those of a PrivacyEngine. `privatize` puts `PrivateLoop` before the Trainer's class;
the Trainer's own loop then calls these methods for batches, steps and logs.
"""

import copy
import math
import os
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import Trainer
from transformers.trainer_utils import TrainOutput

from lethe.errors import InputError
from lethe.integrations.training import LogicalBatch, LogicalBatches, PlannedTraining, RecordedTraining
from lethe.integrations.transformers.arguments import clip_norm_of, refuse_other_words, sizes_of
from lethe.integrations.transformers.losses import IGNORED, is_known_mean, loss_of
from lethe.integrations.transformers.on_policy import Answers, is_on_policy, sizes_of_prompts
from lethe.integrations.transformers.records import Collated, checkpoints_of
from lethe.run.run import Run
from lethe.train.clip.isolated import MeanLoss
from lethe.train.core.tensors import is_shard
from lethe.train.data.foreign_order import DESIGN, refuse_foreign_order

PUBLIC = ("epsilon", "learning_rate", "grad_norm", "epoch", "step")
"""What a log may hold of training, beside what evaluation says: all else the records themselves make, such as losses, and times."""
_NOTED = ("_metrics", "_stored_metrics", "_logs")  # where TRL's compute_loss notes what the log is to hold


def public(logs: Mapping[str, Any]) -> dict[str, Any]:
    """What of a log of training may be published."""
    return {key: value for key, value in logs.items() if key in PUBLIC or key.startswith(("eval", "test"))}


class PublicLog(Trainer):
    """Stands right before the Trainer, where a log has come through all that the classes between add to it."""

    _log_private: bool = False
    _recording: bool = False

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """What is public of training, and of losses that are computed for a noisy step nothing."""
        if self.is_in_train and not self._log_private:
            if self._recording:
                return
            logs = public(logs)
        super().log(logs, start_time)


class PrivateLoop(RecordedTraining, Trainer):
    """What the Trainer's own loop asks for, answered by an engine; see `privatize`, which makes it."""

    _batches: LogicalBatches
    _collated: Collated | Answers
    _checkpoints: Any
    _log_private: bool
    _noisy_norm: float | None
    _plan: PlannedTraining | None
    _recording: bool = False
    _users: Any

    @property
    def run(self) -> Run:
        """The run that is carried out, with its noise."""
        return self._planned.run if self.engine is None else self.engine.run

    def get_train_dataloader(self) -> Any:
        """The run's logical batches."""
        return LogicalBatches(cast(Any, self.train_dataset), self._planned.steps_per_epoch)

    def get_total_train_batch_size(self, args: Any) -> int:
        """The expected number of records of a step."""
        return self._planned.run.batch_size

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> tuple[list[Any], None]:
        """The next logical batch; how many items it holds is nobody's business.

        Args:
            epoch_iterator: over `LogicalBatches`.
            num_batches: 1.
            device: not used.
        """
        return [batch for batch in (next(epoch_iterator, None) for _ in range(num_batches)) if batch is not None], None

    def _get_num_items_in_batch(self, batch_samples: Any, device: Any) -> None:
        """None, in evaluation as well: by it, several processes would multiply the loss of many models by their number."""

    def training_step(self, model: Any, inputs: LogicalBatch, num_items_in_batch: Any = None) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The clipped and noised gradient of a logical batch.

        Args:
            model: that is trained.
            inputs: its micro-batches.
            num_items_in_batch: None.
        Returns:
            The mean loss, a scalar, where log_private asks for it; else 0.
        """
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            cast(Any, self.optimizer).train()
        several, device = self.args.world_size > 1, cast(torch.device, self.args.device)
        add_up = (lambda total: cast(Tensor, self.accelerator.reduce(total, "sum"))) if several else None
        with getattr(self, "maybe_activation_offload_context", None) or nullcontext():
            loss = self._noisy_gradient(inputs, self._log_private, add_up, device)
        return torch.zeros((), device=device) if loss is None else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """The Trainer's log, with the epsilon spent so far."""
        if self.is_in_train and self.engine is not None and "learning_rate" in logs:
            logs["epsilon"] = self._epsilon()
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Any) -> int:
        """Of the training nothing: it depends on how many records a batch has."""
        return 0 if isinstance(inputs, LogicalBatch) else super().floating_point_ops(inputs)

    def _clip_grad_norm(self, model: Any) -> None:
        """Nothing: max_grad_norm is the norm of each record's gradient."""

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> float:
        """Of the noisy gradient, which is left as it is, or clipped to noisy_grad_norm; this is asked for before each step."""
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        norm = float(torch.stack([gradient.double().norm() for gradient in gradients]).norm()) if gradients else 0.0
        if self._noisy_norm is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self._noisy_norm)
        return norm

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._folder() is not None and self.run.noise_at == "every_step":
            self._engine.save()
        super()._save_checkpoint(model, trial)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As of the Trainer; of a model in shards, which all processes gather, process 0 writes the whole.

        Args:
            output_dir: None: that of the arguments.
            _internal_call: of the Trainer.
        """
        model = cast(Any, self.model)
        if not any(is_shard(parameter) for parameter in model.parameters()):
            super().save_model(output_dir, _internal_call)
            return
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if self.args.should_save:
            self._save(output_dir, state_dict=state)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """As of the Trainer; of a model in shards nothing: its optimiser's state, too, is in Lethe's own checkpoint."""
        if not any(is_shard(parameter) for parameter in cast(Any, self.model).parameters()):
            super()._save_optimizer_and_scheduler(output_dir)

    def _finalize_training(self, trial: Any, num_train_samples: Any, start_time: Any) -> TrainOutput:
        self._batches.drain()
        self._record = self._engine.record()
        return super()._finalize_training(trial, num_train_samples, start_time)

    @property
    def _planned(self) -> PlannedTraining:
        """The run of the arguments: T is max_steps, or num_train_epochs; max_grad_norm is the clip norm."""
        if self._plan is None:
            args, dataset, target = self.args, self.train_dataset, self._target
            if not isinstance(dataset, Sized):
                raise InputError(
                    f"train_dataset: {'none was given' if dataset is None else f'{type(dataset).__name__} has no length'}; it needs the "
                    "private records, whose number is a public part of the guarantee.",
                    remedy="give a map-style data set, such as datasets.Dataset.",
                )

            if type(self).get_train_dataloader is not PrivateLoop.get_train_dataloader:
                raise InputError(
                    f"get_train_dataloader: {type(self).__name__} has one of its own; {DESIGN}.",
                    remedy="give train_dataset and data_collator, of which the run makes its batches.",
                )
            sizes = sizes_of(args)
            if is_on_policy(self):
                sizes = sizes_of_prompts(sizes, cast(Any, self).num_generations)
            else:
                refuse_foreign_order(self._get_train_sampler() if len(dataset) else None, dataset)

            def steps(per_epoch: int) -> int:
                return args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)

            norm = clip_norm_of(args) if target.run is None else None
            self._plan = target.planned(len(dataset), sizes, steps, args.learning_rate, clip_norm=norm, users=self._users)
            if target.run is not None:
                refuse_other_words(args, target.run, sizes, self._plan.steps_per_epoch)
        return self._plan

    def _folder(self) -> Path | None:
        checkpoints = checkpoints_of(self._checkpoints, self.args)
        return None if checkpoints is None else Path(os.fspath(checkpoints.folder))

    @contextmanager
    def _without_reducer(self) -> Iterator[None]:
        """Within: accelerate prepares the model and leaves it bare, without a DistributedDataParallel: the engine exchanges sums."""
        accelerator = cast(Any, self.accelerator)
        accelerator.prepare_model = partial(accelerator.prepare_model, evaluation_mode=True)
        try:
            yield
        finally:
            del accelerator.prepare_model

    def _on_device(self, micro_batch: Any) -> Any:
        if not isinstance(self._collated, Answers):
            return micro_batch
        with self._forgetting():
            return self._collated.of(micro_batch)

    def _losses(self, batch: Any) -> Tensor | MeanLoss:
        """The function of a batch that the engine is given: compute_loss, where an item is what the Trainer counts as one."""
        records = len(next(iter(batch.values())))
        counts = self._items(batch, records)
        with self._forgetting():
            loss = self.compute_loss(cast(Any, self.model), self._collated.unfolded(batch), num_items_in_batch=counts.sum().clamp(min=1))
        if records > 1 and isinstance(loss, Tensor) and loss.numel() == 1 and not is_known_mean(self):
            raise NotImplementedError("compute_loss gives one number for its batch; return one loss a record, shape (B,)")
        return loss_of(loss, counts)

    def _items(self, batch: Mapping[str, Tensor], records: int) -> Tensor:
        """How many items each record has, shape (B,): labels that count; 1 where there are none."""
        if "start_positions" in batch and records > 1:
            ends = torch.stack([batch["start_positions"], batch["end_positions"]])
            if bool(((ends < 0) | (ends >= batch["input_ids"].shape[1])).any()):
                raise NotImplementedError("answers that lie outside their texts, which the mean of the loss leaves out")
        name = next((name for name in ("shift_labels", "labels", *self.label_names) if name in batch), None)
        if name is None or len(self.label_names) > 1:
            return torch.ones(records, dtype=torch.int64, device=self.args.device)
        labels = batch[name][..., 1:] if name == "labels" and getattr(self, "_loss_shifts_labels", False) else batch[name]
        return (labels != IGNORED).reshape(records, -1).sum(1)

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Within: what compute_loss counts and notes of private records is forgotten, and none of it goes to other processes."""
        noted = {name: copy.deepcopy(value) for name, value in vars(self).items() if name in _NOTED or isinstance(value, int | float)}
        accelerator, several = vars(self.accelerator), self.args.average_tokens_across_devices
        single_process: dict[str, Any] = dict.fromkeys(("gather", "gather_for_metrics", "reduce"), lambda tensor, *args, **options: tensor)
        self._recording, self.args.average_tokens_across_devices = True, False
        accelerator.update(single_process)
        try:
            yield
        finally:
            for name in single_process:
                del accelerator[name]
            self._recording, self.args.average_tokens_across_devices = False, several
            if not self._log_private:
                vars(self).update(noted)
