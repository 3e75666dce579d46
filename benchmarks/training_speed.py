"""One private step of four networks: wall time, CPU time and peak memory of Lethe, its rivals and plain SGD, in one run.

    python benchmarks/training_speed.py [--rounds N] [--models mlp,cnn,...] [--engines lethe,...]

Each engine runs in a process of its own, so that its peak memory is its own; rounds are interleaved, and the median step over all rounds is
shown relative to plain SGD of the same model. A step is forward, backward, clipping, noise and update, on one batch that is in memory.
Opacus is measured where it is installed (it is no dependency of Lethe).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from lethe.calculus.noise_generators import fresh_numpy_generator
from lethe.train.clip.clipper import Clipper
from lethe.train.network.noise.gaussian import NetworkNoise

CLIP_NORM, NOISE_MULTIPLIER, STEP_SIZE = 1.0, 1.0, 0.05
THREADS, WARM_STEPS, SECONDS = 2, 3, 6.0
Step = Callable[[], None]


def _mlp() -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 10))
    return model, torch.randn(256, 784), torch.randint(10, (256,))


def _cnn() -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    return model, torch.randn(256, 1, 28, 28), torch.randint(10, (256,))


class _Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.first_norm = nn.GroupNorm(32, outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.second_norm = nn.GroupNorm(32, outside)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.GroupNorm(32, outside))

    def forward(self, images: Tensor) -> Tensor:
        hidden = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(hidden)) + self.shortcut(images))


def _resnet() -> tuple[nn.Module, Tensor, Tensor]:
    stages = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, 1, 1, bias=False),
        nn.GroupNorm(32, 64),
        nn.ReLU(),
        *(_Block(*stage) for stage in stages),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
    return model, torch.randn(64, 3, 32, 32), torch.randint(10, (64,))


class _Attention(nn.Module):
    """Self-attention out of linear layers, which every rival can clip; PyTorch's own attention only Lethe takes as it is."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        def split(hidden: Tensor) -> Tensor:
            return hidden.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        attended = nn.functional.scaled_dot_product_attention(
            split(self.queries(tokens)), split(self.keys(tokens)), split(self.values(tokens))
        )
        return self.out(attended.transpose(1, 2).flatten(2))


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.attention_norm = _Attention(width, 4), nn.LayerNorm(width)
        self.feed, self.feed_norm = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)), nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        return tokens + self.feed(self.feed_norm(tokens))


class _Mean(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(dim=1)


def _transformer() -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(nn.Embedding(10_000, 256), *(_Layer(256) for _ in range(4)), _Mean(), nn.Linear(256, 2))
    return model, torch.randint(10_000, (32, 128)), torch.randint(2, (32,))


MODELS = {"mlp": _mlp, "cnn": _cnn, "resnet": _resnet, "transformer": _transformer}


def _plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    optimizer, loss = torch.optim.SGD(model.parameters(), lr=STEP_SIZE), nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()

    return step


def _lethe(model: nn.Module, inputs: Tensor, targets: Tensor, *, noise_multiplier: float = NOISE_MULTIPLIER) -> Step:
    loss = nn.CrossEntropyLoss(reduction="none")
    clipper = Clipper(model, lambda batch: loss(model(batch[0]), batch[1]), CLIP_NORM, isolation="declared")
    noise, parameters = NetworkNoise(fresh_numpy_generator()), list(model.parameters())
    unit = STEP_SIZE / len(targets)

    def step() -> None:
        clipper.add((inputs, targets))
        sums = clipper.take()
        noise.add_to([sums[parameter] for parameter in parameters], noise_multiplier * CLIP_NORM)
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(sums.pop(parameter).to(parameter.dtype), alpha=-unit)

    return step


def _by_hand(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
    loss, parameters = nn.CrossEntropyLoss(), dict(model.named_parameters())

    def one(values: dict[str, Tensor], record: Tensor, target: Tensor) -> Tensor:
        return loss(torch.func.functional_call(model, values, (record.unsqueeze(0),)), target.unsqueeze(0))

    gradients_of = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))

    def step() -> None:
        gradients = gradients_of({name: value.detach() for name, value in parameters.items()}, inputs, targets)
        squares = torch.stack([gradient.flatten(1).square().sum(1) for gradient in gradients.values()]).sum(0)
        weights = (CLIP_NORM / squares.sqrt()).clamp(max=1.0)
        with torch.no_grad():
            for name, value in parameters.items():
                mean = (torch.tensordot(weights, gradients[name], dims=1) + NOISE_MULTIPLIER * CLIP_NORM * torch.randn_like(value)) / len(
                    targets
                )
                value.sub_(mean, alpha=STEP_SIZE)

    return step


