"""Threads beside the page: in order, cancelled before their turn, and no reason for the program to stay."""

from __future__ import annotations

import platform
import subprocess
import sys
from threading import Event

import pytest

from lethe.studio.workers import WorkerThreads


def test_results_and_errors_come_back() -> None:
    workers = WorkerThreads(2, "test")
    assert workers.submit(divmod, 7, 3).result(10) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 7, 0).result(10)
    assert workers.submit(divmod, 8, 3).result(10) == (2, 2)


def test_what_is_cancelled_before_its_turn_is_never_begun() -> None:
    workers, gate, begun = WorkerThreads(1, "test"), Event(), []
    first = workers.submit(gate.wait, 30)
    second, third = workers.submit(begun.append, 2), workers.submit(begun.append, 3)
    assert second.cancel()
    gate.set()
    third.result(10)
    assert first.result(10)
    assert begun == [3]


@pytest.mark.slow
def test_the_program_ends_while_a_thread_is_at_work() -> None:
    code = "import time; from lethe.studio.workers import WorkerThreads; WorkerThreads(1, 'long').submit(time.sleep, 600); time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


_HELD = """
import time
from pathlib import Path
import numpy as np
from lethe.studio.workers import WorkerThreads

def megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

def work():
    np.ones(10**6)  # glibc takes arrays of this size from the heap, once one was freed
    rows = [np.ones(10**5) for _ in range(300)]
    return bytes(10**5)  # lies above them, so that they do not end at the heap's end

workers, before = WorkerThreads(2, "test"), megabytes()
kept = [future.result() for future in [workers.submit(work) for _ in range(4)]]
deadline = time.monotonic() + 20.0
while megabytes() > before + 60.0:
    assert time.monotonic() < deadline, (before, megabytes())
    time.sleep(0.05)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other libraries give memory back by themselves, or not at all")
def test_what_large_runs_took_is_given_back() -> None:
    subprocess.run([sys.executable, "-c", _HELD], check=True, timeout=60)
