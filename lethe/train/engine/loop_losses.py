"""The loss functions of a user's loop: each is checked when it is first used, and when it changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lethe.train.checks.loss import CheckedLoss, LossFunction
from lethe.train.clipping import Clipper
from lethe.train.clipping.behaviour import behaviour_of
from lethe.train.engine.padding_check import LossCall


class LoopLosses:
    """The checked loss functions of a user's loop.

    Args:
        clipper: of the model.

    Attributes:
        missing: what could not be said of one of the functions; None if nothing is missing.
        bare: whether losses were handed over that no checked function computed.
    """

    def __init__(self, clipper: Clipper) -> None:
        self._clipper = clipper
        self._checked: CheckedLoss | None = None
        self._last: LossCall | None = None
        self.missing: str | None = None
        self.bare = False

    def __call__(self, criterion: LossFunction, outputs: Any, targets: Tensor) -> Tensor:
        """The losses.

        Raises:
            InputError: a record's loss depends on the other records of its batch, or on earlier ones.
        """
        if self._checked is None or behaviour_of(self._checked.function) != behaviour_of(criterion):
            self._checked = CheckedLoss(criterion, self._clipper)
        losses = self._checked(outputs, targets)
        self.missing = self.missing or self._checked.missing
        if isinstance(losses, Tensor):  # else `backward` says what is wrong
            self._last = LossCall(losses, losses._version, criterion, self._checked.losses, outputs, targets)
        return losses

    def forget(self) -> None:
        """A new recording: the losses of the last one are its own."""
        self._last = None

    def call_of(self, losses: Any) -> LossCall | None:
        """How these losses were computed, if they are the last ones as they were, and not changed since."""
        last, self._last = self._last, None
        if last is not None and last.losses is losses and last.version == losses._version:
            return last
        self.bare = True
        return None
