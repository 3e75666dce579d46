"""What other processes do with a journal, while a test looks at it."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from lethe.train.checkpoints.journal import Journal


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
