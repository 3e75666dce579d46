"""The database of a ledger: SQLite or PostgreSQL, one writer at a time, and errors for people."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, exc, make_url, text

from lethe.calculus.domains import require_positive
from lethe.errors import InputError, LedgerError, MissingExtraError
from lethe.ledger.chain import Entry
from lethe.ledger.store.pipeline import COMMITTED, LOCKED, decided, pipelines
from lethe.ledger.store.read_only_file import may_write, reading_connection, undisturbed
from lethe.ledger.store.rows import write
from lethe.ledger.store.standing import ASKED_POSTGRES, ASKED_SQLITE, ASKED_WITHOUT_PIPELINE, DataSetStanding, standing_of

_WRITES, _RESTS = "lethe_writes", "lethe_rests"
# One message to the server each.
_BEGIN, _COMMIT = "; ".join(LOCKED), "; ".join(COMMITTED)
_SECRETS = ("password", "sslpassword")  # which a URL may say behind its question mark, too
_SECONDS_RESTED = 1.0  # after which a connection is asked whether it is still one
_REMEDIES = (
    ("readonly", "is read-only", "write with an account, and in a folder, that may write."),
    ("read-only", "is read-only", "write with an account, and in a folder, that may write."),
    ("permission denied", "may not be used by this account", "ask whoever keeps the ledger for the right to."),
    ("row-level security", "refuses this to this account", "write under the account's own name (by=), about its own reservations."),
    ("disk is full", "has no room left", "make room on the disk, and try again."),
    ("no space left", "has no room left", "make room on the disk, and try again."),
    ("unable to open", "cannot be opened", "look whether it is there, and give a file in a folder that this account may write."),
    ("lock timeout", "is locked by another writer", "try again; if it lasts, look for a process that hangs."),
    ("locked", "is locked by another writer", "try again; if it lasts, look for a process that hangs."),
    ("not a database", "is no SQLite database", "give the path of a ledger, or a new file with make=True."),
    ("malformed", "is damaged", "take the last copy that verifies."),
    ("decode", "is damaged", "take the last copy that verifies."),  # text that is no UTF-8
)


class Database:
    """One ledger's database.

    Args:
        where: the path of a SQLite file, or a URL (sqlite:///..., postgresql://user@host/name).
        make: whether a SQLite file may be made.
        timeout: how many seconds a writer waits for another one.
    Raises:
        InputError: no such file, or a URL that is none of these.
        LedgerError: a file that this account may not read.
        MissingExtraError: the driver is not installed.
    """

    def __init__(self, where: str | os.PathLike[str], *, make: bool = False, timeout: float = 10.0) -> None:
        self.timeout = require_positive("timeout", timeout)
        self._milliseconds = max(1, round(1000 * self.timeout))
        self.url = _url(where)
        self.postgres = self.url.get_backend_name() == "postgresql"
        if not self.postgres:
            _require_file(self.url, make)
        file = Path(self.url.database or "")
        self._only_read = None if self.postgres or str(file).startswith("file:") or may_write(file) else file
        self.engine = _engine(self.url, self._milliseconds, self.postgres, self._only_read)
        # The statements begin and end the transaction themselves.
        self._writers = self.engine.execution_options(isolation_level="AUTOCOMMIT") if self.postgres else self.engine
        _OPEN.add(self.engine)
        weakref.finalize(self, self.engine.dispose)

    def close(self) -> None:
        """Close all connections; the next use opens another."""
        self.engine.dispose()

    @property
    def read_only(self) -> bool:
        """Whether it is a SQLite file that this account may read and not write."""
        return self._only_read is not None

    @property
    def name(self) -> str:
        """The place, without a password."""
        return self.url.difference_update_query(_SECRETS).render_as_string(hide_password=True)

    @property
    def place(self) -> str:
        """The place as another process can open it, without the password: a whole path, or a URL."""
        file = self.url.database or ""
        if self.postgres or file.startswith("file:"):
            url = self.url.difference_update_query(_SECRETS)
            return URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query).render_as_string()
        return str(Path(file).absolute())

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one state of the ledger.

        Raises:
            LedgerError: it cannot be read; or was written to meanwhile, where nothing but reading without locks is allowed.
        """
        alone = nullcontext() if self._only_read is None else undisturbed(self._only_read)
        with self._told("read"), alone, self.engine.connect() as connection:
            if self.postgres:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    @contextmanager
    def making(self) -> Iterator[Connection]:
        """As `writing`, of a database whose tables may not be there yet.

        Raises:
            LedgerError: as `writing`.
        """
        with self._told("made"), self.engine.connect() as connection:
            connection = connection.execution_options(**{_WRITES: True})
            with connection.begin():
                if self.postgres:
                    connection.execute(text("SELECT pg_advisory_xact_lock(5135784)"))
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer is in, from its beginning to its end; whole or not at all.

        SQLite: BEGIN IMMEDIATE. PostgreSQL: the table of entries is locked against other writers, and not against readers. The lock is
        given up before the disk has the entry, and this method waits for the disk: entries that follow go to it later than this one, so
        that what a crash takes was told to nobody, and several writers share one wait.

        Raises:
            LedgerError: the lock was not given in time, or it cannot be written.
        """
        with self._told("written"), self._writers.connect() as connection:
            if not self.postgres:
                connection = connection.execution_options(**{_WRITES: True})
                with connection.begin():
                    yield connection
                return
            try:
                connection.exec_driver_sql(_BEGIN)
                yield connection
            except BaseException:
                with suppress(exc.SQLAlchemyError):  # a connection that is gone has nothing to take back
                    connection.exec_driver_sql("ROLLBACK")
                raise
            connection.exec_driver_sql(_COMMIT)

    def decide(self, data_set: str, spender: str, decide: Callable[[DataSetStanding], Entry]) -> Entry:
        """As `writing`, of one entry: what is asked for is `DataSetStanding`, and what is decided from it is written.

        Args:
            data_set, spender: as `standing_of`.
            decide: from it to the entry; what it raises is raised, and nothing is written.
        Raises:
            LedgerError: as `writing`.
        """
        values = {"data_set": data_set, "spender": spender}
        if not (self.postgres and pipelines()):
            asked = text(ASKED_WITHOUT_PIPELINE if self.postgres else ASKED_SQLITE)
            with self.writing() as connection:
                found = standing_of(connection.execute(asked, values).all(), data_set)
                entry = decide(found if self.postgres else found._replace(moment=self.now(connection)))
                write(connection, entry)
            return entry
        with self._told("written"), self._writers.connect() as connection:
            raw: Any = connection.connection.driver_connection
            try:
                return decided(raw, ASKED_POSTGRES, values, lambda rows: decide(standing_of(rows, data_set)))
            finally:
                if raw.closed:
                    connection.invalidate()

    def now(self, connection: Connection) -> datetime:
        """The time: of the server, which all writers share, or of this machine."""
        return connection.execute(text("SELECT clock_timestamp()")).scalar_one() if self.postgres else datetime.now(UTC)

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # SQLite's driver fails with the second where a damaged name is part of the message.
            if not (isinstance(error, exc.SQLAlchemyError | UnicodeDecodeError) or (self.postgres and isinstance(error, _driver_error()))):
                raise
            said = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            for words, state, remedy in _REMEDIES:
                if words in said.lower():
                    raise LedgerError(
                        f"the ledger {state}, and cannot be {verb}: {said}.", source=self.name, remedy=f"{remedy} {_UNSPENT}"
                    ) from error
            raise LedgerError(
                f"the ledger cannot be {verb}: {said}.",
                source=self.name,
                remedy=f"look whether the database is there, and try again. {_UNSPENT}",
            ) from error


def _driver_error() -> type[Exception]:
    import psycopg

    return psycopg.Error


_OPEN: weakref.WeakSet[Engine] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: a connection that two processes use is torn."""
    for engine in list(_OPEN):
        engine.dispose(close=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)

_UNSPENT = "Release nothing before its reservation stands; `lethe ledger show` says whether it does."


def _url(where: str | os.PathLike[str]) -> URL:
    if isinstance(where, os.PathLike) or "://" not in where:
        return URL.create("sqlite+pysqlite", database=os.fspath(where))
    try:
        url = make_url(where)
    except exc.ArgumentError as error:
        raise _no_url() from error
    backend = url.drivername.partition("+")[0]
    if backend == "sqlite" and url.database not in (None, "", ":memory:"):
        return url.set(drivername="sqlite+pysqlite")
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    raise _no_url(backend)


def _no_url(backend: str = "") -> InputError:
    # The URL itself may hold a password.
    return InputError(
        f"ledger: got a URL {f'of {backend!r}' if backend else 'that cannot be read'}; it needs a file, sqlite:///FILE or postgresql://...",
        source="the place of the ledger",
        remedy="such as ledger.sqlite, or postgresql://user@host/name.",
    )


def _require_file(url: URL, make: bool) -> None:
    file = Path((url.database or "").removeprefix("file:"))
    there, refusal = True, "" if os.access(file, os.R_OK) else "permission denied"
    try:
        file.stat()
    except (FileNotFoundError, NotADirectoryError):
        there = False
    except OSError as error:  # such as a folder that may not be entered
        refusal = str(error.strerror or error).lower()
    if there and refusal:
        raise LedgerError(
            f"the ledger cannot be read: {refusal}.",
            source=str(file),
            remedy="ask whoever keeps the ledger for the right to read the file and to enter its folder.",
        )
    if file.is_dir() or not (there or (make and file.parent.is_dir())):
        why = "is a folder" if file.is_dir() else "is not there" if file.parent.is_dir() else "is in a folder that is not there"
        raise InputError(
            f"ledger: {file} {why}.", source=str(file), remedy="give the file of a ledger; `lethe ledger create` makes one (make=True)."
        )


def _asking(engine: Engine) -> Engine:
    """The engine, which asks a connection that has rested whether it is still one, and takes another if it is not."""

    @event.listens_for(engine, "checkin")
    def _rests(_: object, record: Any) -> None:
        record.info[_RESTS] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _asked(connection: Any, record: Any, _: object) -> None:
        since = record.info.get(_RESTS)
        if since is None or time.monotonic() - since < _SECONDS_RESTED:
            return
        try:
            alive = engine.dialect.do_ping(connection)
        except Exception:  # whatever the driver says, it is none
            alive = False
        if not alive:
            raise exc.DisconnectionError("it is gone")

    return engine


def _engine(url: URL, milliseconds: int, postgres: bool, only_read: Path | None) -> Engine:
    try:
        if postgres:
            options: dict[str, Any] = {
                "connect_timeout": max(2, milliseconds // 1000),
                "options": f"-c lock_timeout={milliseconds} -c synchronous_commit=on",
            }
            return _asking(create_engine(url, connect_args=options, pool_size=1, max_overflow=15))
        seconds = milliseconds / 1000.0
        if only_read is None:
            engine = create_engine(url, connect_args={"timeout": seconds, "check_same_thread": False}, pool_size=1)
        else:  # a connection without locks does not notice that the file becomes another
            engine = create_engine(url, creator=lambda: reading_connection(only_read, seconds), poolclass=NullPool)
    except ImportError as error:
        raise MissingExtraError("a ledger on PostgreSQL needs psycopg.", remedy='pip install "psycopg[binary]>=3.1"') from error

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _: object) -> None:
        # The driver would begin transactions by itself, and too late.
        connection.isolation_level = None
        # The timeout stands already: a ledger that is being made by another process is waited for.
        writing = ("journal_mode = WAL", "foreign_keys = ON", "synchronous = FULL")
        for pragma in writing if only_read is None else ():
            connection.execute(f"PRAGMA {pragma}").fetchall()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")

    return engine
