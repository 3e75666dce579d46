"""What a process does that is killed again and again, for test_resume_after_sigkill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from interrupted import Spy, make_kept_run, trained
from private_loops import Loop

from lethe.run.run import Run
from lethe.train import Checkpoints


def child(folder: Path, how: str, name: str, release: str, every: int) -> None:
    """Train to the end, and leave the recorded run; the spy's log is opened for appending alone."""
    torch.set_num_threads(1)
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
        options: dict[str, Any] = {"noise_generator": None, "physical_size": 4, "isolation": "declared"}
        loop = Loop(run, checkpoints=Checkpoints(folder=folder, every=every), **options)
        for batch in loop.loader:
            loop.use(batch)
        return loop.engine.recorded_run()


def _write(descriptor: int, line: str) -> None:
    os.write(descriptor, line.encode())
