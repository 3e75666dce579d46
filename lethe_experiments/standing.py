"""The standing of a number about utility: proved, false as printed, or an order of magnitude."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["proved", "refuted", "order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedStanding:
    """Whether a number may be relied on.

    Args:
        kind: "proved": a bound, under its hypotheses; "refuted": printed as a bound, and false; "order": a rate whose constants are
            unnamed, evaluated with all of them 1.
        why: the reason in a clause; empty for "proved".
    """

    kind: Kind
    why: str = ""

    @property
    def usable(self) -> bool:
        """Whether a decision may rest on it."""
        return self.kind == "proved"


PROVED = PublishedStanding(kind="proved")
ORDER = PublishedStanding(kind="order", why="order, constant 1, not a guarantee")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedNumber:
    """A published number that is no bound, kept to compare with. It is deliberately not a float: arithmetic on it is refused.

    Args:
        value: the number; its unit is in the formula's docstring.
        formula: what was evaluated, in LaTeX.
        standing: why it is no bound, "refuted" or "order".
    """

    value: float
    formula: str
    standing: PublishedStanding

    def __str__(self) -> str:
        return f"{self.value:.6g} ({self.standing.why})"


def order(value: float, formula: str) -> PublishedNumber:
    """A rate with its unnamed constants set to 1."""
    return PublishedNumber(value=value, formula=formula, standing=ORDER)


def refuted(value: float, formula: str, why: str) -> PublishedNumber:
    """A published number whose statement is false.

    Args:
        value: what the formula gives.
        formula: as published.
        why: what is wrong with the statement.
    """
    return PublishedNumber(value=value, formula=formula, standing=PublishedStanding(kind="refuted", why=f"refuted: {why}"))
