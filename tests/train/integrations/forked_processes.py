"""Processes that train together, or are killed: forked from one that has imported everything, as torchrun would start them."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repository import ROOT

from lethe.train.checkpoints.journal import Journal


def forked(work: Callable[[int], None], processes: int) -> list[int]:
    """The exit statuses of so many processes, in the order of their ranks.

    Args:
        work: of a process, told its rank.
        processes: how many; one is told of no others.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started: list[int] = []
    for rank in range(processes):
        if (process := os.fork()) == 0:
            status = 1
            try:
                if processes > 1:
                    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                    os.environ.update({name: str(value) for name, value in place.items()})
                work(rank)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        started.append(process)
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started]


def killed_at(last: int, drawn: Path | None = None) -> None:
    """Let this process end by SIGKILL once the noise of a step is in the journal, and before it is drawn.

    Args:
        last: the step; 0: never.
        drawn: a file of the steps whose noise was drawn.
    """
    release = Journal.release

    def watched(self: Journal, step: int) -> None:
        release(self, step)
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        if drawn is not None:
            with drawn.open("a") as file:
                file.write(f"{step}\n")

    Journal.release = watched


def told_by(script: Path, *words: str) -> list[Any]:
    """What a script prints after `ended`: how the process, or the processes, of each of its trainings ended.

    Args:
        script: beside this file.
        words: that it is given.
    """
    paths = os.pathsep.join([str(script.parent), str(ROOT / "tests" / "support"), str(ROOT)])
    command = [sys.executable, "-W", "ignore", str(script), *words]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stderr[-3000:])  # shown where a test fails
    return ast.literal_eval(next(line for line in done.stdout.splitlines() if line.startswith("ended "))[6:])
