"""Spending: on whose behalf, and from which data set, trainings, fits and releases by hand are paid for.

Trainings and estimators take a `Spending` as `ledger=`, and call its steps before noise is drawn and after; `spending` gives all within a
block one, `Spending.release` is for releases by hand.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import usual_delta
from lethe.calculus.upward_formatting import shown
from lethe.certificates.certificate import Certificate
from lethe.certificates.records import TrainingRecord
from lethe.errors import InputError, LetheError, LetheWarning
from lethe.ledger.accounts import State
from lethe.ledger.documents import more_than_reserved, needed_slack, presented, priced
from lethe.ledger.ledger import Ledger
from lethe.ledger.prices import has_exact_price
from lethe.run.active_spender import in_force
from lethe.run.run import Run

_MARGIN = 1e-5
_MUCH = 1.05  # times the epsilon of a release that counts as more in its budget, which is then said


@dataclass(frozen=True, slots=True)
class Spending:
    """What `ledger=` of a training or an estimator takes: `Spending(ledger, "patients", by="team A")`.

    Each training with it reserves what its run costs before it reads a record, says when noise is about to be drawn, and is settled with
    the run that was recorded. Each fit of an estimator reserves its planned guarantee when its parameters and the shape of its data are
    checked and nothing else of a record was looked at; it is settled with its statement.

    Args:
        ledger: it.
        data_set: whose budget.
        by: who; None: the user of this process.
        why: what for.
        slack: the share of delta for what has no exact price, such as a run with Poisson batches. 0: such a run is refused; such a fit of
            an estimator takes a hundredth of what the data set's budget sets aside, but never more than its own delta.
        reservation: pay for one training with this one, which was made before, such as by `lethe ledger reserve`. A training that goes on
            from its checkpoints finds its reservation there.
    Raises:
        InputError: `ledger` is no open Ledger.
    """

    ledger: Ledger
    data_set: str
    by: str | None = None
    why: str = ""
    slack: float = 0.0
    reservation: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ledger, Ledger):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"ledger: got {type(self.ledger).__name__}; it needs an open ledger.",
                source="Spending, spending",
                remedy="Spending(Ledger.open(FILE), 'DATA SET').",
            )

    def reserve_run(self, run: Run) -> int:
        """Reserve what a run costs."""
        if self.reservation is not None:
            self._require_paid(self.reservation, run)
            return self.reservation
        certificate = self._certificate(run)
        own_cost = certificate.epsilon, certificate.delta, certificate.guarantee
        with self._reserved(certificate, f"the run {run.run_id}", *own_cost, slack=self.slack) as number:
            return number

    def receipt_of(self, number: int) -> str:
        """The number of a reservation and the digest of its entry."""
        return f"{number} {self.ledger.status(number).digest}"

    def resume_run(self, receipt: str, run: Run) -> int | None:
        """The number of the reservation, by its receipt, that a run goes on under; None: it was voided, and the training needs another."""
        digits, _, digest = receipt.partition(" ")
        number = int(digits) if digits.isascii() and digits.isdigit() else 0
        if self.reservation not in (None, number):
            raise InputError(
                f"reservation: got {self.reservation}; the training in this folder was begun under {number}.",
                source="Spending(reservation=...), checkpoints",
                remedy="leave it out: the folder says which it is.",
            )
        try:
            status = self.ledger.status(number)
        except InputError:
            status = None
        if status is None or (status.digest, status.data_set) != (digest, self.data_set):
            raise InputError(
                f"ledger: the training in this folder was begun under reservation {number} of another ledger or data set.",
                source="the file reservation, in the folder of the checkpoints",
                remedy="give the ledger and the data set that it was begun with; or begin another run in another folder.",
            )
        if status.state == "voided":
            return None
        self._require_paid(number, run)
        return number

    def start_run(self, number: int, run: Run, *, resumed: bool) -> bool:
        """Say that noise is about to be drawn for a run, which must not cost more than was reserved.

        Args:
            number: of the reservation.
            run: that is carried out.
            resumed: whether the training was begun before under this reservation, which may then be started or settled.
        Returns:
            Whether it is still to be settled.
        """
        state = self._require_paid(number, run)
        if state == "reserved" or not resumed:
            self.ledger.start(number)
        return state != "settled"

    def settle_run(self, number: int, run: Run, record: TrainingRecord | None) -> None:
        """Settle with the recorded run, and the digest of what was released.

        Args:
            number: of the reservation.
            run: as recorded.
            record: what says what was released; None: nothing does.
        """
        artefact = record.released[0].sha256 if record is not None and record.released else ""
        self.ledger.settle(number, self._certificate(run), artefact=artefact, by=self.by, why=self.why)

    def void_run(self, number: int, reason: str) -> None:
        """Give back a reservation under which no noise was drawn, unless it was made before."""
        if number != self.reservation:
            self.ledger.void(number, reason=reason, by=self.by)

    def begin_release(self, planned: Any, *, max_slack: float | None = None) -> PaidRelease:
        """Reserve what a release that is no run will cost, at the smallest known price, and say that its noise is about to be drawn.

        Args:
            planned: its statement, or its guarantee.
            max_slack: of delta that it may take where it has no exact price, and this spender has no slack; None: what the data set allows.
        """
        if self.reservation is not None:
            raise InputError(
                f"reservation {self.reservation}: it pays for a training, and this is a release of another kind.",
                source="Spending(reservation=...)",
                remedy="leave it out.",
            )
        terms = self.ledger.terms(self.data_set)
        part = presented(planned, terms, key=self.ledger.key)
        slack = self.slack or needed_slack(part, terms, max_slack)
        # The statement of the release is computed again from its own numbers; a cover of it may come out other in the sixth digit.
        margin = 0.0 if has_exact_price(part.guarantee, terms.budget.kind) else _MARGIN
        delta = part.content.get("target_delta") or part.content.get("delta") or terms.budget.delta
        own_cost = None if delta is None else part.guarantee.epsilon(delta), delta, part.guarantee
        with self._reserved(planned, part.name, *own_cost, slack=slack, margin=margin) as number:
            self.ledger.start(number)
        return PaidRelease(self, number)

    @contextmanager
    def _reserved(
        self, item: Any, name: str, epsilon: float | None, delta: float | None, guarantee: Guarantee, *, slack: float, margin: float = 0.0
    ) -> Iterator[int]:
        """Reserve, and warn where that counts as another epsilon than the release's own; what fails before noise is drawn is given back."""
        line = self.ledger.reserve(self.data_set, item, by=self.by, why=self.why, slack=slack, margin=margin)
        budget = self.ledger.terms(self.data_set).budget
        at = budget.delta if budget.delta is not None else delta
        try:
            if epsilon is not None and at is not None and (counted := budget.guarantee_of(line.price).epsilon(at)) > _MUCH * epsilon:
                why = f"The budget is of another delta: plan for delta={at:g}."
                if not has_exact_price(guarantee, budget.kind):
                    why = "Only Gaussian noise, of batches that are not sampled, counts as what it is (docs/ledger.md)."
                text = f"{name}: epsilon {shown(epsilon)} at delta = {delta:g} counts as {shown(counted)} at delta = {at:g}"
                warnings.warn(f"{text} in the budget of {self.data_set}. {why}", LetheWarning, stacklevel=3)
            yield line.number
        except BaseException:
            with suppress(LetheError):
                self.ledger.void(line.number, reason="it could not be started, and nothing was begun", by=self.by)
            raise

    @contextmanager
    def release(self, planned: Any) -> Iterator[PaidRelease]:
        """Pay for a release that is made by hand, with a mechanism of `lethe.mechanisms`, a solver, or elsewhere.

            with Spending(ledger, "patients").release(GDP(0.1)) as release:
                found = private_quantile(ages, ..., target=GDP(0.1))
                release.settle(found.statement)

        It is reserved and started when the block begins. One that is not settled in the block stays counted.

        Args:
            planned: the statement, guarantee, certificate or dp_accounting event of what the block will release.
        Raises:
            BudgetExceededError: it does not fit; the block is not entered.
            InputError, LedgerError: as `Ledger.reserve`.
        """
        yield self.begin_release(planned)

    def _certificate(self, run: Run) -> Certificate:
        stated, usual = self.ledger.terms(self.data_set).budget.delta, usual_delta(run.records)
        return certify(run, delta=usual if stated is None else min(stated, usual))

    def _require_paid(self, number: int, run: Run) -> State:
        """The state of the reservation, which pays for the run."""
        terms, line = self.ledger.terms(self.data_set), self.ledger.status(number)
        if line.data_set != terms.name:
            raise InputError(f"reservation {number} is of {line.data_set}, not of {terms.name}.", source="reservation")
        if line.state == "voided":
            raise InputError(f"reservation {number} is voided already.", source="reservation", remedy="reserve again.")
        price = priced(presented(self._certificate(run), terms), terms, line.slack)
        if not price.within(line.price.with_rounding()):
            raise more_than_reserved(line, price)
        return line.state


