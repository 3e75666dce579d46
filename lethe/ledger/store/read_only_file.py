"""A SQLite ledger that this account may read and not write: on a read-only medium, or of another user."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe.errors import LedgerError


def may_write(file: Path) -> bool:
    """Whether this account may write a SQLite file, and what SQLite makes beside it; where there is no file yet, that is tried.

    Args:
        file: its path.
    """
    beside = _beside(file, "wal")
    made = beside.exists() and _beside(file, "shm").exists()
    return not file.exists() or (os.access(file, os.W_OK) and os.access(beside if made else file.parent, os.W_OK))


def reading_connection(file: Path, seconds: float) -> sqlite3.Connection:
    """A connection that writes nothing, and makes no file beside the database.

    Where another account has the ledger open, or a crash has left it so, SQLite reads the last entries from the files beside it, under its
    own locks. Else nothing is beside it, and it is read without locks: see `undisturbed`.

    Args:
        file: of the ledger.
        seconds: how long a lock is waited for.
    Raises:
        LedgerError: the last entries are beside it, without the file by which SQLite reads them.
    """
    if _has_last_entries(file) and not os.access(_beside(file, "shm"), os.R_OK):
        raise LedgerError(
            f"the ledger cannot be read: its last entries are in {_beside(file, 'wal').name}, and this account may not write beside it.",
            source=str(file),
            remedy="copy the ledger and that file to a folder of your own, and give the copy.",
        )
    way = "mode=ro" if _in_use(file) else "immutable=1"
    return sqlite3.connect(f"{file.absolute().as_uri()}?{way}", uri=True, timeout=seconds, check_same_thread=False)


@contextmanager
def undisturbed(file: Path) -> Iterator[None]:
    """Within, a file that is read without locks must stay as it is.

    Raises:
        LedgerError: somebody wrote to it meanwhile.
    """
    before = None if _in_use(file) else _stamp(file)
    try:
        yield
    finally:
        if before is not None and (_in_use(file) or _stamp(file) != before):
            raise LedgerError("the ledger was written to while it was read.", source=str(file), remedy="try again.")


def _in_use(file: Path) -> bool:
    return _beside(file, "shm").exists() or _has_last_entries(file)


def _has_last_entries(file: Path) -> bool:
    wal = _beside(file, "wal")
    return wal.exists() and wal.stat().st_size > 0


def _beside(file: Path, ending: str) -> Path:
    return file.with_name(f"{file.name}-{ending}")


def _stamp(file: Path) -> tuple[int, int, int] | None:
    if not file.exists():
        return None
    now = file.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns
