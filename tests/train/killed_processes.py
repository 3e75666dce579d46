"""Trains in processes of its own, one after another, and tells whoever asked; for test_resume_after_sigkill.

Started once, it reads lines `fit|loop NAME RELEASE EVERY FOLDER` and forks a process for each, which trains with checkpoints in the folder.
It prints the process's number; when it is over, its exit status.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from interrupted import Spy, make_kept_run, trained
from private_loops import Loop

from lethe.run.run import Run
from lethe.train import Checkpoints


def child(folder: Path, how: str, name: str, release: str, every: int) -> None:
    """Train to the end, and leave the recorded run; the spy's log is opened for appending alone."""
    run = make_kept_run(name, release, noise_multiplier=1.0)
    log = os.open(folder / "spied", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    spy = Spy(lambda step, records: _write(log, f"{step} {json.dumps(records)}\n"))
    _write(log, "process\n")
    if how == "fit":
        result = trained(folder / "kept", run, spy, every=every)
        assert result is not None
        recorded = result.run
    else:
        recorded = _looped(folder / "kept", run, spy, every)
    (folder / "recorded.json").write_text(json.dumps(recorded.to_document()))


def _looped(folder: Path, run: Run, spy: Spy, every: int) -> Run:
    with spy.watching():
        options: dict[str, Any] = {"noise_generator": None, "physical_size": 4, "verify": False}
        loop = Loop(run, checkpoints=Checkpoints(folder=folder, every=every), **options)
        for inputs, targets in loop.loader:
            loop.use(inputs, targets)
        return loop.engine.recorded_run()


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, line.encode())


def main() -> None:
    """Serve until standard input ends."""
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0).step()  # what PyTorch imports for that takes a second in each process
    for line in sys.stdin:
        how, name, release, every, folder = line.rstrip("\n").split(" ", 4)
        process = os.fork()
        if process == 0:
            status = 1
            try:
                child(Path(folder), how, name, release, int(every))
                status = 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(process, flush=True)
        print(os.waitpid(process, 0)[1], flush=True)


if __name__ == "__main__":
    main()
