"""The run's batches as another library's loop asks for them: one logical batch a step, of one or more micro-batches."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any, Protocol

from lethe.run.run import Run


class Engine(Protocol):
    """What is asked of a `PrivacyEngine`."""

    @property
    def batch_complete(self) -> bool:
        """Whether `backward` has completed a logical batch."""
        ...

    @property
    def steps(self) -> int:
        """Steps taken."""
        ...

    @property
    def run(self) -> Run:
        """The run that is carried out."""
        ...


class LogicalBatch:
    """One step's records: iterating gives its micro-batches, each to be used before the next is asked for.

    Args:
        batches: of all steps, micro-batch by micro-batch.
        engine: that knows when a logical batch is complete.
    """

    def __init__(self, batches: Iterator[Any], engine: Engine) -> None:
        self._batches, self._engine = batches, engine

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield next(self._batches)
            if self._engine.batch_complete:
                return


class LogicalBatches:
    """What a loop takes for its DataLoader: logical batches, epoch by epoch; where training goes on, those that are left.

    Args:
        dataset: the records, for their number.
        steps_per_epoch: logical batches of an epoch.
    """

    def __init__(self, dataset: Sized, steps_per_epoch: int) -> None:
        self.dataset, self.batch_size = dataset, None
        self._steps_per_epoch = steps_per_epoch
        self._engine: Engine | None = None
        self._batches: Iterator[Any] = iter(())
        self._given = 0

    def __len__(self) -> int:
        return self._steps_per_epoch

    def open(self, engine: Engine, batches: Iterator[Any], given: int | None = None) -> None:
        """Name the engine whose batches these are; its steps so far are done.

        Args:
            engine: that has a model.
            batches: of its loader, micro-batch by micro-batch.
            given: how many the loop has had; None: as many as there were steps.
        """
        self._engine, self._batches, self._given = engine, batches, engine.steps if given is None else given

    def __iter__(self) -> Iterator[LogicalBatch]:
        """Those of an epoch that are left; an engine may be named between this and the first of them."""
        assert self._engine is not None
        left = self._steps_per_epoch - self._given % self._steps_per_epoch
        for _ in range(min(left, self._engine.run.total_steps - self._given)):
            self._given += 1
            yield LogicalBatch(self._batches, self._engine)

    def state_dict(self) -> dict[str, int]:
        """How many were given: what the engine's own checkpoint knows as well, and more of."""
        return {"given": self._given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing: `open` says where the run is."""

    def drain(self) -> None:
        """After the last step: end the reading, so that what is saved at the end is saved."""
        if self._engine is not None and self._given == self._engine.run.total_steps == self._engine.steps:
            next(self._batches, None)
