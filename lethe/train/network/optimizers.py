"""Optimisers by name, and learning-rate schedules: what is done to noisy gradients is post-processing and costs no privacy. `fit` asks
`optimizer_of` for the optimiser, `Trainer` `scheduler_of` for the schedule.
"""

import warnings
from collections.abc import Callable, Sequence
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

SCHEDULER = "lethe lr scheduler"
"""Of the state of a scheduler in a checkpoint."""


class Optimizers(torch.optim.Optimizer):
    """Several optimisers as one, each over parameters of its own."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = tuple(parts)
        super().__init__([parameter for part in parts for group in part.param_groups for parameter in group["params"]], {})
        self.param_groups = [group for part in parts for group in part.param_groups]

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of each."""
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """The states of all optimisers: that of parameter number k of part i under "i.k"."""
        parts = [part.state_dict() for part in self.parts]
        state = {f"{index}.{number}": value for index, part in enumerate(parts) for number, value in part["state"].items()}
        return {"state": state, "param_groups": [part["param_groups"] for part in parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned for as many optimisers."""
        for index, (part, groups) in enumerate(zip(self.parts, state_dict["param_groups"], strict=True)):
            part_state = {name.split(".")[1]: value for name, value in state_dict["state"].items() if name.split(".")[0] == str(index)}
            part.load_state_dict({"state": {int(number): value for number, value in part_state.items()}, "param_groups": groups})


_SPARSE = (torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam)


def usable_by(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient by its rows, where the parameter's optimiser then moves these rows alone; else whole."""
    if not gradient.is_sparse:
        return gradient
    parts = [(part, group) for part in getattr(optimizer, "parts", (optimizer,)) for group in part.param_groups]
    owners = [(part, group) for part, group in parts if any(candidate is parameter for candidate in group["params"])]
    moves_rows_alone = all(
        isinstance(part, _SPARSE) and not group.get("momentum") and not group.get("weight_decay") for part, group in owners
    )
    return gradient if moves_rows_alone else gradient.to_dense()


def as_one(optimizer: Any) -> Any:
    """Several optimisers as one; anything else as it is."""
    several = isinstance(optimizer, list | tuple) and optimizer and all(isinstance(part, torch.optim.Optimizer) for part in optimizer)
    return Optimizers(optimizer) if several else optimizer


def optimizer_of(model: Any, optimizer: Any, lr: float | None, *, default: str | None) -> Any:
    """The optimiser of a module's trained parameters: the one that was given, or a new one; None: none."""
    name = default if optimizer is None else optimizer
    if not isinstance(name, str):
        if lr is not None:
            owner = "the run says step_size" if name is None else "the optimiser has its own"
            raise InputError(
                f"lr: given, and {owner}.", source="lr, optimizer", remedy='leave it out, or name the optimiser: optimizer="adamw".'
            )
        return as_one(name)
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

    T `steps` are where "cosine" and "linear" come to 0.
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
    scheduler = schedule(optimizer)
    if not callable(getattr(scheduler, "step", None)) or not callable(getattr(scheduler, "state_dict", None)):
        raise InputError(
            f"lr_scheduler: the function returned {type(scheduler).__name__}; it needs a scheduler of PyTorch's.",
            source="TrainOptions.lr_scheduler",
            remedy="lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 100).",
        )
    return scheduler


def catch_up(scheduler: Any, steps: int) -> None:
    """Step a scheduler for steps that a kill has lost, which are released and count; one that counts no steps stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimiser took no step in between
        for _ in range(steps - getattr(scheduler, "last_epoch", steps)):
            scheduler.step()
