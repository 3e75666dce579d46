"""Account: what was released from a data set, what is reserved and what is left, computed from the ledger's entries in order.

reading.py computes an `Account` from the entries by `account_after`, an entry at a time; `Ledger` refuses by it what exceeds the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from lethe.calculus.large_delta import open_delta
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError, LedgerError, LetheError
from lethe.ledger.budgets import DataSet
from lethe.ledger.chain import Entry, damaged
from lethe.ledger.prices import FREE, Price

State = Literal["reserved", "started", "settled", "voided"]
ADAPTIVE = (
    "the budget holds for everything released within it, though each release was chosen in view of those before; what is spent so far "
    "is the guarantee of these releases only if they, and when to look, were chosen without looking at any."
)
_UNSETTLED = "“started” is a training that runs, or that broke off: it may have released something, and stays counted. "
NOT_COUNTED = "not counted: what was released from this data set without a reservation here."
# What may follow which state, and what it then is.
_FOLLOWS: dict[str, tuple[State, tuple[State, ...]]] = {
    "start": ("started", ("reserved",)),
    "release": ("settled", ("reserved", "started")),
    "void": ("voided", ("reserved",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A part of a budget that is counted as spent, and what became of it.

    Args:
        number: of the reservation.
        state: reserved; started: noise may have been drawn; settled; voided.
        at, by, why, what: when, by whom, what for, and what was reserved.
        guarantee: in words: of the release, and before that of what was reserved.
        price: what is counted of it now; nothing of what was voided.
        declared: what it rests on that nothing proves.
        settled_at, artefact: of the release.
        reason: why it was voided, or how a smaller cost was fixed before.
        data_set: whose budget.
        slack: its share of delta.
        digest: of its entry, which no other reservation of any ledger has.
    """

    number: int
    state: State = "reserved"
    at: str
    by: str
    why: str
    what: str
    guarantee: str
    price: Price
    declared: tuple[str, ...]
    settled_at: str = ""
    artefact: str = ""
    reason: str = ""
    data_set: str
    slack: float
    digest: str

    @classmethod
    def of(cls, entry: Entry) -> Reservation:
        """What an entry of kind reservation says."""
        content = entry.fields
        settled_fields = {name: content[name] for name in ("by", "why", "what", "guarantee")}
        return cls(
            number=entry.seq,
            at=entry.at,
            price=Price.of(content["price"]),
            declared=tuple(content["declared"]),
            data_set=entry.data_set,
            slack=float(content["slack"]),
            digest=entry.digest,
            **settled_fields,
        )

    def after(self, entry: Entry) -> Reservation:
        """What becomes of it by a later entry about it; an error where that cannot follow."""
        content, (state, before) = entry.fields, _FOLLOWS[entry.kind]
        if self.state not in before or entry.data_set != self.data_set:
            raise ValueError(f"reservation {self.number} is of {self.data_set}, and {self.state} already")
        if entry.kind == "start":
            return replace(self, state=state)
        if entry.kind == "void":
            return replace(self, state=state, price=FREE, reason=content["reason"])
        price = Price.of(content["price"])
        if not price.within(self.price) or (price != self.price and not content["fixed_before"]):
            raise ValueError("what is counted of it is not what was reserved")
        settled_fields = {name: content[name] for name in ("what", "guarantee", "artefact")}
        settled = {"settled_at": entry.at, "reason": content["fixed_before"], "declared": tuple(content["declared"])}
        return replace(self, state=state, price=price, **settled, **settled_fields)


