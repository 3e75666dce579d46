"""What the trainers of other libraries share: the run that was planned, and the record and the certificate of what was trained."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from lethe.accounting.certify import certify
from lethe.certificates.certificate import Certificate
from lethe.certificates.training_record import TrainingRecord
from lethe.errors import InputError
from lethe.run.run import Run


class Planned(NamedTuple):
    """What is to be trained.

    Args:
        run: with its noise.
        physical_size: records on the device at once.
        steps_per_epoch: logical batches of an epoch.
    """

    run: Run
    physical_size: int
    steps_per_epoch: int


class RecordedTraining:
    """One training that leaves a record when it is over; what trains sets `_delta`, and `_record` at the end."""

    _TRAIN: ClassVar[str]  # the call that trains
    _delta: float
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
            self._certificate = certify(self.record(), self._delta)
        return self._certificate
