"""Trainings in shards that are ended in the middle: by an error, or by the death of a process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from doors import arguments
from networks import CROSS_ENTROPY, make_data
from shared_work import everything, network, sharded

from lethe.run.run import Run
from lethe.train import TrainOptions, fit
from lethe.train.checkpoints.file import Checkpoints
from lethe.train.checkpoints.journal import Journal
from lethe.train.network.noise.gaussian import NetworkNoise


class Killed(Exception):
    """What ends a training in the middle."""


def journaled(folder: str) -> int:
    """The last step in the journal; 0: none."""
    path = Path(folder) / "journal"
    steps = [int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("step ")] if path.exists() else []
    return max(steps, default=0)


def kept(rank: int, run: Run, folder: str, stop: int | None, end: str = "raise", make: Any = torch.optim.Adam, how: str = "all") -> Any:
    """`fit`, in shards or whole, with checkpoints, ended after step `stop`: by an error, or process 1 by its death."""

    def progress(step: int, steps: int) -> None:
        if step == stop and end == "die" and rank == 1:
            os._exit(1)
        if step == stop and end == "raise":
            raise Killed

    model = sharded(network(), how)
    options = {
        "checkpoints": Checkpoints(folder=folder, every=2),
        "progress": progress,
        "batch_generator": torch.Generator().manual_seed(3),
    }
    optimizer = None if make is None else make(model.parameters(), lr=0.1)
    fitted = fit(model, CROSS_ENTROPY, make_data(), run, optimizer=optimizer, **arguments(options))
    return everything(model), fitted.run


def root_dies(rank: int, run: Run, folder: str, at: int, written: bool) -> None:
    """`fit` in shards, in which process 0 dies at a step right before or after it has written it down; noise that is drawn is noted."""
    drawn, release = NetworkNoise.add, Journal.release

    def add(self: NetworkNoise, tensors: Any, noise_std: float, **correlating: Any) -> None:
        if tensors:
            with open(f"{folder}-drawn{rank}", "a") as file:
                file.write("drawn\n")
        drawn(self, tensors, noise_std, **correlating)

    def dying(self: Journal, step: int) -> None:
        if step != at:
            return release(self, step)
        if written:
            release(self, step)
        time.sleep(0.5)  # whoever does not wait draws now
        os._exit(1)

    NetworkNoise.add, Journal.release = add, dying  # type: ignore[method-assign]
    try:
        fit(sharded(network()), CROSS_ENTROPY, make_data(), run, options=TrainOptions(checkpoints=folder))
    finally:
        NetworkNoise.add, Journal.release = drawn, release  # type: ignore[method-assign]
