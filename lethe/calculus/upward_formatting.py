"""Formatting of numbers with few digits, rounded so that what is printed still holds: upper bounds up, lower bounds and limits down.

Certificates, statements and reports print every epsilon, delta and limit with it.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def shown(value: float, digits: int = 4) -> str:
    """`value` >= 0 with that many significant digits, rounded up; "infinity" where it is."""
    return _rounded(value, digits, ROUND_CEILING)


def shown_down(value: float, digits: int = 4) -> str:
    """`shown`, rounded down: for a lower bound, and for the most that a parameter may be, which is then allowed as it is printed."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> str:
    if value == math.inf:
        return "infinity"
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))):.{digits}g}"
