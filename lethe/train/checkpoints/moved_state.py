"""Buffers and frozen parameters that the optimiser's hooks move, such as an average of the weights: saved with the training."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lethe.train.clip.check.kept_state import digests


class MovedState:
    """What a model has besides its trained parameters, as it was when training began.

    Args:
        model: any.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._begun = digests(model)

    def moved(self) -> dict[str, Tensor]:
        """By name, what is other than it was."""
        now = digests(self._model)
        return {name: tensor for name, tensor in self._untrained().items() if now.get(name) != self._begun.get(name)}

    @torch.no_grad()
    def restore(self, moved: Mapping[str, Tensor]) -> None:
        """Put what `moved` gave, of an earlier run of the training, in its place."""
        untrained = self._untrained()
        for name, tensor in moved.items():
            untrained[name].copy_(tensor)

    def _untrained(self) -> dict[str, Tensor]:
        frozen = {name: parameter for name, parameter in self._model.named_parameters() if not parameter.requires_grad}
        return {**frozen, **dict(self._model.named_buffers())}