def _opacus(mode: str) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    def build(model: nn.Module, inputs: Tensor, targets: Tensor) -> Step:
        from opacus import PrivacyEngine  # an optional rival  # pyright: ignore[reportMissingImports]

        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=len(targets))
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=STEP_SIZE),
            criterion=nn.CrossEntropyLoss(),
            data_loader=data,
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=CLIP_NORM,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
        module, optimizer, loss = made[0], made[1], made[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def step() -> None:
            optimizer.zero_grad()
            loss(module(inputs), targets).backward()
            optimizer.step()

        return step

    return build


ENGINES: dict[str, Callable[[nn.Module, Tensor, Tensor], Step]] = {
    "plain SGD": _plain,
    "lethe": _lethe,
    "lethe without its noise": partial(_lethe, noise_multiplier=0.0),
    "torch.func by hand": _by_hand,
    **{f"opacus {mode}": _opacus(mode) for mode in ("hooks", "functorch", "ew", "ghost")},
}


def measure(model: str, engine: str) -> dict[str, float]:
    """The median step of one engine in this process, and the process's peak memory."""
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    step = ENGINES[engine](*MODELS[model]())
    for _ in range(WARM_STEPS):
        step()
    walls: list[float] = []
    cpus: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < SECONDS or len(walls) < 3:
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"wall": statistics.median(walls), "cpu": statistics.median(cpus), "peak": peak}


def _measured_apart(model: str, engine: str) -> dict[str, float] | str:
    done = subprocess.run([sys.executable, __file__, "--one", model, engine], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1][:60] if done.stderr.strip() else "failed"
    return json.loads(done.stdout)


def main() -> None:
    """Print one table a model."""
    parser = argparse.ArgumentParser(description="A private step of four networks, against the rivals.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "ENGINE"))
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(*chosen.one)))
        return
    engines = [name for name in chosen.engines.split(",") if not name.startswith("opacus") or importlib.util.find_spec("opacus")]
    for model in chosen.models.split(","):
        rounds: dict[str, list[dict[str, float]]] = {engine: [] for engine in engines}
        failures: dict[str, str] = {}
        with Progress(transient=True, console=Console(stderr=True)) as bar:
            task = bar.add_task(model, total=chosen.rounds * len(engines))
            for _ in range(chosen.rounds):
                for engine in engines:
                    result = failures.get(engine) or _measured_apart(model, engine)
                    if isinstance(result, str):
                        failures[engine] = result
                    else:
                        rounds[engine].append(result)
                    bar.advance(task)
        table = Table(title=f"{model}: median of {chosen.rounds} rounds")
        for column in ("engine", "ms a step", "times plain", "CPU times plain", "peak MB"):
            table.add_column(column, justify="left" if column == "engine" else "right")
        plain = {key: statistics.median(one[key] for one in rounds["plain SGD"]) for key in ("wall", "cpu", "peak")}
        for engine, results in rounds.items():
            if not results:
                table.add_row(engine, failures.get(engine, "-"), "", "", "")
                continue
            middle = {key: statistics.median(one[key] for one in results) for key in plain}
            ratios = (f"{middle['wall'] / plain['wall']:.2f}", f"{middle['cpu'] / plain['cpu']:.2f}")
            table.add_row(engine, f"{1000 * middle['wall']:.1f}", *ratios, f"{middle['peak']:.0f}")
        Console().print(table)


if __name__ == "__main__":
    main()
