"""Who may write to a journal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from forked import forking

from lethe.errors import InputError
from lethe.train.checkpoints.journal import Journal


def begun(path: Path, *steps: int) -> Journal:
    journal = Journal(path)
    journal.start(None)
    for step in steps:
        journal.release(step)
    return journal


def held(path: Path, pipe: Connection) -> None:
    """Open it, say where it is, and keep it until told to end."""
    journal = Journal(path)
    pipe.send(journal.step)
    pipe.recv()
    journal.close()


def killed_with_a_worker(path: Path, pipe: Connection) -> None:
    """Open it, start a process that lives on, say which, and die at once."""
    journal = Journal(path)
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(writing, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    assert journal.step == 1
    pipe.send(worker)
    os.kill(os.getpid(), signal.SIGKILL)


def started(work: Callable[[Path, Connection], None], path: Path) -> tuple[Any, Any]:
    """A process that does so, and the end of its pipe."""
    mine, theirs = forking().Pipe()
    process = forking().Process(target=work, args=(path, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, mine


@pytest.mark.slow
def test_one_at_a_time_in_one_process_and_in_several(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path, 1)
    with pytest.raises(InputError, match="is locked"):
        Journal(path)
    journal.close()
    process, pipe = started(held, path)
    assert pipe.recv() == 1
    with pytest.raises(InputError, match="is locked"):
        Journal(path)
    pipe.send("end")
    process.join(60)
    assert process.exitcode == 0
    Journal(path).close()


@pytest.mark.slow
def test_a_forgotten_journal_unlocks_and_a_forked_worker_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    begun(path, 1)  # dropped at once
    killed, pipe = started(killed_with_a_worker, path)
    worker = pipe.recv()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    try:
        os.kill(worker, 0)  # it outlives the training
        Journal(path).close()
    finally:
        os.kill(worker, 9)
