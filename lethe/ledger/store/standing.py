"""Standing: all that a reservation needs to know of the ledger, asked for at once, since nobody else writes meanwhile."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from lethe.ledger.chain import Entry
from lethe.ledger.store.rows import checked, entry_of

_ASKED = """
SELECT entries.*, {now} AS moment,
       (SELECT CASE WHEN COUNT(*) = 1 THEN MIN(version_num) ELSE '' END FROM alembic_version) AS version,
       (SELECT COUNT(*) FROM spenders WHERE data_set = :data_set AND name = :spender) AS admitted
  FROM entries
 WHERE seq IN ((SELECT entry FROM data_sets WHERE name = :data_set),
               (SELECT MAX(seq) FROM entries WHERE data_set = :data_set),
               (SELECT MAX(seq) FROM entries))
 ORDER BY seq
"""
_POSTGRES, _SQLITE = (text(_ASKED.format(now=now)) for now in ("clock_timestamp()", "NULL"))


class Standing(NamedTuple):
    """What the ledger says of a data set at one moment.

    Args:
        entered: the entry by which it was entered; None: there is none of that name.
        own: the last entry about it.
        last: the last entry of all; None: the ledger is empty.
        version: of the schema; empty: it says none, or several.
        admitted: whether the spender is one of the data set's.
        moment: the server's time; None: of a file, which has none.
    """

    entered: Entry | None
    own: Entry | None
    last: Entry | None
    version: str
    admitted: bool
    moment: datetime | None


def standing_of(connection: Connection, data_set: str, spender: str, *, postgres: bool) -> Standing:
    """Ask for it; the digest of every entry is checked.

    Raises:
        LedgerError: an entry was changed.
    """
    asked: Any = _POSTGRES if postgres else _SQLITE
    rows = connection.execute(asked, {"data_set": data_set, "spender": spender}).all()
    entries = [checked(entry_of(row)) for row in rows]
    about = [entry for entry in entries if entry.data_set == data_set]
    return Standing(
        entered=next((entry for entry in about if entry.kind == "data_set"), None),
        own=about[-1] if about else None,
        last=entries[-1] if entries else None,
        version=rows[0].version if rows else "",
        admitted=bool(rows and rows[0].admitted),
        moment=rows[0].moment if rows else None,
    )
