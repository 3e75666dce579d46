"""Calls of layers from within what computes them again, or for several records at once: nothing is told apart there."""

from __future__ import annotations

import sys
from collections.abc import Callable

from torch._C._functorch import maybe_current_level
from torch.autograd import forward_ad

from lethe.train.clipping.unfollowed import UnfollowedError


def refuse_checkpoints(where: Callable[[], str]) -> None:
    """Refuse a layer that is called under activation checkpointing; called by a hook on it."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.checkpoint":
            raise UnfollowedError(
                f"{where()} runs under activation checkpointing, which computes it again in the backward pass.",
                source="torch.utils.checkpoint in the model's forward pass",
                remedy="switch checkpointing off, and take smaller micro-batches if memory is short.",
            )
        frame = frame.f_back


def refuse_transforms(where: Callable[[], str]) -> None:
    """Refuse a layer that is called under a transform of torch.func."""
    if maybe_current_level() is not None or forward_ad._current_level >= 0:
        raise UnfollowedError(
            f"{where()} runs under a transform of torch.func, inside which its records cannot be told apart.",
            source="torch.func.vmap, grad, jvp, linearize or another in the model's forward pass",
            remedy="call the layer on the batch itself, records first; write the transform around what has no trained parameters.",
        )
