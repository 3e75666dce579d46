"""LoopProgress: where a loop of one's own stands, as its engine tells it."""

from __future__ import annotations

from torch import Tensor

from lethe.errors import InputError
from lethe.train.engine.state import LoopState
from lethe.train.fitted import Report


class LoopProgress:
    """What the engine of a loop is asked along the way; an error before `make_private`."""

    _loop: LoopState | None = None

    @property
    def steps(self) -> int:
        """Steps taken, including those before training was resumed."""
        return self._begun.steps

    @property
    def stepped(self) -> bool:
        """Whether the optimiser has just taken a logical step, and not left a half batch alone: `if engine.stepped: scheduler.step()`."""
        return self._begun.stepped

    @property
    def batch_complete(self) -> bool:
        """Whether `backward` has completed a logical batch, so that optimizer.step() moves the model."""
        return self._begun.complete

    @property
    def resumed(self) -> int:
        """The steps that were done when training was resumed from a checkpoint; 0 if it began here."""
        return self._begun.resumed

    @property
    def counted(self) -> Tensor:
        """Which rows of the present micro-batch are records, shape (rows,), on the model's device; the others are padding."""
        return self._begun.counted

    @property
    def declared(self) -> tuple[str, ...]:
        """The assumptions of the certificate so far that nobody checked, one statement each."""
        return self._begun.declared

    @property
    def report(self) -> Report | None:
        """What happened to the data, private; None before `recorded_run`."""
        return self._begun.report

    @property
    def _begun(self) -> LoopState:
        if self._loop is None:
            raise InputError("the engine has no model yet.", remedy="call engine.make_private(module=..., optimizer=..., data=...) first.")
        return self._loop
