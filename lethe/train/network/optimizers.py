"""Optimisers by name, and learning-rate schedules: what is done to noisy gradients costs no privacy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lethe.errors import InputError

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
"""Names of optimisers, of which others are given as objects."""

NAME = "lethe lr scheduler"
"""Of the state of a scheduler in a checkpoint."""


def optimizer_of(model: Any, optimizer: Any, lr: float | None, *, default: str | None) -> Any:
    """The optimiser of a module's trained parameters: the one that was given, or a new one; None: none.

    Args:
        model: what is no module is refused by training.
        optimizer: a name, one of PyTorch's, or None.
        lr: of a new one; None: PyTorch's default.
        default: the name in the place of None.
    Raises:
        InputError: an unknown name, or a learning rate for an optimiser that has its own.
    """
    name = default if optimizer is None else optimizer
    if not isinstance(name, str):
        if lr is not None:
            owner = "the run says step_size" if name is None else "the optimiser has its own"
            raise InputError(
                f"lr: given, and {owner}.", source="lr, optimizer", remedy='leave it out, or name the optimiser: optimizer="adamw".'
            )
        return name
    if name.lower() not in OPTIMIZERS:
        raise InputError(
            f"optimizer: got {name!r}; it needs {', '.join(OPTIMIZERS)}, or an optimiser of PyTorch's.",
            source="optimizer",
            remedy='optimizer="adamw", or optimizer=torch.optim.Adagrad(model.parameters()).',
        )
    if not isinstance(model, nn.Module):
        return None
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        return OPTIMIZERS[name.lower()](parameters, **({} if lr is None else {"lr": lr})) if parameters else None
    except ValueError as error:
        raise InputError(f"lr: got {lr!r}: {error}.", source="lr", remedy="give a number > 0, such as 1e-3.") from error


def scheduler_of(optimizer: torch.optim.Optimizer | None, schedule: Any, steps: int) -> Any:
    """The learning-rate scheduler that is stepped after each step; None: there is none.

    Args:
        optimizer: whose learning rate it sets.
        schedule: of `TrainOptions.lr_scheduler`: a name, a function of the optimiser, or None.
        steps: T, at the end of which "cosine" and "linear" come to 0.
    Raises:
        InputError: there is no optimiser, an unknown name, or nothing that can be called.
    """
    if schedule is None:
        return None
    if optimizer is None:
        raise InputError(
            "lr_scheduler: there is no optimiser.", source="TrainOptions.lr_scheduler", remedy='give optimizer="sgd", or run.step_size.'
        )
    if schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    if schedule == "linear":
        return torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    if not callable(schedule):
        raise InputError(
            f"lr_scheduler: got {schedule!r}; it needs 'cosine', 'linear', or a function of the optimiser.",
            source="TrainOptions.lr_scheduler",
            remedy="lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 100).",
        )
    return schedule(optimizer)
