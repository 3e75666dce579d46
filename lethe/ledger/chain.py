"""The chain of a ledger: entries that are only ever added, each with a digest of its content and of the entry before.

`Ledger` appends entries and reading.py checks the digests, so that an entry that was changed or removed later is noticed.
"""

import getpass
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from lethe.errors import InputError, LedgerError, quoted
from lethe.ledger.prices import Price

Kind = Literal["data_set", "spender", "reservation", "start", "release", "void"]
FIRST = "0" * 64
_FORMAT = "lethe-ledger 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: numbers from 1 without a gap, at a time in UTC no earlier than the one before, about one data set.

    `counted` is what is counted as spent of the data set from here on, `content` canonical JSON, `previous` the digest of the entry before
    (of the first one `FIRST`), `digest` the SHA-256 of all this in hexadecimal digits.
    """

    seq: int
    kind: str
    at: str
    data_set: str
    counted: Price
    content: str
    previous: str
    digest: str

    @property
    def fields(self) -> dict[str, Any]:
        """The content as plain data."""
        try:
            content = json.loads(self.content)
        except ValueError as error:
            raise damaged(self.seq, "its content is no JSON text") from error
        if not isinstance(content, dict) or canonical(content) != self.content:
            raise damaged(self.seq, "its content is not written as the ledger writes it")
        return content

    def own_digest(self) -> str:
        """The digest that follows from the other fields: SHA-256 of their canonical text."""
        counted = str(self.counted.cost), str(self.counted.slack)
        text = canonical([_FORMAT, self.seq, self.kind, self.at, self.data_set, *counted, self.content, self.previous])
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def canonical(content: object) -> str:
    """JSON text of plain data: keys in order, no spaces, ASCII only; equal data give equal text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def damaged(seq: int | None, why: str) -> LedgerError:
    """The error of a ledger that is not as it was written."""
    return LedgerError(
        f"{'the ledger' if seq is None else f'entry {seq} of the ledger'} was changed after it was written: {why}.",
        source="the database",
        remedy="release nothing on its word; take the last copy that verifies, and find out who wrote to the database.",
    )


def require_text(what: str, value: object, *, max_length: int = 2000, empty: bool = False) -> str:
    """A line of at most so many printable letters, without the blanks at its ends: nothing that could hide in a terminal or a page."""
    if not isinstance(value, str) or not value.isprintable() or len(value) > max_length or not (empty or value.strip()):
        raise _refusal(what, value, f"a line of {'at most' if empty else '1 to'} {max_length} printable letters")
    return value.strip()


def require_name(what: str, value: object) -> str:
    """A name of 1 to 200 letters; errors as `require_text`."""
    return require_text(what, value, max_length=200)


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
