"""Reading one entry of a table: is it missing, a number, or a day.

columns.py encodes rows by these, and init.py guesses by them what a column may be.
"""

import math
from datetime import datetime

_MISSING = frozenset({"", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"})
_TRUTH = {"true": 1.0, "false": 0.0}


def is_missing(text: str | None) -> bool:
    """Whether an entry stands for none: nothing, or one of the usual words such as NA, null and ?."""
    return text is None or text.strip().casefold() in _MISSING


def as_number(text: str) -> float | None:
    """The finite number that a text is, true and false being 1 and 0; None: it is none."""
    stripped = text.strip()
    try:
        number = _TRUTH.get(stripped.casefold())
        number = float(stripped) if number is None else number
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in stripped else None


def as_day(text: str) -> int | None:
    """The day of an ISO 8601 date, whatever time stands behind it, counted from the year 1; None: it is none."""
    try:
        return datetime.fromisoformat(text.strip()).toordinal()
    except ValueError:
        return None
