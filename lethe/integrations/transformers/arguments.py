"""TrainingArguments of transformers under private training: those that would change the promise are refused, the others go into the run.
`privatize`'s Trainer (trainer.py) checks them before training, and the loop reads sizes and the clip norm from them.
"""

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from transformers import TrainingArguments

from lethe.errors import InputError, UnknownArgumentError
from lethe.errors.names import did_you_mean
from lethe.run.run import Run

_SHARDS = "leave it out; of a model too large for one device call fully_shard(model) (FSDP2), and start the processes by torchrun"


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
    "train_sampling_strategy": Needs(
        one_of("random", "sequential"), "leave it out: which records meet in a step is the batch design of the run"
    ),
    "auto_find_batch_size": Needs(
        off, "set per_device_train_batch_size: what the device holds; gradient_accumulation_steps makes of it a batch"
    ),
    "deepspeed": Needs(off, _SHARDS),
    "fsdp": Needs(off, _SHARDS),
    "fp16": Needs(off, "take bf16=True: loss scaling changes gradients between clipping and the step"),
    "optim": Needs(
        lambda value: not any(word in str(getattr(value, "value", value)) for word in ("lomo", "layerwise")),
        "take one that steps after the backward pass, such as adamw_torch: this one steps within it, by gradients that nobody clipped",
    ),
    "debug": Needs(off, "leave it out: its hooks look at activations of single records and print them"),
    "neftune_noise_alpha": Needs(off, "leave it out: its noise depends on how far the others of a batch have a record padded"),
    "include_num_input_tokens_seen": Needs(one_of("no", False), "leave it out: how many tokens the records of a step have is secret"),
    "packing": Needs(off, "give one conversation a row: a packed row is of several, and is no record whose gradient could be clipped"),
    "padding_free": Needs(off, "leave it out: it joins all conversations of a batch into one row; a record needs a row of its own"),
}
"""Fields of TrainingArguments, and of what TRL derives from them, that change what is promised. All others mean what they always mean."""

_OF_FIT = {
    "unit": "users=ids, where a user is the unit",
    "clip_norm": "TrainingArguments(max_grad_norm=...), the norm that each record's gradient is clipped to",
    "physical_size": "TrainingArguments(per_device_train_batch_size=...), how many records are on the device at once",
    "batch_size": "TrainingArguments(per_device_train_batch_size=..., gradient_accumulation_steps=...), of which a batch is the product",
    "noise_multiplier": "run=lethe.Run(noise_multiplier=..., ...), delta=...; with epsilon the noise is found",
    "epochs": "TrainingArguments(num_train_epochs=...)",
    "steps": "TrainingArguments(max_steps=...)",
}


def refuse_arguments(args: TrainingArguments) -> None:
    """Refuse the first training argument that would change what is promised, by name."""
    for name, needs in NEEDS.items():
        if hasattr(args, name) and not needs.allowed(value := getattr(args, name)):
            raise InputError(
                f"{name}: got {getattr(value, 'value', value)!r}, which private training does not take.",
                source=type(args).__name__,
                remedy=f"{needs.remedy}.",
            )
    if args.n_gpu > 1:
        raise InputError(
            f"{args.n_gpu} devices in one process: DataParallel would copy the model to each, and hide which gradient is whose record's.",
            source="the visible devices",
            remedy=f"torchrun --nproc-per-node={args.n_gpu}: one process for each; or CUDA_VISIBLE_DEVICES=0.",
        )


def refuse_unknown(kind: type, names: Iterable[str], privacy: Iterable[str]) -> None:
    """Refuse the first argument that neither a Trainer nor what it derives from takes, with what may be meant, of `privacy` too."""
    takes = [
        inspect.signature(vars(base)["__init__"]).parameters for base in kind.__mro__ if "__init__" in vars(base) and base is not object
    ]
    names_known = {
        name
        for signature in takes
        for name, parameter in signature.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    for name in names:
        if name in _OF_FIT:
            raise UnknownArgumentError(f"{name}: {kind.__name__} has no such option.", remedy=f"{_OF_FIT[name]}.")
        if name not in names_known:
            of_training = name in {field.name for field in dataclasses.fields(TrainingArguments)}
            meant = "" if of_training else did_you_mean(name, sorted({*names_known, *privacy}))
            remedy = f"TrainingArguments({name}=...)." if of_training else None
            raise UnknownArgumentError(f"{name}: {kind.__name__} takes no such argument{f';{meant}' if meant else '.'}", remedy=remedy)


def refuse_surroundings(trainer: Any) -> None:
    """Refuse what a Trainer was told beside its arguments, by accelerate's environment: sharding or float16."""
    accelerator = trainer.accelerator
    settings = {
        "distributed_type": (accelerator.distributed_type, ("NO", "MULTI_CPU", "MULTI_GPU"), _SHARDS),
        "parallelism_config": (accelerator.parallelism_config and "given", ("None",), "leave it out: all processes share each batch"),
        "mixed_precision": (accelerator.mixed_precision, ("no", "bf16"), NEEDS["fp16"].remedy),
    }
    for name, (value, allowed, remedy) in settings.items():
        if str(getattr(value, "value", value)) not in allowed:
            what = f"accelerate: {name} is {getattr(value, 'value', value)}."
            raise InputError(what, source="accelerate's configuration, or ACCELERATE_*", remedy=f"{remedy}.")


def refuse_evaluated(trained: Any, evaluated: Any) -> None:
    """Refuse an eval_dataset, or one of several by name, that is the train_dataset."""
    if trained is not None and any(split is trained for split in (evaluated.values() if isinstance(evaluated, dict) else (evaluated,))):
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


def refuse_other_words(args: TrainingArguments, run: Run, sizes: tuple[int, int, int], per_epoch: int) -> None:
    """Refuse arguments that were set to another thing than the run says; what was left at its default says nothing."""
    logical = math.prod(sizes)
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * per_epoch)
    default = {field.name: field.default for field in dataclasses.fields(TrainingArguments)}
    words = {
        "max_grad_norm": (run.clip_norm, args.max_grad_norm == run.clip_norm),
        "max_steps": (run.total_steps, steps == run.total_steps),
        "num_train_epochs": (f"{run.total_steps} steps", steps == run.total_steps or args.max_steps > 0),
        "gradient_accumulation_steps": (f"batches of {run.batch_size}", logical == run.batch_size),
    }
    for name, (planned, agrees) in words.items():
        if not agrees and getattr(args, name) != default[name]:
            raise InputError(
                f"{name}: got {getattr(args, name)}; the run says {planned}.",
                source="TrainingArguments, run",
                remedy="leave it out: the run's is used.",
            )
