"""Trains a small classifier by PrivateTrainers in several processes over gloo, for test_trainer_processes.

`python trainers_together.py FOLDER train:1 train:2 plain:1 shards:2 kill:2:6 resume:3`: each word is one training in so many processes,
forked from this one as torchrun would start them; `plain` and `shards` are without noise, which is drawn shard by shard; `kill` ends
process 0 by SIGKILL once the noise of that step is journaled. Prints how the processes ended. Process r of training number n leaves
FOLDER/told-n-r.pt: parameters, run, epsilon and log.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from forked_processes import forked, killed_at
from small_models import classifier, padded, private, run_of, sentences
from torch import nn

STEPS, SEED = 6, 3


def trained(folder: Path, number: int, rank: int, how: str, kill: int) -> None:
    """Train in this process, and leave what there is to tell."""
    torch.set_num_threads(1)
    if how == "kill" and rank == 0:
        killed_at(kill)
    kept = how in ("kill", "resume")
    told: dict[str, Any] = {
        "data_collator": padded,
        "eval_dataset": sentences(7, length=None),
        "log_private": True,
        "ema": None if how == "shards" else 0.5,
    }
    changes: dict[str, Any] = {
        "eval_strategy": "steps",
        "eval_steps": 3,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "warmup_steps": 2,
    }
    changes |= {"save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2, "per_device_train_batch_size": 2}
    model: nn.Module = classifier()
    if how == "shards":
        model = sharded(model)
    noise = 0.0 if how in ("plain", "shards") else 1.0
    run = run_of(steps=STEPS, noise_multiplier=noise, clip_norm=0.3)
    trainer = private(folder / ("kept" if kept else f"out-{number}"), model, sentences(length=None), run=run, told=told, **changes)
    if not kept:
        trainer._options["seed"] = SEED
    trainer.train(resume_from_checkpoint=how == "resume")
    trainer.create_model_card()
    found = {
        "model": whole(trainer.model),
        "averaged": trainer.averaged,
        "wrapped": trainer.model_wrapped is trainer.model,
        "run": trainer.record().run.to_document(),
        "epsilon": trainer.certificate_.epsilon,
        "history": trainer.state.log_history,
        "steps": trainer.state.global_step,
    }
    torch.save(found, folder / f"told-{number}-{rank}.pt")


def sharded(model: Any) -> nn.Module:
    """The model in shards over all processes, layer by layer and the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    for layer in model.bert.encoder.layer:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model: Any) -> torch.Tensor:
    """All parameters, flat."""
    from torch.distributed.tensor import DTensor

    found = [parameter.full_tensor() if isinstance(parameter, DTensor) else parameter for parameter in model.parameters()]
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in found])


def together(folder: Path, number: int, word: str) -> list[int]:
    """The exit statuses of the processes of one training."""
    how, processes, *steps = word.split(":")

    def work(rank: int) -> None:
        if how == "shards":
            torch.distributed.init_process_group("gloo")
        trained(folder, number, rank, how, int(steps[0]) if steps else 0)

    return forked(work, int(processes))


if __name__ == "__main__":
    ended = [together(Path(sys.argv[1]), number, word) for number, word in enumerate(sys.argv[2:])]
    print("ended", ended)
