"""Refusal of wrappers, such as DistributedDataParallel, that exchange gradients before they are clipped."""

from __future__ import annotations

from torch import nn

from lethe.errors import InputError

# By name: importing the sharded ones takes as long as a short training, and they are absent where torch is built without them.
_REASONS = {
    "DataParallel": "it copies the model to several devices within one process, where the engine's hooks do not reach",
    "DistributedDataParallel": "it averages whole gradients between processes, and no record's is clipped in them",
    "FullyShardedDataParallel": "it adds up whole gradients between processes while it goes backward, before a record's norm is known",
    "FSDPModule": "it adds up whole gradients between processes while it goes backward, before a record's norm is known",
}
_SHARDED = "DTensor"


def refuse_wrapped(model: nn.Module) -> None:
    r"""Refuse a model that is wrapped for, or sharded over, several processes or devices.

    The engine needs each layer's inputs and the gradients of its outputs, weights that are whole while it forms clipped sums, and
    to be alone in adding up. Fully sharded models fail the last two: a weight is whole only while its layer is at work, but a record's
    factor $\min(1, C/\|g\|)$ is known only after the last layer, when the sharded sum of unclipped gradients is made already. The norms
    would be no obstacle, since shards are of parameters and every process has its own records' whole norms.

    Raises:
        InputError: it is.
    """
    for path, module in model.named_modules():
        for kind in type(module).__mro__:
            if kind.__name__ in _REASONS and kind.__module__.startswith("torch."):
                raise InputError(
                    f"{path or 'model'}: wrapped in {kind.__name__}: {_REASONS[kind.__name__]}.",
                    source="model",
                    remedy="give the bare module (wrapper.module), whole in every process: with torch.distributed initialised the clipped "
                    "sums are added up here.",
                )
    for name, parameter in model.named_parameters():
        if any(kind.__name__ == _SHARDED for kind in type(parameter).__mro__):
            raise InputError(
                f"parameter {name}: a {_SHARDED}, of which this process holds a shard; clipped sums are formed of whole parameters.",
                source="fully_shard, or tensor parallelism",
                remedy="give the model whole in every process, and leave adding up to the engine.",
            )
