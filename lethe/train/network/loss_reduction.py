"""One loss a record of what PyTorch's own losses make of a batch: their mean undone, and tables of all outputs with all targets refused."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

from torch import Tensor, nn

from lethe.errors import InputError


def without_mean(loss: Any) -> Callable[[Any, Any], Tensor] | None:
    """The same loss with reduction="none", of one of PyTorch's that takes the mean over its batch; None: it is another.

    The twin has the loss's own weights, and computes what the loss gives of a record alone, but that weights of classes, which the mean
    divides by, stay.
    """
    ours = type(loss).__module__ == "torch.nn.modules.loss" and type(loss) is not nn.CTCLoss
    if ours and getattr(loss, "reduction", None) == "mean":
        twin = copy.copy(loss)
        twin.reduction = "none"
        return twin
    if isinstance(loss, FunctionType) and loss.__module__ == "torch.nn.functional" and loss is not nn.functional.ctc_loss:
        reduction = inspect.signature(loss).parameters.get("reduction")
        return None if reduction is None or reduction.default != "mean" else partial(loss, reduction="none")
    return None


def mean_within(losses: Any, outputs: Any) -> Any:
    """The mean over each record's own numbers, where there is a loss of each number of the outputs.

    Not of classes of many positions, some of which may not count, nor of what PyTorch's broadcasting makes of other shapes.

    Args:
        losses: with reduction="none".
        outputs: of the model, shape (B, ...).
    """
    if not isinstance(losses, Tensor) or losses.dim() < 2 or not isinstance(outputs, Tensor) or losses.shape != outputs.shape:
        return losses
    return losses.flatten(1).mean(1)


def refuse_table(losses: Any, outputs: Any, targets: Any) -> None:
    """Refuse a loss of every output with every target, which PyTorch makes of the shapes (B, 1) and (B,).

    Args:
        losses: of them.
        outputs, targets: of a batch.
    Raises:
        InputError: it is one.
    """
    if not isinstance(losses, Tensor) or losses.dim() != 2 or not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return
    records = len(losses)
    if records > 1 and losses.shape == (records, records) and {outputs.shape, targets.shape} == {(records,), (records, 1)}:
        raise InputError(
            f"loss: of outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)} it computes a loss of every "
            "output with every target.",
            source="PyTorch's broadcasting",
            remedy="give targets of the outputs' shape: targets[:, None] of (B, 1), targets[:, 0] of (B,).",
        )
