"""Training in several processes on GPUs: is it exact, how long does a step take, how much memory, beside training without privacy.

    python benchmarks/gpu_check.py [--processes N] [--width 768] [--layers 6] [--batch 64] [--steps 12] [--recipes]

One process a GPU, over NCCL, in three layouts: the bare model, DistributedDataParallel, and shards (fully_shard). First each layout takes
three steps without noise in float64, which are compared with the recursion written out by hand, one record at a time, on the CPU. Then a
small transformer is trained in float32 with AdamW, privately and plainly, and the median step and the largest memory of a GPU are shown.
With --cpu it runs over gloo on a machine without a GPU, to show that the script works; its times then mean nothing.

With --recipes it takes the first steps of each recipe of examples/recipes instead, five minutes of each at most: real architectures with
random weights, and made-up data; with --cpu their small size.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_recipes import recipes_table
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import lethe
from lethe.train import TrainOptions, fit
from lethe.train.core.tensors import whole

LAYOUTS = ("bare", "DistributedDataParallel", "fully_shard")
LOSS = nn.CrossEntropyLoss(reduction="none")
RECORDS, COLUMNS, CLASSES, CLIP_NORM, STEP_SIZE = 37, 6, 4, 0.3, 0.5
WORDS, LENGTH, WARM = 1000, 64, 3


class Transformer(nn.Module):
    """Tokens to classes."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the classes."""
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.mean(1))


