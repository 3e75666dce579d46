"""Refusal of wrappers, such as DistributedDataParallel, that exchange gradients before they are clipped."""

from __future__ import annotations

from torch import nn

from lethe.errors import InputError

# By name: importing the sharded ones takes as long as a short training, and they are absent where torch is built without them.
_REASONS = {
    "DataParallel": "it copies the model to several devices within one process, where the engine's hooks do not reach",
    "DistributedDataParallel": "it averages whole gradients between processes, and no record's is clipped in them",
    "FullyShardedDataParallel": "it adds up whole gradients between processes while it goes backward, before a record's norm is known",
}
_REMEDIES = {"FullyShardedDataParallel": "shard it by torch.distributed.fsdp.fully_shard(module), or give it whole in every process."}


def refuse_wrapped(model: nn.Module) -> None:
    """Refuse a model that is wrapped so that its gradients are exchanged before they are clipped.

    A DistributedDataParallel around the whole model was taken off before (`bare_module`), and what `fully_shard` divided is gathered for
    each step (`Shards`).

    Raises:
        InputError: it is.
    """
    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _REASONS and kind.__module__.startswith("torch."):
                raise InputError(
                    f"{path or 'model'}: wrapped in {kind.__name__}: {_REASONS[kind.__name__]}.",
                    source="model",
                    remedy=_REMEDIES.get(
                        kind.__name__,
                        "give the bare module (wrapper.module), whole in every process: with torch.distributed "
                        "initialised the clipped sums are added up here.",
                    ),
                )
