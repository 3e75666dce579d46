"""How numbers, relations and releases are said to a person. Bounds are rounded up, never down."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal

from lethe.calculus.upward_formatting import shown
from lethe.run.neighbours import Unit

RELATIONS = {
    "replace_one": "one record is replaced by any other one; the number of records is public",
    "zero_out": "one record is left out and its place kept empty; the number of records is public",
    "add_or_remove": "one record is added or removed; not even the exact number of records is told",
}
SHORT_RELATIONS = {"replace_one": "replace one", "zero_out": "zero out one", "add_or_remove": "add or remove one"}
RELEASES = {
    "last": "the final model only: the weights after the last step (“last iterate”)",
    "all": "the model after every step (“every iterate”)",
}


def of_unit(words: str, unit: Unit) -> str:
    """A sentence about one record or records, said of the unit of privacy: "one record is left out" becomes "one user is left out"."""
    return words if unit == "record" else re.sub(r"\brecord(s?)\b", rf"{unit}\1", words)


def percent(probability: float, digits: int = 3) -> str:
    """A probability, rounded up, such as "57.3 %"."""
    if probability >= 1.0:
        return "100 %"
    scaled = Decimal(repr(probability)) * 100
    places = max(0, digits - 1 - scaled.adjusted()) if scaled else 0
    rounded = scaled.quantize(Decimal(1).scaleb(-min(places, 12)), rounding=ROUND_CEILING)
    return f"{float(rounded):.{digits}g} %" if rounded < 100 else "100 %"


def factor(epsilon: float) -> str:
    """e to the epsilon, rounded up."""
    # exp is correct to a few units in the last place.
    value = math.exp(epsilon) * (1.0 + 1e-15) if epsilon < 700.0 else math.inf
    said = shown(value, 4)
    if not 1e3 <= float(said) < 1e15:
        return said
    return f"{float(said):.0f}" if float(said) < 1e4 else f"{float(said):,.0f}"


def times(many: int, thing: str, things: str) -> str:
    """A count with its noun, such as "1 pass" or "2 passes".

    Args:
        many: how many.
        thing: the noun of one.
        things: the noun of none or several.
    """
    return f"{count(many)} {thing if many == 1 else things}"


def count(value: int) -> str:
    """A whole number with commas."""
    return f"{value:,}"


def number(value: float) -> str:
    """Any other number."""
    return f"{value:.6g}"
