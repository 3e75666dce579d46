"""The chain: entries that are only ever added, each with the digest of the one before and of its own content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from lethe.errors import LedgerError
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
