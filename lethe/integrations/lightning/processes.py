"""Lightning's ddp without DistributedDataParallel: processes exchange clipped sums, through the engine, and nothing else."""

from __future__ import annotations

from typing import Any

import torch

from lethe.errors import InputError
from lethe.integrations.lightning.package import is_a
from lethe.integrations.lightning.patches import Patches

_EXCHANGED = "it exchanges gradients, or moves parameters, by itself; the processes exchange clipped sums"


def refuse_strategy(trainer: Any) -> None:
    """Refuse strategies other than one device, and one process for each device.

    Args:
        trainer: of Lightning.
    Raises:
        InputError: another strategy, or options of it that are not honoured, by name.
    """
    strategy = trainer.strategy
    if is_a(strategy, "SingleDeviceStrategy") and not is_a(strategy, "ParallelStrategy") and trainer.world_size == 1:
        return
    if not (type(strategy).__name__ == "DDPStrategy" and is_a(strategy, "DDPStrategy")):
        raise InputError(
            f"strategy: got {type(strategy).__name__}; private training takes one device, or DDP.",
            source="Trainer",
            remedy='strategy="ddp"; for a model too large for one device, lethe.train.fit after torch.distributed.fsdp.fully_shard(model).',
        )
    if strategy._start_method != "popen":
        raise InputError(
            f"strategy: got DDP that starts its processes by {strategy._start_method}, where the certificate would stay.",
            source="Trainer",
            remedy='strategy="ddp" in a script, by itself or under torchrun --nproc-per-node=2; in a notebook devices=1.',
        )
    asked = {
        "ddp_comm_hook": strategy._ddp_comm_hook,
        "ddp_comm_wrapper": strategy._ddp_comm_wrapper,
        "ddp_comm_state": strategy._ddp_comm_state,
        "model_averaging_period": strategy._model_averaging_period,
        "mixed_precision": strategy._ddp_kwargs.get("mixed_precision"),
    }
    for name, value in asked.items():
        if value is not None:
            raise InputError(
                f"{name}: given, which private training does not take.", source="DDPStrategy", remedy=f"leave it out: {_EXCHANGED}."
            )


def without_reducer(patches: Patches, strategy: Any) -> None:
    """Leave the module bare where ddp would wrap it, and give all processes the weights of process 0, as the wrapper does.

    Args:
        patches: by which it is put there.
        strategy: of the Trainer, before it is set up.
    """
    if is_a(strategy, "DDPStrategy"):
        patches.put(strategy, "configure_ddp", lambda: _begin_alike(strategy.lightning_module))


def _begin_alike(module: torch.nn.Module) -> None:
    for tensor in (*module.parameters(), *module.buffers()):
        torch.distributed.broadcast(tensor.detach(), 0)
