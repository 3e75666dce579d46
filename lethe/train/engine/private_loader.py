"""The batches of a run, for a user's loop: all in one, pass by pass, or epoch by epoch."""

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


class EpochLoader(PrivateLoader):
    """The batches of a run whose epochs are those of a user's DataLoader: iterating once gives an epoch, as with Opacus.

    Its length is the number of logical batches of an epoch; with a physical size there are more micro-batches than that, how many is left
    to chance.

    Args:
        state: of the loop.
        steps_per_epoch: how many logical batches an epoch has.
    """

    __slots__ = ("_steps_per_epoch",)

    def __init__(self, state: LoopState, steps_per_epoch: int) -> None:
        super().__init__(state)
        self._steps_per_epoch = steps_per_epoch

    def __len__(self) -> int:
        return self._steps_per_epoch

    def __iter__(self) -> Iterator[Tensors]:
        state = self._state
        if state.resumed and not state.left:
            return iter(())  # epochs that were done before training was resumed
        return state.deliver(min(self._steps_per_epoch - state.drawn % self._steps_per_epoch, state.left))

    def passes(self) -> Iterator[Iterator[Tensors]]:
        """The batches epoch by epoch."""
        while self._state.left:
            yield iter(self)
