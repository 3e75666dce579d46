"""The batches of a run, for a user's loop."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from lethe.train.engine.state import LoopState

Tensors = tuple[Tensor, ...]


class PrivateLoader:
    """The batches of a run, as tuples of tensors on the model's device.

    Iterating once gives all batches that are left, in micro-batches if there is a physical size. How many those are depends on the secret
    draw, so there is no length.
    """

    __slots__ = ("_state",)

    def __init__(self, state: LoopState) -> None:
        self._state = state

    def __iter__(self) -> Iterator[Tensors]:
        return self._state.deliver(self._state.left)

    def passes(self) -> Iterator[Iterator[Tensors]]:
        """The batches pass by pass, for loops over epochs: `for epoch in loader.passes(): for inputs, targets in epoch: ...`."""
        while self._state.left:
            yield self._state.deliver(self._state.left_in_pass)
