"""The loss functions of a user's loop: each is checked when it is first used, and when it changed."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lethe.train.checks.loss import CheckedLoss, LossFunction
from lethe.train.clipping import Clipper
from lethe.train.clipping.behaviour import behaviour_of


class LoopLosses:
    """The checked loss functions of a user's loop.

    Args:
        clipper: of the model.

    Attributes:
        missing: what could not be said of one of the functions; None if nothing is missing.
    """

    def __init__(self, clipper: Clipper) -> None:
        self._clipper = clipper
        self._checked: CheckedLoss | None = None
        self.missing: str | None = None

    def __call__(self, criterion: LossFunction, outputs: Any, targets: Tensor) -> Tensor:
        """The losses.

        Raises:
            InputError: a record's loss depends on the other records of its batch, or on earlier ones.
        """
        if self._checked is None or behaviour_of(self._checked.function) != behaviour_of(criterion):
            self._checked = CheckedLoss(criterion, self._clipper)
        losses = self._checked(outputs, targets)
        self.missing = self.missing or self._checked.missing
        return losses
