"""The batches of a run, for a user's loop: all in one, pass by pass, or epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from lethe.train.data.sources.base import Source
from lethe.train.data.sources.fields import attending, fields_of
from lethe.train.engine.state import LoopState


class PrivateLoader:
    """The batches of a run, on the model's device: tuples of tensors, or dicts where records have fields.

    Iterating once gives all batches that are left, in micro-batches if there is a physical size. How many those are depends on the secret
    draw, so there is no length.
    """

    __slots__ = ("_fields", "_state")

    def __init__(self, state: LoopState, source: Source) -> None:
        self._state, self._fields = state, fields_of(source)

    def __iter__(self) -> Iterator[Any]:
        return self._delivered(self._state.left)

    def passes(self) -> Iterator[Iterator[Any]]:
        """The batches pass by pass, for loops over epochs: `for epoch in loader.passes(): for inputs, targets in epoch: ...`."""
        while self._state.left:
            yield self._delivered(self._state.left_in_pass)

    def _delivered(self, steps: int) -> Iterator[Any]:
        batches = self._state.deliver(steps)
        return batches if self._fields is None else self._by_name(batches, self._fields)

    def _by_name(self, batches: Iterator[tuple[Tensor, ...]], fields: tuple[str, ...]) -> Iterator[dict[str, Tensor]]:
        for batch in batches:
            yield attending(dict(zip(fields, batch, strict=True)), self._state.counted)


class EpochLoader(PrivateLoader):
    """The batches of a run whose epochs are those of a user's DataLoader: iterating once gives an epoch, as with Opacus.

    Its length is the number of logical batches of an epoch; with a physical size there are more micro-batches than that, how many is left
    to chance.

    Args:
        state: of the loop.
        source: of the records.
        steps_per_epoch: how many logical batches an epoch has.
    """

    __slots__ = ("_steps_per_epoch",)

    def __init__(self, state: LoopState, source: Source, steps_per_epoch: int) -> None:
        super().__init__(state, source)
        self._steps_per_epoch = steps_per_epoch

    def __len__(self) -> int:
        return self._steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        state = self._state
        if state.resumed and not state.left:
            return iter(())  # epochs that were done before training was resumed
        return self._delivered(min(self._steps_per_epoch - state.drawn % self._steps_per_epoch, state.left))

    def passes(self) -> Iterator[Iterator[Any]]:
        """The batches epoch by epoch."""
        while self._state.left:
            yield iter(self)


def loader_of(state: LoopState, source: Source, steps_per_epoch: int | None) -> PrivateLoader:
    """The loader of a loop: of all batches at once, or of a number of steps an epoch.

    Args:
        state, source: of the loop.
        steps_per_epoch: None: the run's passes are its epochs.
    """
    return PrivateLoader(state, source) if steps_per_epoch is None else EpochLoader(state, source, steps_per_epoch)