@dataclass(frozen=True, slots=True)
class PaidRelease:
    """A release that was reserved and started."""

    spender: Spending
    number: int

    def settle(self, stated: Any, *, artefact: str = "") -> None:
        """Settle it with what was released: its statement, guarantee, certificate or dp_accounting event, and its SHA-256, if it is known.

        Raises:
            BudgetExceededError, InputError, LedgerError: as `Ledger.settle`; what cost more stays counted as reserved.
        """
        self.spender.ledger.settle(self.number, stated, artefact=artefact, by=self.spender.by, why=self.spender.why)


@contextmanager
def spending(ledger: Ledger, data_set: str, *, by: str | None = None, why: str = "", slack: float = 0.0) -> Iterator[Spending]:
    """Within, each fit of an estimator of `lethe.estimators`, and each training of `lethe.train`, is paid for by a data set.

    Whatever names a `ledger=` of its own is paid by that. It holds in every thread of this process; an estimator that is sent to another
    process takes it along. A process that was started within, and in which an estimator is made anew, refuses to fit it. Not seen is what
    is made and fitted in a process that was started before (but for joblib's workers, which are started again), and mechanisms of
    `lethe.mechanisms` and `lethe.heavy_tailed` that are called by hand: for those there is `Spending.release`.

    Args:
        ledger: it.
        data_set: whose budget.
        by, why, slack: as `Spending`.
    Raises:
        InputError: unknown data set, or another one pays in this process already.
        LedgerError: the ledger cannot be read.
    """
    spender = Spending(ledger, data_set, by=by, why=why, slack=slack)
    with in_force(spender, spender.ledger.terms(data_set).name):
        yield spender