def small(device: torch.device) -> nn.Sequential:
    """Of 7 and 4 rows: uneven shards."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, CLASSES)).double().to(device)


def laid_out(model: nn.Module, layout: str, device: torch.device) -> Any:
    """The model as a user of this layout has it."""
    if layout == "DistributedDataParallel":
        return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    if layout == "fully_shard":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for block in getattr(model, "blocks", [model[0]] if isinstance(model, nn.Sequential) else []):
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    return model


def small_data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(RECORDS, COLUMNS, generator=generator, dtype=torch.float64), torch.randint(CLASSES, (RECORDS,), generator=generator)


def by_hand(steps: int) -> Tensor:
    """The noiseless recursion on the CPU, one record at a time."""
    model, (features, targets) = small(torch.device("cpu")), small_data()
    parameters = list(model.parameters())
    for _ in range(steps):
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for row in range(RECORDS):
            gradient = torch.autograd.grad(LOSS(model(features[row : row + 1]), targets[row : row + 1]).sum(), parameters)
            factor = min(1.0, CLIP_NORM / float(torch.stack([part.square().sum() for part in gradient]).sum().sqrt()))
            total = [one + factor * part for one, part in zip(total, gradient, strict=True)]
        with torch.no_grad():
            for parameter, part in zip(parameters, total, strict=True):
                parameter.sub_(part, alpha=STEP_SIZE / RECORDS)
    return torch.cat([parameter.detach().reshape(-1) for parameter in parameters])


def error_of(layout: str, device: torch.device) -> float:
    """How far three steps of a layout lie from those by hand, at most."""
    run = lethe.Run(
        records=RECORDS,
        batches={"design": "full"},  # pyright: ignore[reportArgumentType]
        steps=3,
        step_size=STEP_SIZE,
        clip_norm=CLIP_NORM,
        noise_multiplier=0.0,
        release="all",
        neighbours="zero_out",
    )
    model = laid_out(small(device), layout, device)
    fit(model, LOSS, small_data(), run, optimizer=torch.optim.SGD(model.parameters(), lr=STEP_SIZE))
    found = torch.cat([whole(parameter.detach()).reshape(-1).cpu() for parameter in model.parameters()])
    return float((found - by_hand(3)).abs().max())


def synchronise(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def measured(layout: str, private: bool, device: torch.device, asked: argparse.Namespace) -> dict[str, float]:
    """The median time of a step, and the largest memory of this process's GPU."""
    torch.manual_seed(0)
    model = laid_out(Transformer(asked.width, asked.layers).to(device), layout, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens, targets = torch.randint(WORDS, (4 * asked.batch, LENGTH)), torch.randint(CLASSES, (4 * asked.batch,))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    times = [synchronise(device)]
    if private:
        run = lethe.Run(
            records=4 * asked.batch,
            batches=lethe.batches.Shuffled(asked.batch),
            steps=asked.steps,
            step_size=1e-4,
            clip_norm=1.0,
            noise_multiplier=1.0,
            release="all",
            neighbours="replace_one",
        )
        fit(
            model,
            LOSS,
            (tokens, targets),
            run,
            optimizer=optimizer,
            options=TrainOptions(progress=lambda step, steps: times.append(synchronise(device))),
        )
    else:
        rank, share = dist.get_rank(), -(-asked.batch // dist.get_world_size())
        inputs, wanted = tokens[rank * share :][:share].to(device), targets[rank * share :][:share].to(device)
        for _ in range(asked.steps):
            LOSS(model(inputs), wanted).mean().backward()
            if layout == "bare":  # as one would without a wrapper
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad()
            times.append(synchronise(device))
    took = [after - before for before, after in pairwise(times)]
    memory = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"seconds": statistics.median(took[WARM:]), "first": took[0], "memory": float(memory)}


def work(rank: int, asked: argparse.Namespace, port: int, folder: str) -> None:
    """One process: all layouts, one after the other; process 0 writes what it found."""
    device = torch.device("cpu") if asked.cpu else torch.device("cuda", rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo" if asked.cpu else "nccl", rank=rank, world_size=asked.processes)
    found: dict[str, Any] = {}
    for layout in LAYOUTS:
        error = error_of(layout, device)
        found[layout] = {"error": error} | {kind: measured(layout, kind == "private", device, asked) for kind in ("plain", "private")}
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def table_of(found: dict[str, Any], asked: argparse.Namespace) -> Table:
    """What was found, for people."""
    table = Table(title=f"{asked.processes} processes, width {asked.width}, {asked.layers} layers, {asked.batch} records a step")
    for column in ("layout", "error in float64", "plain ms", "private ms", "ratio", "first step", "plain MiB", "private MiB", "ratio"):
        table.add_column(column, justify="left" if column == "layout" else "right")
    for layout, one in found.items():
        plain, private = one["plain"], one["private"]
        memory = [f"{kind['memory'] / 2**20:.0f}" for kind in (plain, private)] if plain["memory"] else ["-", "-"]
        table.add_row(
            layout,
            f"{one['error']:.1e}",
            f"{1e3 * plain['seconds']:.1f}",
            f"{1e3 * private['seconds']:.1f}",
            f"{private['seconds'] / plain['seconds']:.2f}",
            f"{private['first'] / private['seconds']:.1f} x",
            *memory,
            f"{private['memory'] / plain['memory']:.2f}" if plain["memory"] else "-",
        )
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=0, help="one a GPU; by default as many as there are GPUs")
    for name, default in (("width", 768), ("layers", 6), ("batch", 64), ("steps", 12)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--recipes", action="store_true", help="the first steps of each recipe instead")
    parser.add_argument("--cpu", action="store_true", help="over gloo, without a GPU; the times mean nothing")
    asked = parser.parse_args()
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not asked.cpu and not (gpus and dist.is_nccl_available()):
        why = "no GPU that PyTorch can use was found" if not gpus else "this PyTorch was built without NCCL"
        print(f"gpu_check: {why}; nothing was measured. With --cpu the script runs over gloo, to show that it works.", file=sys.stderr)
        return 2
    if asked.recipes:
        table, failed = recipes_table(asked.steps, cpu=asked.cpu)
        Console(width=140).print(table)
        print(f"gpu_check: failed: {', '.join(failed)}." if failed else "gpu_check: every recipe trains.")
        return 1 if failed else 0
    asked.processes = asked.processes or (2 if asked.cpu else gpus)
    if not asked.cpu and asked.processes > gpus:
        print(f"gpu_check: {asked.processes} processes, and {gpus} GPUs; NCCL needs one for each.", file=sys.stderr)
        return 2
    if asked.steps <= WARM:
        print(f"gpu_check: --steps {asked.steps}; it needs more than {WARM}, which are not timed.", file=sys.stderr)
        return 2
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, args=(asked, port, folder), nprocs=asked.processes)  # pyright: ignore
        found = json.loads(Path(folder, "found.json").read_text())
    Console(width=140).print(table_of(found, asked))
    wrong = [layout for layout, one in found.items() if not one["error"] < 1e-9]
    print(f"gpu_check: wrong in {', '.join(wrong)}." if wrong else "gpu_check: every layout takes the steps written out by hand.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
