"""One step of a small recommender with a table of a million rows: time and peak memory of Lethe, Opacus and plain training, in one run.

    python benchmarks/embedding_speed.py [--rounds 3] [--rows 1000000] [--width 16] [--threads 2]

Each engine runs in a process of its own; rounds are interleaved, and the median step over all rounds is shown relative to plain training
with a dense gradient by the same optimiser. A step is forward, backward, clipping, noise and update. The peak is what the process holds at
most beyond what it holds before the first step, in tables of float32: of plain training its gradient and the optimiser's state. Opacus
clips by "ghost" norms, and is measured where it is installed (`pip install --no-deps opacus opt_einsum`); gradients of single records, of
16 GB, are not tried.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import lethe
from lethe.train import PrivacyEngine, SparseSelection, TrainOptions

RECORDS, BATCH, FIELDS, STEPS, WARM = 4096, 256, 4, 14, 5
ENGINES = ("plain", "opacus", "lethe", "lethe, selected rows")
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


class Recommender(nn.Module):
    """A user and three items, and a perceptron."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.score = nn.Sequential(nn.Linear(FIELDS * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 4) to (B,)."""
        return self.score(self.table(tokens).flatten(1))[:, 0]


def _data(rows: int) -> tuple[Tensor, Tensor]:
    """Items are looked up about as often as words are: the k-th in proportion to 1/k."""
    torch.manual_seed(0)
    tokens = (rows ** torch.rand(RECORDS, FIELDS)).long().clamp(max=rows - 1)
    return tokens, torch.randint(2, (RECORDS,)).float()


def _plain(model: nn.Module, data: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> Iterator[None]:
    for step in range(STEPS):
        some = slice(step * BATCH, (step + 1) * BATCH)
        tokens, labels = (one[some] for one in data)
        yield
        functional.binary_cross_entropy_with_logits(model(tokens), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def _lethe(
    selection: SparseSelection | None, model: nn.Module, data: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer
) -> Iterator[None]:
    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1], reduction="none")

    fields = {"records": RECORDS, "batches": {"design": "cyclic", "size": BATCH}, "steps": STEPS, "step_size": 0.1, "clip_norm": 1.0}
    run = lethe.Run(**fields, noise_multiplier=1.0, release="all")
    engine = PrivacyEngine(model, optimizer, losses, data, run, options=TrainOptions(sparse_selection=selection))
    for batch in engine.batches():
        yield
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()


def _opacus(model: nn.Module, data: tuple[Tensor, Tensor], optimizer: torch.optim.Optimizer) -> Iterator[None]:
    import opacus  # pyright: ignore[reportMissingImports]

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=BATCH)
    private = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        criterion=nn.BCEWithLogitsLoss(),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode="ghost",
    )
    model, optimizer, criterion, loader = private
    for _, (tokens, labels) in zip(range(STEPS), loader, strict=False):
        yield
        criterion(model(tokens), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def _kilobytes(name: str) -> int:
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))


def _measure(engine: str, optimizer: str, rows: int, width: int, threads: int) -> dict[str, list[float]]:
    """Wall and CPU seconds of the steps, and the peak in tables."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    model, data = Recommender(rows, width), _data(rows)
    _ = importlib.import_module("opacus") if engine == "opacus" else None
    selection = SparseSelection(parameters=("table.weight",), threshold=4 / 0.1**0.5, share=0.1)
    made = OPTIMIZERS[optimizer](model.parameters(), lr=0.1)
    if engine == "plain":
        steps = _plain(model, data, made)
    elif engine == "opacus":
        steps = _opacus(model, data, made)
    else:
        steps = _lethe(selection if "selected" in engine else None, model, data, made)
    next(steps)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    held, walls, cpus = _kilobytes("VmRSS"), list[float](), list[float]()
    begun = time.perf_counter(), time.process_time()
    for _ in steps:
        walls.append(time.perf_counter() - begun[0])
        cpus.append(time.process_time() - begun[1])
        begun = time.perf_counter(), time.process_time()
    peak = (_kilobytes("VmHWM") - held) * 1024 / (rows * width * 4)
    return {"wall": walls[WARM:], "cpu": cpus[WARM:], "peak": [peak]}


def main() -> None:
    """Print the table, or measure one engine for it."""
    parser = argparse.ArgumentParser()
    for name, default in (("rounds", 3), ("rows", 1_000_000), ("width", 16), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--measure", nargs=2)
    given = parser.parse_args()
    if given.measure:
        engine, optimizer = given.measure
        print(json.dumps(_measure(engine, optimizer, given.rows, given.width, given.threads)))
        return
    engines = [one for one in ENGINES if one != "opacus" or importlib.util.find_spec("opacus")]
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(given.rounds):
        for optimizer in OPTIMIZERS:
            for engine in engines:
                command = [
                    sys.executable,
                    __file__,
                    "--rows",
                    str(given.rows),
                    "--width",
                    str(given.width),
                    "--threads",
                    str(given.threads),
                ]
                done = subprocess.run([*command, "--measure", engine, optimizer], capture_output=True, text=True, check=False)
                if done.returncode:
                    print(engine, optimizer, done.stderr[-300:], file=sys.stderr)
                    continue
                for name, values in json.loads(done.stdout.splitlines()[-1]).items():
                    found.setdefault((engine, optimizer), {}).setdefault(name, []).extend(values)
    table = Table(title=f"a table of {given.rows} x {given.width}, batches of {BATCH}, {given.threads} threads, {given.rounds} rounds")
    for column in ("optimiser", "engine", "ms", "times plain", "CPU ms", "times plain", "peak, in tables"):
        table.add_column(column)
    for (engine, optimizer), values in sorted(found.items(), key=lambda one: one[0][1]):
        medians = {name: statistics.median(numbers) for name, numbers in values.items()}
        plain = {name: statistics.median(numbers) for name, numbers in found["plain", optimizer].items()}
        times = [cell for name in ("wall", "cpu") for cell in (f"{1e3 * medians[name]:.0f}", f"{medians[name] / plain[name]:.2f}")]
        table.add_row(optimizer, engine, *times, f"{medians['peak']:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
