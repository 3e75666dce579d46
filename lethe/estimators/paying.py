"""Paying for the fit of an estimator: reserved before anything of a record is released, settled with the statement of what was."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lethe.calculus.guarantees import Guarantee
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import InputError
from lethe.run.in_force import known_in_force, spender_in_force
from lethe.run.neighbours import Unit
from lethe.run.run import Neighbours


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """What `ledger` of an estimator becomes when it is pickled: where the ledger is, and on whose behalf is spent, without a password.

    So a model can be loaded where there is no ledger; a fit there opens the ledger, and is refused if it cannot.
    """

    spending: bytes  # the pickled `lethe.ledger.Spending`

    @classmethod
    def of(cls, spender: Any) -> LedgerAddress:
        """The address of a spender, which in this process stands for the spender itself."""
        address = cls(pickle.dumps(spender))
        _OPENED.setdefault(address, spender)
        return address

    def opened(self) -> Any:
        """The spender, with the ledger opened once a process."""
        if self not in _OPENED:
            _OPENED[self] = pickle.loads(self.spending)
        return _OPENED[self]


_OPENED: dict[LedgerAddress, Any] = {}


def sent_along(ledger: Any) -> Any:
    """What an estimator that is pickled takes along of its ledger: an address, of what is in force where it names none."""
    spender = known_in_force() if ledger is None else ledger
    return LedgerAddress.of(spender) if _pays(spender) else spender


def _pays(spender: Any) -> bool:
    """Whether it is a `lethe.ledger.Spending`, or has its methods."""
    return all(hasattr(spender, method) for method in ("reserve_release", "start_release", "settle_release"))


def is_paid(ledger: Any) -> bool:
    """Whether something pays for a fit with this parameter `ledger`."""
    return ledger is not None or known_in_force() is not None


def paid(ledger: Any, planned: Callable[[], Statement], *, seeded: bool) -> Callable[[Statement], None] | None:
    """Reserve and start a fit, and return what settles it with the statement of what was released; None where nothing pays for it.

    Where it cost more than was reserved it stays counted. What it will release is asked only where something pays.
    """
    spender = spender_in_force() if ledger is None else ledger
    if spender is None:
        return None
    if isinstance(spender, LedgerAddress):
        spender = spender.opened()
    if not _pays(spender):
        raise InputError(
            f"ledger: got {type(spender).__name__}; it needs what says from which data set to spend.",
            source="the parameter ledger",
            remedy="give lethe.ledger.Spending(Ledger.open(FILE), 'DATA SET').",
        )
    if seeded:
        raise InputError(
            "ledger: the noise of this fit can be made again by whoever knows random_state; no budget pays for that.",
            source="the parameter seed_noise",
            remedy="leave seed_noise out, or the ledger, and release nothing of it.",
        )
    release = planned()
    number = spender.reserve_release(release, most=release.target_delta)
    spender.start_release(number)
    return lambda stated: spender.settle_release(number, stated)


def refuse_unpaid(ledger: Any, name: str) -> None:
    """Refuse a fit that something was to pay for and that never asked it to: of a class of one's own, `name`, that calls no `_pay`."""
    if ledger is not None or spender_in_force() is not None:
        raise InputError(
            f"ledger: {name} drew noise and reserved nothing before; what it released is not counted.",
            source=f"the method fit of {name}",
            remedy="call self._pay(...) in it before the first release; and reserve by hand what this fit cost, if anybody saw it.",
        )


def planned_statement(
    name: str,
    guarantee: Guarantee,
    *,
    neighbours: Neighbours,
    unit: Unit = "record",
    records: int | None = None,
    delta: float | None = None,
) -> Statement:
    """The statement of a release that is still to be made, from public facts alone; delta is where the estimator states its epsilon."""
    return Statement(
        name=name,
        guarantee=guarantee,
        neighbours=neighbours,
        unit=unit,
        findings=(holds("plan", "before the release; its own statement takes the place of this one", evidence="declared"),),
        citations=(),
        records=records,
        target_delta=delta,
    )
