"""A decision on PostgreSQL in two messages: what is asked for comes with the lock, and what was decided goes with the commit.

While the table is locked all writers wait for one client, which on a busy machine waits for its turn at each answer; here it has one turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from sqlalchemy import Table, bindparam, insert
from sqlalchemy.dialects.postgresql import dialect

from lethe.ledger.chain import Entry
from lethe.ledger.store.rows import columns_of, rows_of
from lethe.ledger.store.tables import ENTRIES

# The lock is taken before anything is looked at, and every statement looks anew, whatever the server's default is.
LOCKED = ("BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL synchronous_commit = off", "LOCK TABLE entries IN EXCLUSIVE MODE")
# COMMIT gives up the lock. The message is of its own in the log of the server, which is on disk in the order in which it was written, and
# waits for the disk: so that several writers share one wait.
COMMITTED = ("COMMIT", "SELECT pg_logical_emit_message(true, 'lethe', '')")


def pipelines() -> bool:
    """Whether the installed libpq can send several statements at once."""
    import psycopg

    return psycopg.Pipeline.is_supported()


def decided(connection: Any, asked: str, values: dict[str, Any], decide: Callable[[list[Any]], Entry]) -> Entry:
    """Lock, ask, decide, write, commit, and wait for the disk.

    Args:
        connection: of psycopg, in autocommit.
        asked: a query, with its values named as %(name)s.
        values: of the query.
        decide: from its rows to the entry that is to be written; what it raises is raised, and nothing is written.
    """
    import psycopg
    from psycopg.rows import namedtuple_row

    cursor = connection.cursor(row_factory=namedtuple_row)
    try:
        with connection.pipeline():
            for statement in LOCKED:
                connection.execute(statement)
            cursor.execute(asked, values)
        entry = decide(cursor.fetchall())
        ((table, row),) = rows_of(entry)
        said = {f"own_{name}": value for name, value in columns_of(entry).items()} | {f"row_{name}": value for name, value in row.items()}
        with connection.pipeline():
            connection.execute(_written(table), said)
            for statement in COMMITTED:
                connection.execute(statement)
    except BaseException:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
        # One that is not back at its beginning is never used again.
        if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.close()
        raise
    return entry


@cache
def _written(table: Table) -> str:
    """An entry and its row in one statement."""
    own = insert(ENTRIES).values({column: bindparam(f"own_{column.name}") for column in ENTRIES.columns})
    both = insert(table).values({column: bindparam(f"row_{column.name}") for column in table.columns}).add_cte(own.cte("own"))
    return str(both.compile(dialect=dialect(paramstyle="pyformat")))
