"""What several processes begin with: the module inside a DistributedDataParallel, and proof that all have the same run, model and data.
`Trainer` calls it before the first step: processes with different runs would add noise for another sensitivity than the certificate says.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lethe.errors import InputError
from lethe.run.run import Run
from lethe.train.core.tensors import contents, is_shard
from lethe.train.data.sources import Source, fingerprint, whole
from lethe.train.distributed.workers import Workers


def bare_module(model: Any) -> Any:
    """The module inside a DistributedDataParallel; any other model is returned as it is."""
    if not isinstance(model, DistributedDataParallel):
        return model
    remedy = "give the bare module: model.module."
    if model.mixed_precision is not None:
        raise InputError(
            "model: DistributedDataParallel with mixed_precision casts the module's parameters in hooks of its own.",
            source="mixed_precision, given to DistributedDataParallel",
            remedy=remedy + " Compute in half precision under torch.autocast.",
        )
    group, everybody = dist.get_world_size(model.process_group), Workers.current().world_size
    if group != everybody:
        raise InputError(
            f"model: its DistributedDataParallel is over {group} processes, and {everybody} train together.",
            source="process_group, given to DistributedDataParallel",
            remedy=remedy + " All processes of the default group train one model.",
        )
    return model.module


def bare_optimizer(optimizer: Any) -> Any:
    """The optimiser within what accelerate wraps around it: that one takes the steps, and has the hooks that guard them."""
    inner = getattr(optimizer, "optimizer", None)
    wrapped = type(optimizer).__module__.partition(".")[0] == "accelerate" and isinstance(inner, torch.optim.Optimizer)
    return inner if wrapped else optimizer


def without_reducer(model: Any, losses: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function in which calls of a DistributedDataParallel are calls of the module inside: its reducer hears of none, and no buffer
    is sent. Of other models the function is returned as it is.
    """
    if not isinstance(model, DistributedDataParallel):
        return losses

    def bare(batch: Any) -> Any:
        vars(model)["forward"] = model.module.__call__
        try:
            return losses(batch)
        finally:
            vars(model).pop("forward", None)

    return bare


def refuse_other_start(
    workers: Workers,
    model: nn.Module,
    run: Run,
    source: Source,
    *,
    optimizer: torch.optim.Optimizer | None,
    options: Mapping[str, Any],
    pays: bool = False,
) -> None:
    """Refuse processes that would not train the same model, by the same run, on the same data.

    Of the data the number of records, their shapes and types, and hashes of all records, or of at most 32 where that would take long, are
    compared (`fingerprint`), under a key that is made for this comparison; of the latter, others may differ unseen, and so may tensors that
    are augmented at random. Of the model everything is compared: parameters, frozen ones too, and buffers, bit for bit; of what lies in
    shards, of which each process has others, the shapes. Options have a repr that says all of them. Process 0 is the one that reserves: if
    another one pays, so must it.
    """
    if not workers.several:
        return
    key, root_pays = workers.told_by_root("key", (os.urandom(32).hex(), pays))
    if pays and not root_pays:
        raise InputError(
            f"ledger: process {workers.rank} was given one, and process 0, which reserves for all, was not: nothing would be counted.",
            source="ledger, or the block lethe.ledger.spending, that is not in all processes",
            remedy="give it to all processes, or to process 0.",
        )
    data_fingerprint = fingerprint(source, key)
    of_all = whole(source, key) or [""] * len(data_fingerprint["shapes"])
    workers.refuse_disagreement(
        {
            "run": json.dumps(run.to_document(), sort_keys=True, default=str),
            "model": _model_hash(model),
            "optimizer": "None" if optimizer is None else _settings(optimizer),
            **{name: repr(value) for name, value in options.items()},
            "data (number of records)": str(data_fingerprint["records"]),
            "data (shapes and types of a record)": repr((data_fingerprint["shapes"], data_fingerprint["dtypes"])),
            **{f"data (contents of some records, tensor {index})": sample for index, sample in enumerate(data_fingerprint["samples"])},
            **{f"data (contents of all records, tensor {index})": all_of_it for index, all_of_it in enumerate(of_all)},
        }
    )


def _model_hash(model: nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        digest.update(repr((name, tuple(tensor.shape), tensor.dtype, tensor.requires_grad)).encode())
        digest.update(str(tensor.placements).encode() if is_shard(tensor) else contents(tensor))  # pyright: ignore[reportAttributeAccessIssue]
    digest.update(repr([module.training for module in model.modules()]).encode())
    return digest.hexdigest()


def _settings(optimizer: torch.optim.Optimizer) -> str:
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    return repr((type(optimizer).__name__, groups))
