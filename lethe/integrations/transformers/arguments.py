"""TrainingArguments under private training: what is honoured, and what is refused, by name and with its reason."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from transformers import TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from lethe.documents.synonyms import did_you_mean
from lethe.errors import InputError, UnknownArgumentError

_DESIGN = "which records meet which step is the batch design of the run: Poisson batches, or those of run=lethe.Run(batches=...)"
_SHARDS = (
    "it divides the model and exchanges gradients by itself, before they are clipped: call fully_shard on the model (FSDP2) and give "
    "it to this Trainer, whose processes torchrun or accelerate starts"
)
_ONE_MESH = "all processes take shares of one batch: start them by torchrun or accelerate launch, and leave it out"
_CHOSEN = (
    "it would seal another iterate than the last, chosen by what is measured along the way; under release all each checkpoint-N is covered "
    "by the certificate: choose one yourself, by public data"
)
_MORE = "it is not known to keep records apart, or to leave gradients of single records in the graph"
_LEAKS = "it counts or times what batches hold, and how many records a batch has is secret"
_ENTROPY = "batches and noise are drawn from fresh entropy; who knows a seed knows the noise"

_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor")

_HONOURED = """
    output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_kwargs warmup_steps warmup_ratio
    optim_args weight_decay adam_beta1 adam_beta2 adam_epsilon gradient_accumulation_steps max_grad_norm label_smoothing_factor bf16
    tf32 activation_checkpointing activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs use_cache
    logging_strategy logging_steps logging_first_step logging_dir log_on_each_node log_level log_level_replica logging_nan_inf_filter
    disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id trackio_static_space_id eval_strategy eval_steps
    eval_delay per_device_eval_batch_size prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object
    eval_accumulation_steps include_for_metrics batch_eval_metrics save_only_model save_steps save_on_each_node save_total_limit
    push_to_hub hub_token hub_private_repo hub_model_id hub_strategy hub_always_push hub_revision metric_for_best_model
    greater_is_better seed use_cpu dataloader_drop_last dataloader_num_workers dataloader_multiprocessing_context remove_unused_columns
    label_names do_train do_eval do_predict resume_from_checkpoint local_rank average_tokens_across_devices full_determinism
    ddp_timeout ddp_backend dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor dataloader_in_order
    length_column_name
"""
HONOURED = frozenset(_HONOURED.split())
"""Fields that mean what they always mean, or only speed things up: pinning and prefetching are Lethe's own business."""


_OF_FIT = {
    "unit": "PrivateTrainer(..., users=ids), where a user is the unit",
    "clip_norm": "TrainingArguments(max_grad_norm=...), the norm that each record's gradient is clipped to",
    "physical_size": "TrainingArguments(per_device_train_batch_size=...), how many records are on the device at once",
    "batch_size": "TrainingArguments(per_device_train_batch_size=..., gradient_accumulation_steps=...), of which a batch is the product",
    "noise_multiplier": "PrivateTrainer(..., run=lethe.Run(noise_multiplier=..., ...), delta=...); with epsilon the noise is found",
    "epochs": "TrainingArguments(num_train_epochs=...)",
    "steps": "TrainingArguments(max_steps=...)",
}


class Needs(NamedTuple):
    """What a field may be, and why nothing else."""

    allowed: Callable[[Any], bool]
    why: str


def one_of(*values: Any) -> Callable[[Any], bool]:
    """Whether a field is one of these, or an enumeration's member of that value."""
    return lambda value: getattr(value, "value", value) in values


def off(value: Any) -> bool:
    """Whether a field asks for nothing."""
    return value in (None, False, "", "no", {}, [])


NEEDS: Mapping[str, Needs] = {
    "auto_find_batch_size": Needs(off, "a step that fails and is tried again would meet records twice; set the size by hand"),
    "train_sampling_strategy": Needs(one_of("random"), f"batches grouped by length tell lengths; {_DESIGN}"),
    "group_by_length": Needs(off, f"batches grouped by length tell lengths; {_DESIGN}"),
    "data_seed": Needs(off, _ENTROPY),
    "deepspeed": Needs(off, _SHARDS),
    "fsdp": Needs(off, _SHARDS),
    "parallelism_config": Needs(off, _ONE_MESH),
    "torch_compile": Needs(off, "gradients of single records are found by hooks on the model's layers, which a compiled model skips"),
    "use_liger_kernel": Needs(off, f"its layers compute gradients by themselves: {_MORE}"),
    "neftune_noise_alpha": Needs(off, "its noise on embeddings is scaled by how far the batch is padded, and so by other records"),
    "fp16": Needs(off, "loss scaling changes gradients between clipping and the step; take bf16=True"),
    "fp16_full_eval": Needs(off, "it turns the released weights into float16 behind the certificate's back"),
    "bf16_full_eval": Needs(off, "it turns the released weights into bfloat16 behind the certificate's back"),
    "torch_empty_cache_steps": Needs(off, "it is not honoured here"),
    "include_num_input_tokens_seen": Needs(off, _LEAKS),
    "skip_memory_metrics": Needs(one_of(True), _LEAKS),
    "enable_jit_checkpoint": Needs(off, "it saves in the middle of a step; Lethe's own checkpoints survive a kill at any moment"),
    "load_best_model_at_end": Needs(off, _CHOSEN),
    "save_strategy": Needs(one_of("no", "steps", "epoch"), _CHOSEN),
    "lr_scheduler_type": Needs(
        lambda value: getattr(value, "value", value) not in ("reduce_lr_on_plateau", "greedy"),
        "it chooses the learning rate by evaluation, of which no certificate speaks; take a schedule that is fixed in advance",
    ),
    "optim": Needs(
        one_of(*_OPTIMIZERS),
        "only PyTorch's optimisers that take one gradient a step are known to do nothing else: "
        f"{', '.join(_OPTIMIZERS)}; give yours as optimizers=(optimizer, None)",
    ),
    "ignore_data_skip": Needs(off, "a run that is taken up again meets exactly the batches that are left"),
    "restore_callback_states_from_checkpoint": Needs(off, "callbacks begin anew where training is taken up again"),
    "debug": Needs(off, "its hooks look at activations of single records and print them"),
}
"""Fields that not every value is allowed of, and why."""


