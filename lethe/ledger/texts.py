"""Names and texts that people give: short, printable, and without what could hide something in a terminal or a page."""

from __future__ import annotations

import re

from lethe.errors import InputError, quoted

_MOST = 200
_LONGEST = 2000
_DIGEST = re.compile(r"[0-9a-f]{64}")


def require_name(what: str, value: object) -> str:
    """A name: 1 to 200 printable letters, without blanks at its ends.

    Raises:
        InputError: it is none.
    """
    if not isinstance(value, str) or not value.isprintable() or value != value.strip() or not 1 <= len(value) <= _MOST:
        raise InputError(f"{what}: got {quoted(value)[:80]}; it needs a name of 1 to {_MOST} printable letters.", source=what)
    return value


def require_text(what: str, value: object, *, empty: bool = False) -> str:
    """A text of at most 2000 printable letters.

    Args:
        what: how the error calls it.
        value: it.
        empty: whether it may have nothing in it.

    Raises:
        InputError: it is none, or has nothing in it.
    """
    if not isinstance(value, str) or not value.isprintable() or len(value) > _LONGEST or not (empty or value.strip()):
        needed = f"a line of {'at most' if empty else '1 to'} {_LONGEST} printable letters"
        raise InputError(f"{what}: got {quoted(value)[:80]}; it needs {needed}.", source=what)
    return value.strip()


def require_digest(what: str, value: object) -> str:
    """A SHA-256 in 64 hexadecimal digits, or nothing.

    Raises:
        InputError: it is neither.
    """
    if not isinstance(value, str) or not (value == "" or _DIGEST.fullmatch(value)):
        raise InputError(f"{what}: got {quoted(value)[:80]}; it needs the 64 hexadecimal digits of a SHA-256.", source=what)
    return value
