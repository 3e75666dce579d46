"""The ledger that pays for trainings and fits to which none is passed.

`ledger.spending` sets it within its block; trainings and fits that name no ledger ask it what to charge. It belongs to the process, not to
a thread: threads of joblib begin without the context of the one that started them. A process that was started within the block and does not
know what pays refuses to train: its environment tells it so.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from lethe.errors import InputError

_MARK = "LETHE_SPENDING"
_lock = Lock()
_slot: list[tuple[object, str]] = []
_paid: ContextVar[bool] = ContextVar("lethe_paid", default=False)


def spender_in_force() -> Any:
    """What pays for a training that names nothing; None: nothing does, or what it is part of was paid as a whole. Refused in a process that
    was started by one in which something pays, and does not know what."""
    spender, name = known_in_force(), os.environ.get(_MARK)
    if spender is None and name and not _paid.get():
        raise InputError(
            f"ledger: this process began within lethe.ledger.spending of {name!r}, and has no ledger: a training would not be counted.",
            source=f"the environment variable {_MARK}",
            remedy="give ledger=lethe.ledger.Spending(...), or make the estimator in the process that has the ledger.",
        )
    return spender


def known_in_force() -> Any:
    """As `spender_in_force`, where what this process does not know is nothing: for what is not going to be trained here."""
    return _slot[0][0] if _slot and not _paid.get() else None


@contextmanager
def in_force(spender: object, name: str) -> Generator[None]:
    """Within: this pays, and nothing else, for whatever names nothing, in every thread of this process; `name` is that of the data set."""
    with _lock:
        if _slot:
            raise InputError(
                f"spending: {_slot[0][1]!r} pays already for what is trained in this process; two at once would be mixed up.",
                source="lethe.ledger.spending",
                remedy="end that block first; or give each estimator its own ledger=Spending(...).",
            )
        _slot.append((spender, name))
    before, os.environ[_MARK] = os.environ.get(_MARK), name
    try:
        _end_idle_workers()
        yield
    finally:
        del os.environ[_MARK]
        if before is not None:
            os.environ[_MARK] = before
        _slot.clear()
        _end_idle_workers()


@contextmanager
def paid_as_a_whole() -> Generator[None]:
    """Within, in this thread: what is trained is part of something that was paid."""
    token = _paid.set(True)
    try:
        yield
    finally:
        _paid.reset(token)


def _end_idle_workers() -> None:
    """End joblib's workers, which outlive a call: those of before do not know what pays, and those of within would go on refusing."""
    pool = getattr(sys.modules.get("joblib.externals.loky.reusable_executor"), "_executor", None)
    if pool is not None:
        pool.shutdown(wait=True)