class Known(NamedTuple):
    """Which fields are honoured, and which must be as is said here; any other must be at its default."""

    honoured: frozenset[str]
    needs: Mapping[str, Needs]


TRAINING = Known(HONOURED, NEEDS)


def refuse_arguments(args: TrainingArguments, known: Known = TRAINING) -> None:
    """Refuse training arguments that would break privacy, or that are not honoured.

    Args:
        args: of the Trainer.
        known: what is known of its fields.
    Raises:
        InputError: the first of them, by name.
    """
    for field in dataclasses.fields(args):
        value, needs = getattr(args, field.name), known.needs.get(field.name)
        if needs is not None:
            if not needs.allowed(value):
                raise InputError(
                    f"{field.name}: got {getattr(value, 'value', value)!r}, which private training does not take.",
                    source=type(args).__name__,
                    remedy=f"leave it out: {needs.why}.",
                )
        elif field.name not in known.honoured and not _is_default(field, value):
            raise InputError(
                f"{field.name}: got {value!r}; whether it breaks privacy is not known, or it is not honoured.",
                source="TrainingArguments",
                remedy="leave it out.",
            )
    if args.n_gpu > 1:
        raise InputError(
            f"{args.n_gpu} devices in one process: DataParallel would copy the model to each, and hide which gradient is whose record's.",
            source="the visible devices",
            remedy=f"torchrun --nproc-per-node={args.n_gpu}: one process for each; or CUDA_VISIBLE_DEVICES=0.",
        )


def refuse_unknown(kind: type, given: Iterable[str]) -> None:
    """Refuse arguments that neither a Trainer nor what it derives from takes, with what may be meant.

    Args:
        kind: of the Trainer.
        given: names of arguments.
    Raises:
        UnknownArgumentError: the first of them.
    """
    takes = [inspect.signature(vars(one)["__init__"]).parameters for one in kind.__mro__ if "__init__" in vars(one) and one is not object]
    known = {name for taken in takes for name, one in taken.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    for name in given:
        if name in _OF_FIT:
            raise UnknownArgumentError(f"{name}: {kind.__name__} has no such option.", remedy=f"{_OF_FIT[name]}.")
        if name not in known:
            of_training = name in {field.name for field in dataclasses.fields(TrainingArguments)}
            meant = "" if of_training else did_you_mean(name, sorted(known))
            remedy = f"TrainingArguments({name}=...)." if of_training else None
            raise UnknownArgumentError(f"{name}: {kind.__name__} takes no such argument{f';{meant}' if meant else '.'}", remedy=remedy)


def refuse_surroundings(trainer: Any) -> None:
    """Refuse what a Trainer was told beside its arguments: by accelerate's environment, or by its data sets.

    Raises:
        InputError: sharding, compiling or float16; or see `refuse_evaluated`.
    """
    accelerator = trainer.accelerator
    told = {
        "distributed_type": (accelerator.distributed_type, ("NO", "MULTI_CPU", "MULTI_GPU"), _SHARDS),
        "parallelism_config": (accelerator.parallelism_config and "given", ("None",), _ONE_MESH),
        "mixed_precision": (accelerator.mixed_precision, ("no", "bf16"), NEEDS["fp16"].why),
        "dynamo_plugin": (accelerator.state.dynamo_plugin.backend, ("NO",), NEEDS["torch_compile"].why),
    }
    for name, (value, allowed, why) in told.items():
        if str(getattr(value, "value", value)) not in allowed:
            what = f"accelerate: {name} is {getattr(value, 'value', value)}."
            raise InputError(what, source="accelerate's configuration, or ACCELERATE_*", remedy=f"{why}.")
    refuse_evaluated(trainer.train_dataset, trainer.eval_dataset)


def refuse_evaluated(trained: Any, evaluated: Any) -> None:
    """Refuse records that are both trained on and evaluated.

    Args:
        trained: the Trainer's train_dataset.
        evaluated: its eval_dataset, or several by name.
    Raises:
        InputError: they are the same.
    """
    looked_at = evaluated.values() if isinstance(evaluated, dict) else (evaluated,)
    if trained is not None and any(one is trained for one in looked_at):
        raise InputError(
            "eval_dataset: it is train_dataset; what evaluation shows of the private records, no certificate covers.",
            source="train_dataset, eval_dataset",
            remedy="hold public records back for evaluation; or evaluate after training, and tell nobody: trainer.predict(train_dataset).",
        )


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a field is as nobody set it; accelerator_config is filled in by `TrainingArguments` itself."""
    if field.default is not dataclasses.MISSING and (value is field.default or value == field.default):
        return True
    if field.default_factory is not dataclasses.MISSING and value == field.default_factory():
        return True
    return isinstance(value, AcceleratorConfig) and value == AcceleratorConfig()
