"""TrainingArguments under private training: which are honoured, what the others may be, and what they say of the run."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from transformers import TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from lethe.errors import InputError, UnknownArgumentError
from lethe.errors.names import did_you_mean
from lethe.run.run import Run

_SHARDS = "leave it out; of a model too large for one device call fully_shard(model) (FSDP2), and start the processes by torchrun"
_COMPILED = "leave it out: gradients of single records are found by hooks, which a compiled model skips"
_UNKNOWN = "leave it out: it would break privacy, it is not honoured, or whether it does is not known"
_BY_EVALUATION = "take what is fixed in advance: what evaluation chooses no certificate covers; each checkpoint-N is covered (release all)"
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
"""Fields that mean what they always mean, or only speed things up. Any other has to be at its default, or as `NEEDS` says."""


class Needs(NamedTuple):
    """What a field may be, and what to do in the place of anything else."""

    allowed: Callable[[Any], bool]
    remedy: str


def one_of(*values: Any) -> Callable[[Any], bool]:
    """Whether a field is one of these, or an enumeration's member of that value."""
    return lambda value: getattr(value, "value", value) in values


def off(value: Any) -> bool:
    """Whether a field asks for nothing."""
    return value in (None, False, "", {}, [])


NEEDS: Mapping[str, Needs] = {
    "train_sampling_strategy": Needs(one_of("random"), "leave it out: which records meet in a step is the batch design of the run"),
    "skip_memory_metrics": Needs(one_of(True), "leave it at True: how many records a batch has is secret"),
    "deepspeed": Needs(off, _SHARDS),
    "fsdp": Needs(off, _SHARDS),
    "torch_compile": Needs(off, _COMPILED),
    "fp16": Needs(off, "take bf16=True: loss scaling changes gradients between clipping and the step"),
    "data_seed": Needs(off, "leave it out: who knows the seed of the batches knows what is secret"),
    "load_best_model_at_end": Needs(off, _BY_EVALUATION),
    "save_strategy": Needs(one_of("no", "steps", "epoch"), _BY_EVALUATION),
    "lr_scheduler_type": Needs(lambda value: getattr(value, "value", value) not in ("reduce_lr_on_plateau", "greedy"), _BY_EVALUATION),
    "optim": Needs(
        one_of(*_OPTIMIZERS), f"take one whose step is one gradient: {', '.join(_OPTIMIZERS)}; or give yours: optimizers=(optimizer, None)"
    ),
    "debug": Needs(off, "leave it out: its hooks look at activations of single records and print them"),
}
"""Fields of which not every value is allowed, or whose remedy is not to leave them out."""

_OF_FIT = {
    "unit": "PrivateTrainer(..., users=ids), where a user is the unit",
    "clip_norm": "TrainingArguments(max_grad_norm=...), the norm that each record's gradient is clipped to",
    "physical_size": "TrainingArguments(per_device_train_batch_size=...), how many records are on the device at once",
    "batch_size": "TrainingArguments(per_device_train_batch_size=..., gradient_accumulation_steps=...), of which a batch is the product",
    "noise_multiplier": "PrivateTrainer(..., run=lethe.Run(noise_multiplier=..., ...), delta=...); with epsilon the noise is found",
    "epochs": "TrainingArguments(num_train_epochs=...)",
    "steps": "TrainingArguments(max_steps=...)",
}


class Known(NamedTuple):
    """Which fields are honoured, and which must be as is said here; any other must be at its default."""

    honoured: frozenset[str]
    needs: Mapping[str, Needs]


TRAINING = Known(HONOURED, NEEDS)


def refuse_arguments(args: TrainingArguments, known: Known = TRAINING) -> None:
    """Refuse the first training argument that would break privacy, or that is not honoured, by name."""
    for field in dataclasses.fields(args):
        value, needs = getattr(args, field.name), known.needs.get(field.name)
        allowed = field.name in known.honoured or _is_default(field, value) if needs is None else needs.allowed(value)
        if not allowed:
            raise InputError(
                f"{field.name}: got {getattr(value, 'value', value)!r}, which private training does not take.",
                source=type(args).__name__,
                remedy=f"{needs.remedy if needs else _UNKNOWN}.",
            )
    if args.n_gpu > 1:
        raise InputError(
            f"{args.n_gpu} devices in one process: DataParallel would copy the model to each, and hide which gradient is whose record's.",
            source="the visible devices",
            remedy=f"torchrun --nproc-per-node={args.n_gpu}: one process for each; or CUDA_VISIBLE_DEVICES=0.",
        )


