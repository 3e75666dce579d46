"""Threads beside the page: in order, cancelled before their turn, and no reason for the program to stay."""

from __future__ import annotations

import subprocess
import sys
from threading import Event

import pytest

from lethe.studio.workers import Workers


def test_results_and_errors_come_back() -> None:
    workers = Workers(2, "test")
    assert workers.submit(divmod, 7, 3).result(10) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 7, 0).result(10)
    assert workers.submit(divmod, 8, 3).result(10) == (2, 2)


def test_what_is_cancelled_before_its_turn_is_never_begun() -> None:
    workers, gate, begun = Workers(1, "test"), Event(), []
    first = workers.submit(gate.wait, 30)
    second, third = workers.submit(begun.append, 2), workers.submit(begun.append, 3)
    assert second.cancel()
    gate.set()
    third.result(10)
    assert first.result(10)
    assert begun == [3]


@pytest.mark.slow
def test_the_program_ends_while_a_thread_is_at_work() -> None:
    code = "import time; from lethe.studio.workers import Workers; Workers(1, 'long').submit(time.sleep, 600); time.sleep(0.2)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
