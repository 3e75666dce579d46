"""Trainings in several processes, forked from one that has imported everything, as torchrun would start them.

`python forked_processes.py MODULE FOLDER train:1 train:2 kill:2:5 resume:3`: each word is one training by `MODULE.trained`, of a kind, in
so many processes, of which number 0 ends itself by SIGKILL once the noise of a step is in the journal, and before it is drawn. Prints how
the processes ended. Process r of training number n leaves FOLDER/told-n-r.pt; FOLDER/drawn has the steps whose noise was drawn.
"""

import ast
import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from repository import ROOT

from lethe.train.checkpoints.journal import Journal


def forked(work: Callable[[int], None], processes: int) -> list[int]:
    """The exit statuses of so many processes, each told its rank, in their order; one alone is told of no others."""
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


def killed_at(last: int, drawn: Path) -> None:
    """Let this process end by SIGKILL once the noise of a step is in the journal (0: never), and note the steps whose noise it draws."""
    release = Journal.release

    def watched(self: Journal, step: int) -> None:
        release(self, step)
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)
        with drawn.open("a") as file:
            file.write(f"{step}\n")

    Journal.release = watched


def together(trained: Callable[..., dict[str, Any]], folder: Path, number: int, word: str) -> list[int]:
    """How the processes of one training ended."""
    how, processes, *steps = word.split(":")

    def work(rank: int) -> None:
        torch.set_num_threads(1)
        if rank == 0:
            killed_at(int(steps[0]) if steps else 0, folder / "drawn")
        torch.save(trained(folder, number, rank, int(processes), how), folder / f"told-{number}-{rank}.pt")

    return forked(work, int(processes))


def told_by(module: str, folder: Path, *words: str) -> list[list[int]]:
    """How the processes of each training of a test module ended."""
    paths = os.pathsep.join([str(Path(__file__).parent), str(ROOT / "tests" / "support"), str(ROOT)])
    command = [sys.executable, "-W", "ignore", __file__, module, str(folder), *words]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stderr[-3000:])  # shown where a test fails
    return ast.literal_eval(next(line for line in done.stdout.splitlines() if line.startswith("ended "))[6:])


def told(folder: Path, number: int, rank: int = 0) -> dict[str, Any]:
    """What a process left of its training."""
    return torch.load(folder / f"told-{number}-{rank}.pt", weights_only=True)


def require_same(folder: Path, number: int, processes: int, alone: dict[str, Any]) -> None:
    """Each process of a training tells the same: the training of one, with no reducer of DistributedDataParallel."""
    for rank in range(processes):
        found = told(folder, number, rank)
        assert float((found["model"] - alone["model"]).abs().max()) < 1e-6
        assert torch.equal(found["model"], told(folder, number)["model"])
        assert not found["wrapped"]
        assert (found["run"], found["epsilon"]) == (alone["run"], alone["epsilon"])
        if found["average"] is not None:
            assert float((found["average"] - alone["average"]).abs().max()) < 1e-6


def flat_average(averaged: dict[str, torch.Tensor] | None) -> torch.Tensor | None:
    """The moving average of a model as one vector."""
    return None if averaged is None else torch.cat([averaged[name].flatten() for name in sorted(averaged)])


if __name__ == "__main__":
    module, folder, *words = sys.argv[1:]
    train = importlib.import_module(module).trained
    print("ended", [together(train, Path(folder), number, word) for number, word in enumerate(words)])