def refuse_unknown(kind: type, names: Iterable[str]) -> None:
    """Refuse the first argument that neither a Trainer nor what it derives from takes, with what may be meant."""
    takes = [inspect.signature(vars(one)["__init__"]).parameters for one in kind.__mro__ if "__init__" in vars(one) and one is not object]
    known = {name for taken in takes for name, one in taken.items() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    for name in names:
        if name in _OF_FIT:
            raise UnknownArgumentError(f"{name}: {kind.__name__} has no such option.", remedy=f"{_OF_FIT[name]}.")
        if name not in known:
            of_training = name in {field.name for field in dataclasses.fields(TrainingArguments)}
            meant = "" if of_training else did_you_mean(name, sorted(known))
            remedy = f"TrainingArguments({name}=...)." if of_training else None
            raise UnknownArgumentError(f"{name}: {kind.__name__} takes no such argument{f';{meant}' if meant else '.'}", remedy=remedy)


def refuse_surroundings(trainer: Any) -> None:
    """Refuse what a Trainer was told beside its arguments, by accelerate's environment: sharding, compiling or float16."""
    accelerator = trainer.accelerator
    settings = {
        "distributed_type": (accelerator.distributed_type, ("NO", "MULTI_CPU", "MULTI_GPU"), _SHARDS),
        "parallelism_config": (accelerator.parallelism_config and "given", ("None",), "leave it out: all processes share each batch"),
        "mixed_precision": (accelerator.mixed_precision, ("no", "bf16"), NEEDS["fp16"].remedy),
        "dynamo_plugin": (accelerator.state.dynamo_plugin.backend, ("NO",), _COMPILED),
    }
    for name, (value, allowed, remedy) in settings.items():
        if str(getattr(value, "value", value)) not in allowed:
            what = f"accelerate: {name} is {getattr(value, 'value', value)}."
            raise InputError(what, source="accelerate's configuration, or ACCELERATE_*", remedy=f"{remedy}.")


def refuse_evaluated(trained: Any, evaluated: Any) -> None:
    """Refuse an eval_dataset, or one of several by name, that is the train_dataset."""
    if trained is not None and any(one is trained for one in (evaluated.values() if isinstance(evaluated, dict) else (evaluated,))):
        raise InputError(
            "eval_dataset: it is train_dataset; what evaluation shows of the private records, no certificate covers.",
            source="train_dataset, eval_dataset",
            remedy="hold public records back for evaluation; or evaluate after training, and tell nobody: trainer.predict(train_dataset).",
        )


def sizes_of(args: TrainingArguments) -> tuple[int, int, int]:
    """Records on a device at once, such batches a step, and processes; errors of sizes and lengths that are none."""
    lengths = () if args.max_steps > 0 else ("num_train_epochs",)
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", *lengths):
        value = getattr(args, name)
        if not 0 < value < math.inf:
            raise InputError(f"{name}: got {value}; it needs a number > 0.", source="TrainingArguments", remedy="leave it at its default.")
    return args.per_device_train_batch_size, args.gradient_accumulation_steps, args.world_size


def clip_norm_of(args: TrainingArguments) -> float:
    """The norm that each record's gradient is clipped to."""
    if not (isinstance(args.max_grad_norm, int | float) and 0 < args.max_grad_norm < math.inf):
        raise InputError(
            f"max_grad_norm: got {args.max_grad_norm!r}; it is the norm that each record's gradient is clipped to: a number > 0.",
            source="TrainingArguments",
            remedy="leave it at 1.0, or set it to the size of most records' gradients, judged by public data.",
        )
    return args.max_grad_norm


def refuse_other_words(args: TrainingArguments, run: Run, per_epoch: int) -> None:
    """Refuse arguments that were set to another thing than the run says; what was left at its default says nothing."""
    logical = math.prod(sizes_of(args))
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
    default = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    words = {
        "max_grad_norm": (run.clip_norm, args.max_grad_norm == run.clip_norm),
        "max_steps": (run.total_steps, steps == run.total_steps),
        "num_train_epochs": (f"{run.total_steps} steps", steps == run.total_steps or args.max_steps > 0),
        "gradient_accumulation_steps": (f"batches of {run.batch_size}", logical == run.batch_size),
    }
    for name, (own, agrees) in words.items():
        if not agrees and getattr(args, name) != default[name]:
            raise InputError(
                f"{name}: got {getattr(args, name)}; the run says {own}.",
                source="TrainingArguments, run",
                remedy="leave it out: the run's is used.",
            )


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    """Whether a field is as nobody set it; accelerator_config is filled in by `TrainingArguments` itself."""
    if field.default is not dataclasses.MISSING and (value is field.default or value == field.default):
        return True
    if field.default_factory is not dataclasses.MISSING and value == field.default_factory():
        return True
    return isinstance(value, AcceleratorConfig) and value == AcceleratorConfig()
