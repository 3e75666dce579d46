"""Account: what was released from a data set, what is reserved, and what is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lethe.calculus.large_delta import open_delta
from lethe.calculus.rounding import round_up
from lethe.calculus.upward_formatting import shown
from lethe.errors import InputError
from lethe.ledger.chain import Entry, damaged
from lethe.ledger.data_set import DataSet, price_fields
from lethe.ledger.prices import FREE, Price
from lethe.ledger.reservation import State

ADAPTIVE = (
    "the budget holds for everything released within it, though each release was chosen in view of those before; what is counted so far "
    "is the guarantee of these releases only if they, and when to look, were chosen without looking at any."
)
NOT_COUNTED = "not counted: what was released from this data set without a reservation here."


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A reservation and what became of it.

    Args:
        number: of the reservation.
        state: reserved; started: noise may have been drawn; settled; voided.
        at, by, why, what: when, by whom, what for, and what was reserved.
        guarantee: in words: of the release, and before that of what was reserved.
        price: what is counted of it now; nothing of what was voided.
        counted: of the data set in all, after the reservation.
        declared: what it rests on that nothing proves.
        settled_at, artefact: of the release.
        reason: why it was voided, or how a smaller cost was fixed before.
    """

    number: int
    state: State
    at: str
    by: str
    why: str
    what: str
    guarantee: str
    price: Price
    counted: Price
    declared: tuple[str, ...]
    settled_at: str = ""
    artefact: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a ledger says of a data set.

    Args:
        terms: on which the data set was entered.
        counted: what is settled and reserved together.
        lines: the reservations, in order.
        history: when what was counted, one pair an entry.
        head: the digest of the last entry about the data set.
    """

    terms: DataSet
    counted: Price
    lines: tuple[Line, ...]
    history: tuple[tuple[str, Price], ...]
    head: str

    def epsilon(self, delta: float | None = None) -> float:
        r"""$\epsilon$ of what is counted, composed; rounded up.

        Args:
            delta: in (0, 1); None: that of the budget.
        Raises:
            InputError: there is none, or it is outside its range.
        """
        return self._epsilon(self.counted, delta)

    def epsilon_alone(self, line: Line, delta: float | None = None) -> float:
        """As `epsilon`, of the price of one reservation alone; of what has no exact price it is above its own epsilon."""
        return self._epsilon(line.price, delta)

    def _epsilon(self, price: Price, delta: float | None) -> float:
        level = self.delta if delta is None else open_delta(delta)
        return self.terms.budget.guarantee_of(price).epsilon(level) if price != FREE else 0.0

    @property
    def delta(self) -> float:
        """The budget's delta.

        Raises:
            InputError: it has none.
        """
        if self.terms.budget.delta is None:
            raise InputError(
                f"delta: the budget of {self.terms.name} is one of {self.terms.budget.kind}, without a delta.",
                source="delta",
                remedy="give one, such as 1e-6.",
            )
        return self.terms.budget.delta

    def largest_epsilon(self, delta: float | None = None) -> float:
        r"""The largest $\epsilon$ of a Gaussian release that still fits, rounded down."""
        return self.terms.budget.largest_epsilon(self.terms.left(self.counted), self.delta if delta is None else open_delta(delta))

    @property
    def declared(self) -> tuple[str, ...]:
        """Everything the sum rests on that nothing proves, a line each, with the reservations that rest on it."""
        by: dict[str, list[str]] = {}
        for line in self.lines:
            for one in line.declared if line.state != "voided" else ():
                by.setdefault(one, []).append(str(line.number))
        return (NOT_COUNTED, *(f"{one} (of {_few(numbers)})" for one, numbers in by.items()))

    def explain(self, delta: float | None = None) -> str:
        """The account as text for a person."""
        level = delta if self.terms.budget.delta is None else self.delta
        lines = list(self.title(level))
        for line in self.lines:
            alone = "" if level is None else f"   priced as epsilon {shown(self.epsilon_alone(line, level))}"
            lines.append(f"    {line.number:>6}   {line.state:<8}   {line.at[:19]}   {line.by}{alone}   {line.what}   {line.guarantee}")
        lines += [f"note: {ADAPTIVE}", *(f"    declared   {line}" for line in self.declared)]
        return "\n".join(lines)

    def title(self, delta: float | None = None) -> tuple[str, ...]:
        """Three lines: the budget, what is counted of it, and what still fits."""
        level = self.terms.budget.delta if self.terms.budget.delta is not None else delta
        spent = "" if level is None else f": epsilon {shown(self.epsilon(level))} at delta = {level:g}"
        return (
            f"{self.terms.name}: {self.terms.budget.describe()}, for {self.terms.about()}",
            f"counted of {len(self.lines)} reservations{spent}; {self.share:.4%} of the budget",
            self.terms.what_fits(self.counted, level),
        )

    def _share(self, counted: Price) -> float:
        return round_up(counted.cost / self.terms.limit.cost)

    @property
    def share(self) -> float:
        """The part of the budget that is counted, in [0, 1]."""
        return self._share(self.counted)

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
            "counted": price_fields(self.counted),
            "limit": price_fields(self.terms.limit),
            "share": self.share,
            **numbers,
            "reservations": [
                {
                    "number": line.number,
                    "state": line.state,
                    "at": line.at,
                    "by": line.by,
                    "why": line.why,
                    "what": line.what,
                    "guarantee": line.guarantee,
                    "price": price_fields(line.price),
                    **({} if level is None else {"epsilon": self.epsilon_alone(line, level)}),
                    "settled_at": line.settled_at,
                    "artefact": line.artefact,
                    "reason": line.reason,
                    "declared": list(line.declared),
                }
                for line in self.lines
            ],
            "declared": list(self.declared),
            "note": ADAPTIVE,
            "history": [{"at": at, "share": self._share(counted)} for at, counted in self.history],
            "head": self.head,
        }


def account_of(terms: DataSet, entries: Iterable[Entry]) -> Account:
    """The account that the entries about a data set make, in their order.

    Raises:
        LedgerError: they contradict one another.
    """
    lines: dict[int, Line] = {}
    history: list[tuple[str, Price]] = []
    last = None
    for entry in entries:
        last = entry
        history.append((entry.at, entry.counted))
        said = entry.fields
        try:
            _take(lines, entry, said)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(entry.seq, "it does not follow from the entries before") from error
    assert last is not None
    return Account(terms=terms, counted=last.counted, lines=tuple(lines.values()), history=tuple(history), head=last.digest)


def _take(lines: dict[int, Line], entry: Entry, said: dict[str, Any]) -> None:
    match entry.kind:
        case "reservation":
            lines[entry.seq] = Line(
                number=entry.seq,
                state="reserved",
                at=entry.at,
                by=said["by"],
                why=said["why"],
                what=said["what"],
                guarantee=said["guarantee"],
                price=_price(said),
                counted=entry.counted,
                declared=tuple(said["declared"]),
            )
        case "start":
            lines[said["reservation"]] = _changed(lines[said["reservation"]], state="started")
        case "release":
            lines[said["reservation"]] = _changed(
                lines[said["reservation"]],
                state="settled",
                settled_at=entry.at,
                what=said["what"],
                guarantee=said["guarantee"],
                price=_price(said),
                declared=tuple(said["declared"]),
                artefact=said["artefact"],
                reason=said["fixed_before"],
            )
        case "void":
            lines[said["reservation"]] = _changed(lines[said["reservation"]], state="voided", price=FREE, reason=said["reason"])
        case _:
            pass


def _changed(line: Line, **values: Any) -> Line:
    return Line(**{name: values.get(name, getattr(line, name)) for name in Line.__slots__})


def _price(said: dict[str, Any]) -> Price:
    return Price(int(said["price"]["cost"]), int(said["price"]["slack"]))


def _few(numbers: list[str]) -> str:
    return ", ".join(numbers[:6]) + (f" and {len(numbers) - 6} more" if len(numbers) > 6 else "")
