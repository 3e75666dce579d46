"""How much memory a process needs while a model in shards takes a step, on CPUs over gloo: what the kernel counted, a parameter.

    python benchmarks/shard_memory.py [--processes 1 2 3] [--width 1024] [--blocks 8]

Each process trains a stack of blocks, each in shards of its own, by plain SGD in float32, on so few records that activations are small. Of
the resident memory the largest amount during the training is taken, less what there was when the model lay in shards and nothing was
trained; a second training is measured, since the first one loads code as well. One process holds the model whole.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import lethe
from lethe.train import TrainOptions, fit

LOSS = nn.CrossEntropyLoss(reduction="none")
RECORDS, CLASSES = 8, 4
CASES: dict[str, dict[str, Any]] = {
    "one micro-batch, no checks": {"isolation": "declared"},
    "four micro-batches, no checks": {"isolation": "declared", "physical_size": "quarter"},
    "all but the last block frozen, no checks": {"isolation": "declared", "frozen": True},
    "one micro-batch, first batch checked": {},
}


class Block(nn.Module):
    """A residual layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, given: Tensor) -> Tensor:
        """The sum of what is given and what the layer makes of it."""
        return given + torch.tanh(self.layer(given))


def stack(width: int, blocks: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _ in range(blocks)), nn.Linear(width, CLASSES))


def resident(name: str) -> int:
    """Bytes of this process that are resident, now ("VmRSS") or at most since `forget` ("VmHWM")."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def forget() -> None:
    """Begin to count the largest amount anew."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def trained(asked: argparse.Namespace, world: int, case: dict[str, Any]) -> float:
    """The largest resident memory of a training beyond that before it, in bytes a parameter."""
    options, model = dict(case), stack(asked.width, asked.blocks)
    if options.pop("frozen", False):
        for block in list(model)[:-2]:
            block.requires_grad_(False)
    if world > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    if "physical_size" in options:
        options["physical_size"] = max(2, RECORDS // world // 4)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(RECORDS * world, asked.width, generator=generator), torch.randint(CLASSES, (RECORDS * world,), generator=generator)
    run = lethe.Run(
        records=RECORDS * world,
        batches=lethe.batches.Full(),
        steps=2,
        step_size=0.1,
        clip_norm=1.0,
        noise_multiplier=1.0,
        release="all",
        neighbours="zero_out",
    )
    found: list[int] = []
    for _ in range(2):
        forget()
        before = resident("VmRSS")
        fit(model, LOSS, data, run, optimizer="sgd", lr=0.1, options=TrainOptions(**options))
        found.append(resident("VmHWM") - before)
    return found[-1] / numbers


def work(rank: int, asked: argparse.Namespace, world: int, port: int, path: str) -> None:
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=world)
    found = [trained(asked, world, case) for case in CASES.values()]
    if rank == world - 1:
        Path(path).write_text(json.dumps(found))
    if world > 1:
        dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--blocks", type=int, default=8)
    asked = parser.parse_args()
    if not Path("/proc/self/clear_refs").exists():
        print("shard_memory: needs Linux, whose /proc tells the largest resident memory.", file=sys.stderr)
        return 2
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "100000"  # what is let go goes back to the kernel at once, and so is counted when it is there
    table = Table(title="bytes a parameter and process during a training, beyond the model itself")
    table.add_column("training")
    columns: list[list[float]] = []
    for world in asked.processes:
        table.add_column(f"{world} process{'es' if world > 1 else ''}", justify="right")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "found")
            torch.multiprocessing.spawn(work, args=(asked, world, port, path), nprocs=world)  # pyright: ignore
            columns.append(json.loads(Path(path).read_text()))
        print(f"{world}: {columns[-1]}", file=sys.stderr, flush=True)
    for place, case in enumerate(CASES):
        table.add_row(case, *(f"{column[place]:.1f}" for column in columns))
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
