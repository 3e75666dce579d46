"""The chain: entries that are only ever added, each with the digest of the one before and of its own content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from lethe.errors import InputError, LedgerError
from lethe.ledger.prices import Price

Kind = Literal["data_set", "spender", "reservation", "start", "release", "void"]
FIRST = "0" * 64
_FORMAT = "lethe-ledger 1"
# Clocks of two machines differ by so much; more than that is somebody's mistake.
_SECONDS_BACK = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry.

    Args:
        seq: its number, from 1, without a gap.
        kind: what it says.
        at: when, in UTC, as ISO 8601; no earlier than the entry before.
        data_set: the name of the data set it is about.
        counted: what is counted as spent of this data set from here on.
        content: what it says, as canonical JSON text.
        previous: the digest of the entry before; of the first one `FIRST`.
        digest: of all this, SHA-256 in hexadecimal digits.
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
        """The content as plain data.

        Raises:
            LedgerError: it is none.
        """
        try:
            found = json.loads(self.content)
        except ValueError as error:
            raise damaged(self.seq, "its content is no JSON text") from error
        if not isinstance(found, dict) or canonical(found) != self.content:
            raise damaged(self.seq, "its content is not written as the ledger writes it")
        return found

    def own_digest(self) -> str:
        """The digest that follows from the other fields."""
        return digest_of(self.seq, self.kind, self.at, self.data_set, self.counted, self.content, self.previous)


def canonical(content: object) -> str:
    """JSON text of plain data: keys in order, no spaces, ASCII only; equal data give equal text."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest_of(seq: int, kind: str, at: str, data_set: str, counted: Price, content: str, previous: str) -> str:
    """SHA-256 of the canonical text of an entry's fields.

    Args:
        seq, kind, at, data_set, counted, content, previous: as in `Entry`.
    """
    text = canonical([_FORMAT, seq, kind, at, data_set, str(counted.cost), str(counted.slack), content, previous])
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def next_entry(before: Entry | None, kind: Kind, data_set: str, counted: Price, content: dict[str, Any], now: datetime) -> Entry:
    """The entry that follows `before`.

    Args:
        before: the last one; None: there is none.
        kind, data_set, counted: as in `Entry`.
        content: what it says, plain data.
        now: the time.

    Raises:
        InputError: the clock is more than a second behind the entry before.
    """
    seq, previous = (1, FIRST) if before is None else (before.seq + 1, before.digest)
    at = written(now)
    if before is not None and at < before.at:
        if (datetime.fromisoformat(before.at) - now).total_seconds() > _SECONDS_BACK:
            raise InputError(
                f"the clock says {at}; the last entry of the ledger was written at {before.at}, and entries do not go back in time.",
                source="the clock of this machine, or of the database's server",
                remedy="set the clock right and try again; nothing was written.",
            )
        at = before.at
    text = canonical(content)
    digest = digest_of(seq, kind, at, data_set, counted, text, previous)
    return Entry(seq=seq, kind=kind, at=at, data_set=data_set, counted=counted, content=text, previous=previous, digest=digest)


def written(moment: datetime) -> str:
    """A moment as the ledger writes it, to the microsecond, so that texts sort as times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def damaged(seq: int | None, why: str) -> LedgerError:
    """The error of a ledger that is not as it was written."""
    return LedgerError(
        f"{'the ledger' if seq is None else f'entry {seq} of the ledger'} was changed after it was written: {why}.",
        source="the database",
        remedy="release nothing on its word; take the last copy that verifies, and find out who wrote to the database.",
    )
