"""Standing: all that a reservation needs to know of the ledger, asked for at once, since nobody else writes meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from lethe.ledger.chain import Entry
from lethe.ledger.store.rows import checked, entry_of

_ASKED = """
SELECT entries.*, {now} AS moment,
       (SELECT CASE WHEN COUNT(*) = 1 THEN MIN(version_num) ELSE '' END FROM alembic_version) AS version,
       (SELECT COUNT(*) FROM spenders WHERE data_set = {data_set} AND name = {spender}) AS admitted
  FROM entries
 WHERE seq IN ((SELECT entry FROM data_sets WHERE name = {data_set}),
               (SELECT MAX(seq) FROM entries WHERE data_set = {data_set}),
               (SELECT MAX(seq) FROM entries))
 ORDER BY seq
"""
ASKED_POSTGRES = _ASKED.format(now="clock_timestamp()", data_set="%(data_set)s", spender="%(spender)s")
ASKED_WITHOUT_PIPELINE = _ASKED.format(now="clock_timestamp()", data_set=":data_set", spender=":spender")
ASKED_SQLITE = _ASKED.format(now="NULL", data_set=":data_set", spender=":spender")


class DataSetStanding(NamedTuple):
    """What the ledger says of a data set at one moment.

    Args:
        entered: the entry by which it was entered; None: there is none of that name.
        own: the last entry about it.
        last: the last entry of all; None: the ledger is empty.
        version: of the schema; empty: it says none, or several.
        admitted: whether the spender is one of the data set's.
        moment: the server's time; None: of a file, which has none, or of no entry.
    """

    entered: Entry | None
    own: Entry | None
    last: Entry | None
    version: str
    admitted: bool
    moment: datetime | None


def standing_of(rows: Sequence[Any], data_set: str) -> DataSetStanding:
    """From the rows that were asked for; the digest of every entry is checked.

    Args:
        rows: of `ASKED_POSTGRES` or `ASKED_SQLITE`.
        data_set: its name.
    Raises:
        LedgerError: an entry was changed.
    """
    entries = [checked(entry_of(row)) for row in rows]
    about = [entry for entry in entries if entry.data_set == data_set]
    return DataSetStanding(
        entered=next((entry for entry in about if entry.kind == "data_set"), None),
        own=about[-1] if about else None,
        last=entries[-1] if entries else None,
        version=rows[0].version if rows else "",
        admitted=bool(rows and rows[0].admitted),
        moment=rows[0].moment if rows else None,
    )
