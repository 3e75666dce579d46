"""Names and texts that people give: short, printable, and without what could hide something in a terminal or a page."""

from __future__ import annotations

import getpass
import re

from lethe.errors import InputError, quoted


def require_text(what: str, value: object, *, most: int = 2000, empty: bool = False) -> str:
    """A line of at most so many printable letters, without the blanks at its ends."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > most or not (empty or value.strip()):
        raise _refusal(what, value, f"a line of {'at most' if empty else '1 to'} {most} printable letters")
    return value.strip()


def require_name(what: str, value: object) -> str:
    """A name of 1 to 200 letters; errors as `require_text`."""
    return require_text(what, value, most=200)


def require_digest(what: str, value: object) -> str:
    """A SHA-256 in 64 hexadecimal digits, or nothing; errors as `require_text`."""
    if not isinstance(value, str) or not re.fullmatch(r"([0-9a-f]{64})?", value):
        raise _refusal(what, value, "the 64 hexadecimal digits of a SHA-256")
    return value


def require_number(value: object) -> int:
    """The number of a reservation; errors as `require_text`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**62:
        raise _refusal("reservation", value, "a Reservation or its number")
    return value


def spender_of(by: str | None) -> str:
    """Who spends: the name, or the user of this process."""
    try:
        return require_name("by", getpass.getuser() if by is None else by)
    except (OSError, KeyError) as error:
        raise InputError("by: nobody is named, and this process has no user.", source="by", remedy="say who: by='team A'.") from error


def _refusal(what: str, value: object, needed: str) -> InputError:
    return InputError(f"{what}: got {quoted(value)[:80]}; it needs {needed}.", source=what)
