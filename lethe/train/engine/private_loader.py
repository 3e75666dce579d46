"""The batches of a run, for a user's loop: all in one, or epoch by epoch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sized
from typing import Any

from torch.utils.data import DataLoader

from lethe.errors import InputError, LetheWarning
from lethe.train.engine.state import LoopState
from lethe.train.network.trainer import Trainer


class PrivateLoader:
    """The batches of a run, on the model's device: tuples of tensors, or dicts where records have fields.

    Iterating once gives all batches that are left; of a run whose epochs are those of a user's DataLoader an epoch, as with Opacus. Its
    length is the number of logical batches of that; with a physical size there are more micro-batches, how many is left to chance.

    Args:
        state, trainer: of the loop.
        data: that the user gave: a data set, or a DataLoader.
        steps_per_epoch: of that DataLoader, in the place of a run; None: all batches are given at once.
    Attributes:
        dataset: that was given, if its length is the number of records; else, of a pair of arrays for instance, the source that reads it.
    """

    def __init__(self, state: LoopState, trainer: Trainer, data: Any, *, steps_per_epoch: int | None) -> None:
        self._state, self._trainer, self._run, self._epoch = state, trainer, trainer.run, steps_per_epoch
        dataset, source = data.dataset if isinstance(data, DataLoader) else data, trainer.source
        self.dataset = dataset if isinstance(dataset, Sized) and len(dataset) == len(source) else source

    @property
    def batch_size(self) -> int:
        """Records (of users: users) of a logical batch: their expected number where it is random."""
        return self._run.batch_size

    def __len__(self) -> int:
        return self._epoch or self._run.total_steps

    def __iter__(self) -> Iterator[Any]:
        state = self._state
        if self._epoch is None:
            return state.deliver(state.left)
        if not state.left and not state.resumed:
            raise InputError(
                f"loader: the batches of all {self._run.total_steps} steps were delivered; another epoch would cost more privacy than was "
                "planned.",
                source="epochs= or steps= of make_private",
                remedy="plan as many epochs as you need from the beginning. To train on from here is another training, with another "
                "engine: the two certificates add up.",
            )
        optimizer = self._trainer.options.optimizer
        saved = any(getattr(part, "optimizer", None) is optimizer for part in self._trainer.kept.also.values())
        scheduled = getattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched", False)
        if 0 < state.resumed == state.drawn and scheduled and not saved:
            message = (
                f"scheduler: training goes on after step {state.resumed}, and the learning rate's scheduler begins again, since it was not "
                'saved; give PrivacyEngine(checkpoints=Checkpoints(folder=..., also={"scheduler": scheduler})).'
            )
            warnings.warn(LetheWarning(message), stacklevel=2)
        return state.deliver(self._left_of(self._epoch)) if state.left else iter(())

    def passes(self) -> Iterator[Iterator[Any]]:
        """The batches pass by pass, or epoch by epoch: `for epoch in loader.passes(): for batch in epoch: ...`."""
        while self._state.left:
            yield iter(self) if self._epoch else self._state.deliver(self._left_of(self._run.steps_per_pass))

    def _left_of(self, steps: int) -> int:
        """Steps of the present epoch (of the next one where an epoch is over) whose batches were not used yet."""
        return min(steps - self._state.drawn % steps, self._state.left)
