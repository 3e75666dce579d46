"""Paying: reserves the cost of a training in a privacy ledger before it begins, and records the executed run's cost after it, so that a
crash leaves no noise uncounted. `fit` and `PrivacyEngine` make one by `paying`; `Notifier` calls it after the other callbacks.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch.distributed as dist

from lethe.certificates.records import TrainingRecord
from lethe.errors import InputError, LetheError
from lethe.run.active_spender import spender_in_force
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.callbacks.callback import Callback, TrainingEnd
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.checkpoints.journal import read_receipt, write_receipt


@runtime_checkable
class Spender(Protocol):
    """What pays for a training: `lethe.ledger.Spending`, which says what each of these does."""

    def reserve_run(self, run: Run) -> int:
        """Reserve the cost of a run; returns the number of the reservation."""
        ...

    def receipt_of(self, number: int) -> str:
        """The line that is written beside the checkpoints, by which a resumed training finds its reservation."""
        ...

    def resume_run(self, receipt: str, run: Run) -> int | None:
        """The number of the reservation in a receipt, for a training that is resumed; None: it has none."""
        ...

    def start_run(self, number: int, run: Run, *, resumed: bool) -> bool:
        """Note that noise is about to be drawn; arguments as `Spending.start_run`."""
        ...

    def settle_run(self, number: int, run: Run, record: TrainingRecord | None) -> None:
        """Replace the reservation by the cost of what was executed; arguments as `Spending.settle_run`."""
        ...

    def void_run(self, number: int, reason: str) -> None:
        """Give the reservation back: no noise was drawn under it."""
        ...


class Paying(Callback):
    """The callback that reserves the cost, notes the start and records the final cost; of several processes number 0 does. A training
    that breaks off stays reserved, with a receipt in the folder of its checkpoints by which it is resumed.
    """

    def __init__(self, spender: object, folder: Path | None = None) -> None:
        if not isinstance(spender, Spender):
            raise InputError(
                f"ledger: got {type(spender).__name__}; it needs what says from which data set to spend.",
                source="ledger",
                remedy="give lethe.ledger.Spending(Ledger.open(FILE), 'DATA SET').",
            )
        self._spender: Spender = spender
        self._folder = folder
        self._number: int | None = None
        self._resumed = self._started = self._settled = False

    def reserve(self, run: Run) -> None:
        """Before a record is read. Processes that train together do it when all are ready, and end together if it fails."""
        require_run(run, correlated=True)
        if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            self._number = self._reserved(run)

    def _reserved(self, run: Run) -> int:
        receipt = None if self._folder is None else read_receipt(self._folder)
        number = None if receipt is None else self._spender.resume_run(receipt, run)
        self._resumed = number is not None
        return self._spender.reserve_run(run) if number is None else number

    def on_train_begin(self, run: Run, *, steps_done: int) -> None:
        """Note in the ledger that noise is about to be drawn; the checkpoints' folder gets the receipt first."""
        if run.seeded:
            raise InputError(
                "ledger: the noise of this training can be made again by whoever knows its seed; no budget pays for that.",
                source="seed, batch_generator, noise_generator",
                remedy="leave the seed out, or the ledger, and release nothing of it.",
            )
        if self._number is None:
            self._number = self._reserved(run)
        if self._folder is not None and not self._resumed:
            write_receipt(self._folder, self._spender.receipt_of(self._number))
        self._settled = not self._spender.start_run(self._number, run, resumed=self._resumed or steps_done > 0)
        self._started = True

    def on_train_end(self, end: TrainingEnd) -> None:
        """Replace the reservation by the cost of the recorded run, once."""
        if self._number is not None and not self._settled:
            self._spender.settle_run(self._number, end.run, end.record)
            self._settled = True

    def on_exception(self, kind: str) -> None:
        """Where no noise was drawn, what was reserved for this call is given back."""
        if self._number is not None and not self._started and not self._resumed:
            number, self._number = self._number, None
            # Where it cannot be given back it stays counted, and what ended the training is what the caller has to see.
            with suppress(LetheError):
                self._spender.void_run(number, f"the training ended before its first step: {kind}")


def paying(ledger: object | None, checkpoints: Checkpoints | str | os.PathLike[str] | None) -> Paying | None:
    """The `Paying` of the caller's ledger, else of the ledger in force (`lethe.ledger.spending`); None where there is none."""
    spender = spender_in_force() if ledger is None else ledger
    folder = None if checkpoints is None else Path(Checkpoints.of(checkpoints).folder)
    return None if spender is None else Paying(spender, folder)
