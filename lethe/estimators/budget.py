"""PrivacyBudget: the total privacy an estimator may spend; and paying for a fit from a ledger before anything is released.

An estimator makes its `PrivacyBudget` from epsilon and delta in `fit`; each release of that fit is planned on it, and its `Statement` is
subtracted. `paid` reserves the whole in a ledger, where one is used, before a record is read; `private_score` and `describe` pay in the
same way.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lethe.calculus.any_guarantee import joined
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.domains import require_positive
from lethe.calculus.guarantees import GDP, ApproxDP, Guarantee
from lethe.calculus.large_delta import delta_for, open_delta, usual_delta
from lethe.calculus.rounding import round_down
from lethe.certificates.findings import holds
from lethe.certificates.statement import Statement
from lethe.errors import CalibrationError, InputError
from lethe.mechanisms.base import require_swap
from lethe.run.active_spender import known_in_force, spender_in_force
from lethe.run.participation import Unit
from lethe.run.run import Neighbours

# Of the target, when the joint cost misses the total: by rounding at first, then by a composition that is looser than Gaussian.
_FIRST_SHRINK, _LAST_SHRINK = 1e-12, 2e-3
_TRIALS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyBudget:
    r"""$(\epsilon, \delta)$ in all, of which `spent` is gone."""

    epsilon: float  # > 0, finite
    delta: float  # in (0, 1)
    neighbours: Neighbours = "zero_out"
    spent: tuple[Statement, ...] = ()  # statements on the same data, released before

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_positive("epsilon", self.epsilon))
        object.__setattr__(self, "delta", open_delta(self.delta))
        require_swap(self.neighbours)

    @property
    def total_mu(self) -> float:
        r"""The largest $\mu$, rounded down, with which $\mu$-GDP implies the whole target."""
        return gdp_mu(self.epsilon, self.delta)

    @property
    def mu(self) -> float:
        r"""The remaining budget in $\mu$, as if all that was spent were Gaussian: for predictions, never for a guarantee."""
        planned = (statement.planned for statement in self.spent)
        mus = (guarantee.mu if isinstance(guarantee, GDP) else gdp_mu(guarantee.epsilon(self.delta), self.delta) for guarantee in planned)
        return math.sqrt(max(self.total_mu**2 - sum(mu**2 for mu in mus), 0.0))

    def as_gaussian(self) -> GDP:
        """The whole target as one Gaussian mechanism: what releases that are all Gaussian, within the target, cost together at most."""
        return GDP(self.total_mu)

    def planned(self, name: str, records: int) -> Callable[[], Statement]:
        """What releases that are all Gaussian will cost together, before any of them."""
        about: dict[str, Any] = {"neighbours": self.neighbours, "records": records, "delta": self.delta}
        return lambda: planned_statement(name, self.as_gaussian(), **about)

    def share(self, part: float) -> GDP:
        r"""A part p in (0, 1) of the total for one release: $\mu\sqrt p$, since squares of $\mu$ add up; rounded down."""
        return GDP(round_down(self.total_mu * math.sqrt(part), 4e-15))

    def planned_share(self, records: int, *, units: float, smallest: float, largest: float) -> GDP:
        r"""`share` of the part that makes n times its $\mu$ so many units: $p = (u/(n\mu))^2$, within least and most."""
        return self.share(min(max((units / (records * self.total_mu)) ** 2, smallest), largest))

    def with_spent(self, *statements: Statement) -> PrivacyBudget:
        """A copy of which more has been spent."""
        return replace(self, spent=(*self.spent, *statements))

    def with_all(self, guarantee: Guarantee) -> Guarantee:
        """`guarantee` together with all that was spent."""
        return joined([(one, 1) for one in (*(one.planned for one in self.spent), guarantee)])

    def settle(self, guarantee_at: Callable[[ApproxDP], Guarantee]) -> ApproxDP:
        r"""A target $(\epsilon', \delta)$ for one more mechanism, of the cost `guarantee_at` it, with which all meets the total."""
        remaining = self.mu
        epsilon = min(GDP(remaining).epsilon(self.delta), self.epsilon) if self.spent else self.epsilon
        for trial in range(_TRIALS):
            if epsilon <= 0.0:
                break
            target = ApproxDP(epsilon, self.delta)
            joint = self.with_all(guarantee_at(target)).epsilon(self.delta)
            if joint <= self.epsilon:
                return target
            epsilon *= self.epsilon / joint * (1.0 - min(_FIRST_SHRINK * 10.0**trial, _LAST_SHRINK))
        raise self.exhausted()

    def exhausted(self) -> CalibrationError:
        """The error where nothing is left for the training."""
        return CalibrationError(
            f"epsilon = {self.epsilon:g}: nothing is left of it for the training.",
            source="; ".join(statement.name for statement in self.spent),
            remedy="give bounds that need no private release, such as feature_norm, or a larger epsilon",
        )


def whole_budget(epsilon: float, delta: float | None, records: int, neighbours: Neighbours, *, large: bool = False) -> PrivacyBudget:
    """The whole of it, for n records: delta as it was asked for, and below 1/n unless a `large` one is meant; None: the usual."""
    level = usual_delta(records) if delta is None else delta_for(records, delta, allow_large_delta=large)
    return PrivacyBudget(epsilon=epsilon, delta=level, neighbours=neighbours)


@dataclass(frozen=True, slots=True)
class LedgerAddress:
    """What `ledger` of an estimator becomes when it is pickled, without a password: where it is not there, a fit opens it or is refused."""

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
    """Whether it is a `lethe.ledger.Spending`, or has its method."""
    return hasattr(spender, "begin_release")


def paid(ledger: Any, planned: Callable[[], Statement], *, seeded: bool) -> Callable[[Statement], None] | None:
    """Reserve and start a fit, and return what settles it with its statement; None where nothing pays. What cost more stays counted."""
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
    return spender.begin_release(release, max_slack=release.target_delta).settle


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
