"""What the trainers of other libraries share: the run that they plan, and the record and the certificate of what was trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from lethe.accounting.certify import certify
from lethe.certificates.certificate import Certificate
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import InputError
from lethe.run.run import Run


class PlannedTraining(NamedTuple):
    """What is to be trained.

    Args:
        run: with its noise.
        physical_size: records on the device at once.
        steps_per_epoch: logical batches of an epoch.
    """

    run: Run
    physical_size: int
    steps_per_epoch: int


class MeanLoss:
    """The mean loss of a step's records, which is private."""

    def __init__(self) -> None:
        self._told = torch.zeros(2, dtype=torch.float64)  # of this process: the sum of the losses, and of how many records

    def add(self, losses: Tensor, counted: Tensor) -> None:
        """Add a micro-batch.

        Args:
            losses: of its rows, shape (rows,).
            counted: which of them are records.
        """
        found = losses.detach()[counted].double()
        self._told += torch.stack([found.sum(), found.new_tensor(len(found))]).cpu()

    def over(self, add_up: Callable[[Tensor], Tensor] | None, device: torch.device) -> Tensor:
        """The mean over the records of all processes, a scalar in float32; 0 where there are none.

        Args:
            add_up: a tensor on the device, over the processes; None: there is one.
            device: where they exchange tensors.
        """
        told = self._told if add_up is None else add_up(self._told.to(device)).cpu()
        return (told[0] / told[1].clamp(min=1)).to(device, torch.float32)


class RecordedTraining:
    """One training that leaves a record when it is over; what trains sets `_delta` and `_allow_large_delta`, and `_record` at the end."""

    _TRAIN: ClassVar[str]  # the call that trains
    _delta: float
    _allow_large_delta: bool = False
    _record: TrainingRecord | None = None
    _certificate: Certificate | None = None

    def record(self) -> TrainingRecord:
        """The training record: `lethe.certify(self.record(), delta)` certifies and seals it.

        Raises:
            InputError: nothing was trained to its end.
        """
        if self._record is None:
            raise InputError("record: there is none before training is over.", remedy=f"call {self._TRAIN} first.")
        return self._record

    @property
    def certificate_(self) -> Certificate:
        """The sealed certificate of what was trained, at the delta that was given."""
        if self._certificate is None:
            self._certificate = certify(self.record(), self._delta, allow_large_delta=self._allow_large_delta)
        return self._certificate
