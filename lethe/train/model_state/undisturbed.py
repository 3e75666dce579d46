"""A context that restores a model's state, flags and random generators after test calls."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from lethe.train.core.tensor_fingerprint import same_numbers

# Subclasses are left alone: what they do in training mode is theirs.
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_WITH_DROPOUT_INSIDE = (nn.MultiheadAttention, nn.LSTM, nn.GRU, nn.RNN)


class Rewind:
    """Sets the random generators back to where they were, before each of several passes that must draw the same numbers."""

    def __init__(self, devices: Sequence[int]) -> None:
        self._devices = devices
        self._states = self._now()

    def _now(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]

    def __call__(self) -> None:
        """Go back."""
        torch.set_rng_state(self._states[0])
        for device, state in zip(self._devices, self._states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)

    def drew(self) -> bool:
        """Whether numbers were drawn since."""
        return not all(torch.equal(now, before) for now, before in zip(self._now(), self._states, strict=True))


@contextmanager
def undisturbed(model: nn.Module) -> Generator[Rewind]:
    """Within: the model may be called; afterwards buffers, other tensors of the modules and random generators are as before."""
    kept = list(_state(model))
    devices = sorted({parameter.device.index or 0 for parameter in model.parameters() if parameter.device.type == "cuda"})
    with torch.random.fork_rng(devices):
        try:
            yield Rewind(devices)
        finally:
            for holder, name, tensor, before in kept:
                holder[name] = tensor
                if not same_numbers(tensor, before):  # writing what is there already would spoil it for the backward pass
                    tensor.copy_(before)


@contextmanager
def without_dropout(model: nn.Module) -> Generator[bool]:
    """Within: torch's own dropout layers, and dropout inside its own recurrent and attention layers, are off; whether there were any."""
    layers = [module for module in model.modules() if type(module) in _DROPOUT and module.training]
    inner: list[tuple[Any, float]] = [(module, module.dropout) for module in model.modules() if type(module) in _WITH_DROPOUT_INSIDE]  # pyright: ignore
    inner = [(module, dropout) for module, dropout in inner if module.training and dropout]
    try:
        for module in layers:
            module.training = False
        for module, _ in inner:
            module.dropout = 0.0
        yield bool(layers or inner)
    finally:
        for module in layers:
            module.training = True
        for module, dropout in inner:
            module.dropout = dropout


def _state(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, Tensor, Tensor]]:
    """Buffers, and tensors that are plain attributes: who holds them, under which name, and a copy."""
    for module in model.modules():
        for holder in (module._buffers, vars(module)):
            for name, tensor in holder.items():
                if isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter):
                    yield holder, name, tensor, tensor.detach().clone()