@dataclass(slots=True, kw_only=True)
class Account:
    """What a ledger says of a data set.

    Args:
        terms: on which the data set was entered.
        head: the digest of the last entry about the data set.
        counted: what is settled and reserved together.
        history: when what was counted, one pair an entry.
        spenders: who may reserve, where the data set is closed.
        reservations: by their numbers, in order.
    """

    terms: DataSet
    head: str
    counted: Price = FREE
    history: list[tuple[str, Price]] = field(default_factory=list)
    spenders: set[str] = field(default_factory=set)
    reservations: dict[int, Reservation] = field(default_factory=dict)

    @property
    def lines(self) -> tuple[Reservation, ...]:
        """The reservations, in order."""
        return tuple(self.reservations.values())

    def follow(self, entry: Entry) -> None:
        """Take in the next entry about this data set; whatever error says that it does not follow."""
        content, change = entry.fields, FREE
        if entry.kind == "spender":
            self.spenders.add(content["name"])
        elif entry.kind == "reservation":
            line = Reservation.of(entry)
            if self.terms.closed and line.by not in self.spenders:
                raise ValueError("who reserved was not admitted")
            self.reservations[entry.seq], change = line, line.price
        elif entry.kind in _FOLLOWS:
            before = self.reservations[content["reservation"]]
            line = self.reservations[before.number] = before.after(entry)
            change = line.price - before.price
        counted = self.counted + change
        if counted != entry.counted or not counted.within(self.terms.limit) or counted.cost < 0 or counted.slack < 0:
            raise ValueError("what it counts is not the sum, or above the limit")
        self.counted, self.head = counted, entry.digest
        self.history.append((entry.at, counted))

    def epsilon(self, delta: float | None = None) -> float:
        r"""$\epsilon$ of what is counted, composed; rounded up.

        Args:
            delta: in (0, 1); None: that of the budget.
        """
        return self._epsilon(self.counted, delta)

    def epsilon_alone(self, line: Reservation, delta: float | None = None) -> float:
        """As `epsilon`, of the price of one reservation alone; of what has no exact price it is above its own epsilon."""
        return self._epsilon(line.price, delta)

    def _epsilon(self, price: Price, delta: float | None) -> float:
        level = self.delta if delta is None else open_delta(delta)
        return self.terms.budget.guarantee_of(price).epsilon(level) if price != FREE else 0.0

    @property
    def delta(self) -> float:
        """The budget's delta."""
        if self.terms.budget.delta is None:
            raise InputError(
                f"delta: the budget of {self.terms.name} is one of {self.terms.budget.kind}, without a delta.",
                source="delta",
                remedy="give one, such as 1e-6.",
            )
        return self.terms.budget.delta

    def largest_epsilon(self, delta: float | None = None) -> float:
        r"""The largest $\epsilon$ of a Gaussian release that still fits, rounded down."""
        return self.terms.budget.largest_epsilon(self.terms.limit - self.counted, self.delta if delta is None else open_delta(delta))

    @property
    def declared(self) -> tuple[str, ...]:
        """Everything the sum rests on that nothing proves, a line each, with the reservations that rest on it."""
        by: dict[str, list[str]] = {}
        for line in self.lines:
            for statement in line.declared if line.state != "voided" else ():
                by.setdefault(statement, []).append(str(line.number))
        return (NOT_COUNTED, *(f"{statement} (of {_shortened_list(numbers)})" for statement, numbers in by.items()))

    @property
    def note(self) -> str:
        """What has to be known beside the numbers."""
        return f"{_UNSETTLED if any(line.state == 'started' for line in self.lines) else ''}{ADAPTIVE}"

    def explain(self, delta: float | None = None) -> str:
        """The account as text for a person."""
        level = delta if self.terms.budget.delta is None else self.delta
        lines = list(self.title(level))
        for line in self.lines:
            cost_words = "" if level is None else f"   counts as epsilon {shown(self.epsilon_alone(line, level))}"
            lines.append(
                f"    {line.number:>6}   {line.state:<8}   {line.at[:19]}   {line.by}{cost_words}   {line.what}   {line.guarantee}"
            )
        lines += [f"note: {self.note}", *(f"    declared   {line}" for line in self.declared)]
        return "\n".join(lines)

    def title(self, delta: float | None = None) -> tuple[str, ...]:
        """Three lines: the budget, what is counted of it, and what still fits."""
        level = self.terms.budget.delta if self.terms.budget.delta is not None else delta
        spent = "" if level is None else f": epsilon {shown(self.epsilon(level))} at delta = {level:g}"
        return (
            f"{self.terms.name}: a budget of {self.terms.budget.describe()} for everything released; protected is {self.terms.about()}",
            f"spent by {len(self.lines)} reservations{spent}; {self._share(self.counted):.4%} of the budget",
            self.terms.what_fits(self.counted, level),
        )

    def _share(self, counted: Price) -> float:
        """The part of the budget that is counted, in [0, 1]."""
        return round_up(counted.cost / self.terms.limit.cost)

    def to_dict(self, delta: float | None = None) -> dict[str, Any]:
        """The account as plain data."""
        level = self.terms.budget.delta if self.terms.budget.delta is not None else delta
        numbers = {} if level is None else {"epsilon": self.epsilon(level), "largest_epsilon": self.largest_epsilon(level), "delta": level}
        return {
            "data_set": self.terms.name,
            "title": list(self.title(level)),
            "neighbours": self.terms.neighbours,
            "unit": self.terms.unit,
            "budget": self.terms.budget.to_dict(),
            "counted": self.counted.to_dict(),
            "limit": self.terms.limit.to_dict(),
            "share": self._share(self.counted),
            **numbers,
            "reservations": [self._line(line, level) for line in self.lines],
            "declared": list(self.declared),
            "note": self.note,
            "history": [{"at": at, "share": self._share(counted)} for at, counted in self.history],
            "head": self.head,
        }

    def _line(self, line: Reservation, level: float | None) -> dict[str, Any]:
        plain = {field.name: getattr(line, field.name) for field in fields(line) if field.name not in ("data_set", "slack", "digest")}
        epsilon = {} if level is None else {"epsilon": self.epsilon_alone(line, level)}
        return plain | epsilon | {"price": line.price.to_dict(), "declared": list(line.declared)}


def account_after(account: Account | None, entry: Entry) -> Account:
    """The account with one entry more, which must follow from those before; None: its data set is entered by it."""
    try:
        if (entry.kind == "data_set") != (account is None):
            raise ValueError("its data set is unknown, or entered twice")
        account = Account(terms=DataSet.of(entry), head="") if account is None else account
        account.follow(entry)
    except LedgerError:
        raise
    except (LetheError, KeyError, TypeError, ValueError) as error:
        raise damaged(entry.seq, f"what it says does not hold: {str(error).splitlines()[0]}") from error
    return account


def _shortened_list(numbers: list[str]) -> str:
    return ", ".join(numbers[:6]) + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")
