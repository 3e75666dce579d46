"""Computing a layer again as it was computed in the forward pass, dropout masks included."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lethe.train.clipping.rules.rule import Use
from lethe.train.clipping.unfollowed import UnfollowedError


@dataclass(frozen=True, slots=True, eq=False)
class RandomUse(Use):
    """A use of a layer that draws random numbers.

    Args:
        random_state: the state, before the call, of the default generator of the device that the layer computes on.
    """

    random_state: Tensor | None = None


@contextmanager
def replaying(use: Use, module: nn.Module, dropout: float, device: torch.device) -> Generator[None]:
    """Within: gradients are recorded, nothing is cast, and the random numbers are those that the use drew.

    Args:
        use: what is computed again.
        module: whose `training` flag counts, and whose parameters' dtype.
        dropout: the probability with which the layer drops numbers in training.
        device: where it computes.
    Raises:
        InputError: the layer drops at random, and the masks of the use cannot be drawn again.
    """
    random = module.training and dropout > 0
    if random:
        _require_replayable(use, module, dropout)
    with (
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        torch.random.fork_rng([] if device.type == "cpu" else [device], enabled=random, device_type=_forked(device)),
    ):
        if random and isinstance(use, RandomUse) and use.random_state is not None:
            _restore(use.random_state, device)
        yield


def _forked(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else device.type  # fork_rng always forks the CPU's generator besides


def _restore(state: Tensor, device: torch.device) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.get_device_module(device).set_rng_state(state, device)


def _require_replayable(use: Use, module: nn.Module, dropout: float) -> None:
    name = type(module).__name__
    remedy = f"set the layer's dropout to 0, and put nn.Dropout(p={dropout:g}) outside it."
    if not isinstance(use, RandomUse) or use.random_state is None:
        raise UnfollowedError(
            f"{name} drops numbers inside (dropout = {dropout:g}), and the state of the random generator before its call was not kept.",
            source="the layer's dropout, in training mode",
            remedy=remedy,
        )
    whole = next(module.parameters()).dtype
    seen = {
        value.dtype
        for value in (*use.inputs, *use.keywords.values(), *(use.grad_outputs or (use.grad_output,)))
        if isinstance(value, Tensor)
    }
    seen = {dtype for dtype in seen if dtype.is_floating_point}
    if seen - {whole} or whole not in (torch.float32, torch.float64):
        raise UnfollowedError(
            f"{name} drops numbers inside (dropout = {dropout:g}) in {', '.join(sorted(map(str, seen | {whole})))}: "
            "masks can be drawn again in one full precision only.",
            source="the layer's dropout, in training mode, with half precision or autocast",
            remedy=remedy,
        )
