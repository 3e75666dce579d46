"""The batches of a run, for a user's loop: all in one, pass by pass, or epoch by epoch."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sized
from typing import Any

import torch

from lethe.train.data.sources.base import Source
from lethe.train.engine.refusals import no_more_epochs, nothing_left, scheduled_anew
from lethe.train.engine.state import LoopState


class PrivateLoader:
    """The batches of a run, on the model's device: tuples of tensors, or dicts where records have fields.

    Iterating once gives all batches that are left, in micro-batches if there is a physical size. Its length is the number of the run's
    steps; how many micro-batches those are depends on the secret draw.

    Args:
        state: of the loop.
        source: of the records.
        dataset: that was given.

    Attributes:
        dataset: that was given, if its length is the number of records; else, of a pair of arrays for instance, the source that reads it.
    """

    __slots__ = ("_state", "dataset")

    def __init__(self, state: LoopState, source: Source, dataset: Any) -> None:
        self._state = state
        self.dataset = dataset if isinstance(dataset, Sized) and len(dataset) == len(source) else source

    @property
    def batch_size(self) -> int:
        """Records (of users: users) of a logical batch: their expected number where it is random."""
        return self._state.batch_size

    def __len__(self) -> int:
        return self._state.total_steps

    def __iter__(self) -> Iterator[Any]:
        return self._delivered(self._state.left)

    def passes(self) -> Iterator[Iterator[Any]]:
        """The batches pass by pass, for loops over epochs: `for epoch in loader.passes(): for inputs, targets in epoch: ...`."""
        while self._state.left:
            yield self._delivered(self._state.left_in_pass)

    def _delivered(self, steps: int) -> Iterator[Any]:
        return self._state.deliver(steps)


class EpochLoader(PrivateLoader):
    """The batches of a run whose epochs are those of a user's DataLoader: iterating once gives an epoch, as with Opacus.

    Its length is the number of logical batches of an epoch; with a physical size there are more micro-batches than that, how many is left
    to chance.

    Args:
        state, source, dataset: as of a PrivateLoader.
        steps_per_epoch: how many logical batches an epoch has.
        optimizer: of the loop.
        saved: what else is in its checkpoints, such as a scheduler.
    """

    __slots__ = ("_optimizer", "_saved", "_steps_per_epoch")

    def __init__(
        self,
        state: LoopState,
        source: Source,
        dataset: Any,
        steps_per_epoch: int,
        optimizer: torch.optim.Optimizer,
        saved: Collection[Any],
    ) -> None:
        super().__init__(state, source, dataset)
        self._steps_per_epoch, self._optimizer, self._saved = steps_per_epoch, optimizer, saved

    def __len__(self) -> int:
        return self._steps_per_epoch

    def __iter__(self) -> Iterator[Any]:
        state = self._state
        if not state.left and not state.resumed:
            raise no_more_epochs(state.total_steps)
        if not state.left:
            warnings.warn(nothing_left(state.resumed, state.total_steps), stacklevel=2)
            return iter(())
        if 0 < state.resumed == state.drawn and self._scheduled_anew():
            warnings.warn(scheduled_anew(state.resumed), stacklevel=2)
        return self._delivered(min(self._steps_per_epoch - state.drawn % self._steps_per_epoch, state.left))

    def _scheduled_anew(self) -> bool:
        """Whether a scheduler sets the learning rate that no checkpoint has."""
        scheduled = getattr(self._optimizer.step, "_wrapped_by_lr_sched", False)
        return scheduled and not any(getattr(part, "optimizer", None) is self._optimizer for part in self._saved)

    def passes(self) -> Iterator[Iterator[Any]]:
        """The batches epoch by epoch."""
        while self._state.left:
            yield iter(self)
