"""Formatting of numbers with few digits, rounded up, so that what is printed still holds."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context


def shown(value: float, digits: int = 4) -> str:
    """`value` >= 0 with that many significant digits, rounded up; "infinity" where it is."""
    if value == math.inf:
        return "infinity"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))
    return f"{float(rounded):.{digits}g}"
