"""DistributedDataParallel, taken without its reducer: the module inside is trained, and the engine adds up what it has clipped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lethe.errors import InputError
from lethe.train.distributed.workers import Workers


def bare_module(model: Any) -> Any:
    """The module inside a DistributedDataParallel; any other model is returned as it is.

    Raises:
        InputError: the wrapper does more than exchange gradients, or exchanges them among fewer processes than train together.
    """
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


def without_reducer(model: Any, losses: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
    """The function in which calls of a DistributedDataParallel are calls of the module inside: its reducer hears of none, and no buffer
    is sent. Of other models the function is returned as it is.
    """
    if not isinstance(model, DistributedDataParallel):
        return losses

    def bare(batch: Any) -> Tensor:
        vars(model)["forward"] = model.module.__call__
        try:
            return losses(batch)
        finally:
            vars(model).pop("forward", None)

    return bare
