"""The database of a ledger: SQLite or PostgreSQL by SQLAlchemy, one writer at a time, and errors for people.

`Ledger` and reading.py open their transactions here: two programs that reserve at once must not both get what is left.

Each transaction has a connection of its own: nothing is torn by a fork or a server that was started anew, and a SQLite ledger at rest is
one file.
"""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, make_url, text

from lethe.calculus.domains import require_positive
from lethe.errors import InputError, LedgerError, MissingExtraError

_BEGIN = "lethe_begin"
_SECRETS = ("password", "sslpassword")  # which a URL may say behind its question mark, too
_REMEDIES = (
    ("read-?only", "is read-only", "write with an account, and in a folder, that may write."),
    ("permission denied", "may not be used by this account", "ask whoever keeps the ledger for the right to."),
    ("row-level security", "refuses this to this account", "write under the account's own name (by=), about its own reservations."),
    ("disk is full|no space left", "has no room left", "make room on the disk, and try again."),
    ("unable to open", "cannot be opened", "give it, or a copy, in a folder that this account may write."),
    ("locked|lock timeout", "is locked by another writer", "try again; if it lasts, look for a process that hangs."),
    ("not a database", "is no SQLite database", "give the path of a ledger, or a new file with make=True."),
    ("malformed|decode", "is damaged", "take the last copy that verifies."),  # the second: text that is no UTF-8
    ("", "does not answer", "look whether the database is there, and try again."),
)
_UNSPENT = "Release nothing before its reservation stands; `lethe ledger show` says whether it does."


class Database:
    """One ledger's database: a SQLite file, or a URL (sqlite:///..., postgresql://user@host/name); a writer waits `timeout` seconds."""

    def __init__(self, where: str | os.PathLike[str], *, make: bool = False, timeout: float = 10.0) -> None:
        self.timeout = require_positive("timeout", timeout)
        self.url = _url(where)
        self.postgres = self.url.get_backend_name() == "postgresql"
        if not (self.postgres or make or os.path.isfile(self.url.database or "")):
            raise InputError(
                f"ledger: {self.url.database} is not there: no such file, or none that this account may look at.",
                source="the place of the ledger",
                remedy="give the file of a ledger; `lethe ledger create` makes one (make=True).",
            )
        self.engine = _engine(self.url, self.timeout, make)

    @property
    def read_only(self) -> bool:
        """Whether it is a SQLite file that this account may read and not write: on a read-only medium, or of another user."""
        file = Path(self.url.database or "")
        return not self.postgres and not all(os.access(path, os.W_OK) for path in (file, file.parent))

    @property
    def address(self) -> str:
        """The place as another process can open it, without the password: a whole path, or a URL."""
        if not self.postgres:
            return str(Path(self.url.database or "").absolute())
        url = self.url.difference_update_query(_SECRETS)
        return URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query).render_as_string()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one state of the ledger."""
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True} if self.postgres else {_BEGIN: "BEGIN"}
        with self._errors("read"), self.engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, *, make: bool = False) -> Iterator[Connection]:
        """A transaction that no other writer is in, from its beginning to its end; whole or not at all.

        SQLite: BEGIN IMMEDIATE. PostgreSQL: the table of entries is locked against other writers, and not against readers, before anything
        is looked at; every statement looks anew. To `make` a ledger, whose tables may not be there yet, an advisory lock is taken.
        """
        options = {"isolation_level": "READ COMMITTED"} if self.postgres else {_BEGIN: "BEGIN IMMEDIATE"}
        lock = "SELECT pg_advisory_xact_lock(5135784)" if make else "LOCK TABLE entries IN EXCLUSIVE MODE"
        errors = self._errors("made" if make else "written")
        with errors, self.engine.connect().execution_options(**options) as connection, connection.begin():
            if self.postgres:
                connection.execute(text(lock))
            yield connection

    def now(self, connection: Connection) -> datetime:
        """The time: of the server, which all writers share, or of this machine."""
        return connection.execute(text("SELECT clock_timestamp()")).scalar_one() if self.postgres else datetime.now(UTC)

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (exc.SQLAlchemyError, UnicodeDecodeError) as error:  # the second: SQLite's driver, where a damaged name is in the message
            cause = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            state, remedy = next((state, remedy) for words, state, remedy in _REMEDIES if re.search(words, cause, re.IGNORECASE))
            what = f"the ledger {state}, and cannot be {verb}: {cause}."
            raise LedgerError(what, source=self.address, remedy=f"{remedy} {_UNSPENT}") from error


def _url(where: str | os.PathLike[str]) -> URL:
    if isinstance(where, os.PathLike) or "://" not in where:
        return URL.create("sqlite+pysqlite", database=os.fspath(where))
    backend = "one that cannot be read"
    try:
        url = make_url(where)
        backend = url.drivername.partition("+")[0]
    except exc.ArgumentError:
        url = None
    if url is not None and backend == "sqlite" and url.database not in (None, "", ":memory:"):
        return url.set(drivername="sqlite+pysqlite")
    if url is not None and backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise InputError(  # the URL itself may hold a password
        f"ledger: got a URL of another kind ({backend}); it needs a file, sqlite:///FILE or postgresql://...",
        source="the place of the ledger",
        remedy="such as ledger.sqlite, or postgresql://user@host/name.",
    ) from None


def _engine(url: URL, timeout: float, make: bool) -> Engine:
    if url.get_backend_name() == "postgresql":
        options = f"-c lock_timeout={max(1, round(1000 * timeout))} -c synchronous_commit=on"
        try:
            return create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": max(2, int(timeout)), "options": options})
        except ImportError as error:
            raise MissingExtraError("a ledger on PostgreSQL needs psycopg.", remedy='pip install "lethe-dp[postgresql]"') from error
    # A file that may only be read is opened so by SQLite; one that is not there is made only where that is asked for.
    file = Path(url.database or "").absolute().as_uri() + ("?mode=rwc" if make else "?mode=rw")
    engine = create_engine(url, poolclass=NullPool, creator=lambda: sqlite3.connect(file, uri=True, timeout=timeout))

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: object) -> None:
        # The driver would begin transactions by itself, and too late.
        connection.isolation_level = None
        for pragma in ("foreign_keys = ON", "synchronous = EXTRA"):  # the folder goes to the disk too, before a reservation counts as made
            connection.execute(f"PRAGMA {pragma}").fetchall()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options()[_BEGIN])

    return engine
