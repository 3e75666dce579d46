"""Trains a small LightningModule privately in several processes over gloo, for test_lightning_processes.

`python lightning_together.py FOLDER records:1 records:2 users:1 users:2 kill:2:5 resume:3`: each word is one training in so many processes,
forked from this one as torchrun would start them; `kill` ends process 0 by SIGKILL once the noise of that step is journaled. Prints how
the processes ended. Process r of training number n leaves FOLDER/told-n-r.pt: parameters, their average, run, epsilon and losses.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from forked_processes import forked, killed_at
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning_modules import DELTA, Classifier, flat, loader, run_of, trainer, users
from torch.nn.parallel import DistributedDataParallel

from lethe.integrations.lightning import PrivateTraining

SEED = 5


class Log(Callback):
    """Keeps what is logged of each step, and looks for a reducer."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.wrapped = False

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if "train_loss" in trainer.callback_metrics:  # not where a step was lost before
            self.losses.append(float(trainer.callback_metrics["train_loss"]))
        self.wrapped |= isinstance(trainer.model, DistributedDataParallel)


def trained(folder: Path, number: int, rank: int, processes: int, how: str, kill: int) -> None:
    """Train in this process, and leave what there is to tell."""
    torch.set_num_threads(1)
    if how == "kill" and rank == 0:
        killed_at(kill)
    ours = "killed" if how in ("kill", "resume") else str(number)
    told: dict[str, Any] = {"delta": DELTA, "log_private": True, "seed": None if ours == "killed" else SEED}
    size = 4 // processes  # of 4 a step, however many processes there are
    if how == "users":
        told |= {"epsilon": 4.0, "clip_norm": 0.4, "users": users(), "records_per_user": 2, "views": 2}
    else:
        told |= {"run": run_of(), "checkpoints": folder / f"private-{ours}", "ema": 0.9}
    private, log = PrivateTraining(**told), Log()
    kept = [] if how == "users" else [ModelCheckpoint(dirpath=folder / f"kept-{ours}", every_n_train_steps=2, save_last=True)]
    strategy = {"strategy": "ddp", "devices": processes} if processes > 1 else {}
    made = trainer(private, log, *kept, folder=folder if kept else None, **strategy)
    with torch.random.fork_rng():
        torch.manual_seed(rank)  # processes that do not begin alike
        module = Classifier()
        if rank:
            torch.nn.init.normal_(module.net[0].weight)
    made.fit(module, loader(size), ckpt_path="last" if how == "resume" else None)
    found = {
        "model": flat(module),
        "average": None if private.averaged is None else torch.cat([private.averaged[name].flatten() for name in sorted(private.averaged)]),
        "run": private.record().run.to_document(),
        "epsilon": private.certificate_.epsilon,
        "losses": log.losses,
        "wrapped": log.wrapped,
        "strategy": type(made.strategy).__name__,
    }
    torch.save(found, folder / f"told-{number}-{rank}.pt")


def together(folder: Path, number: int, word: str) -> list[int]:
    """The exit statuses of the processes of one training."""
    how, processes, *steps = word.split(":")
    return forked(lambda rank: trained(folder, number, rank, int(processes), how, int(steps[0]) if steps else 0), int(processes))


if __name__ == "__main__":
    ended = [together(Path(sys.argv[1]), number, word) for number, word in enumerate(sys.argv[2:])]
    print("ended", ended)
