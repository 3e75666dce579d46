"""Spending: on whose behalf, and from which data set, trainings are paid for."""

from __future__ import annotations

from dataclasses import dataclass

from lethe.accounting.certify import certify
from lethe.calculus.large_delta import usual_delta
from lethe.certificates.certificate import Certificate
from lethe.certificates.training_record import TrainingRecord
from lethe.ledger.documents import presented, priced
from lethe.ledger.ledger import Ledger
from lethe.ledger.prices import Price
from lethe.ledger.refusals import more_than_reserved
from lethe.ledger.reservation import with_rounding
from lethe.run.run import Run


@dataclass(frozen=True, slots=True)
class Spending:
    """What `ledger=` of a training takes: `Spending(ledger, "patients", by="team A")`.

    Each training with it reserves what its run costs before it reads a record, says when noise is about to be drawn, and is settled with
    the run that was recorded.

    Args:
        ledger: it.
        data_set: whose budget.
        by: who; None: the user of this process.
        why: what for.
        slack: the share of delta for a run without an exact price, such as Poisson batches.
        reservation: of a training that goes on from a checkpoint: the one that it was begun under.
    """

    ledger: Ledger
    data_set: str
    by: str | None = None
    why: str = ""
    slack: float = 0.0
    reservation: int | None = None

    def reserve_run(self, run: Run) -> int:
        """Reserve what a run costs.

        Raises:
            BudgetExceededError: it does not fit.
            InputError, HypothesisError, LedgerError: as `Ledger.reserve` and `lethe.certify`.
        """
        if self.reservation is not None:
            self._require_paid(self.reservation, run)
            return self.reservation
        return self.ledger.reserve(self.data_set, self._certificate(run), by=self.by, why=self.why, slack=self.slack).number

    def start_run(self, number: int, run: Run) -> None:
        """Say that noise is about to be drawn for a run, which must not cost more than was reserved.

        Raises:
            BudgetExceededError: it costs more.
            InputError, LedgerError: as `Ledger.start`; but a training that goes on was started before.
        """
        if self._require_paid(number, run) == "reserved" or self.reservation is None:
            self.ledger.start(number)

    def settle_run(self, number: int, run: Run, record: TrainingRecord | None) -> None:
        """Settle with the recorded run, and the digest of what was released.

        Args:
            number: of the reservation.
            run: as recorded.
            record: what says what was released; None: nothing does.

        Raises:
            BudgetExceededError, InputError, LedgerError: as `Ledger.settle`.
        """
        artefact = record.released[0].sha256 if record is not None and record.released else ""
        self.ledger.settle(number, self._certificate(run), artefact=artefact, by=self.by, why=self.why)

    def void_run(self, number: int, reason: str) -> None:
        """Give back a reservation under which no noise was drawn.

        Raises:
            InputError, LedgerError: as `Ledger.void`.
        """
        self.ledger.void(number, reason=reason, by=self.by)

    def _certificate(self, run: Run) -> Certificate:
        stated = self.ledger.terms(self.data_set).budget.delta
        usual = usual_delta(run.records)
        return certify(run, delta=usual if stated is None else min(stated, usual))

    def _require_paid(self, number: int, run: Run) -> str:
        """The state of the reservation, which pays for the run."""
        terms = self.ledger.terms(self.data_set)
        state, reserved, slack = self.ledger.standing(number, terms.name)
        part = presented(self._certificate(run), terms.neighbours, terms.unit, terms.name)
        price: Price = priced(part, terms.budget.kind, slack)
        if not price.within(with_rounding(reserved)):
            raise more_than_reserved(number, terms, reserved, price)
        return state
