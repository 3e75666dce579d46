"""What an ordinary private step costs where arithmetic weighs next to nothing: Lethe, Opacus' hooks and plain SGD side by side.

    python benchmarks/step_cost.py [--rounds N] [--models mlp,cnn,GPT-2,LoRA] [--json FILE]

A GPU computes such models faster than Python asks for it, so what is counted here on one core of a CPU is what a GPU waits for: processor
time, operations, waits for the device, and the engine's own Python calls (of how many functions, in how many files). Times are ratios to
plain SGD of the same round; the median of the rounds is shown. Steps in which records are compared with records alone (1, 2, 4, 8, ... and
one of 128 by chance) are not among those that are timed or counted, but for those by chance: hence several rounds.
Opacus is measured where it is installed (it is no dependency of Lethe), with what it does not take made easier (see `Ease`).
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from finetune_models import AS_IT_IS, MODELS, Built, Ease, RecordLoss
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, TensorDataset

import lethe
from lethe.train import PrivacyEngine, TrainOptions, fit

TIMED = [step for step in range(9, 32) if step != 16]  # none that is a power of two
PROFILED, COUNTED = 34, 36
STEPS = COUNTED + 1
RATE, CLIP_NORM, NOISE_MULTIPLIER = 0.01, 1.0, 1.0
WAITS = frozenset(("aten::_local_scalar_dense", "aten::nonzero", "aten::equal"))
"""Operations whose result the processor has to wait for."""

Cost = dict[str, float]


def _mlp(ease: Ease) -> Built:
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)), torch.randn(100, 64), torch.randint(10, (100,))


def _cnn(ease: Ease) -> Built:
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10)]
    return nn.Sequential(*layers), torch.randn(16, 1, 12, 12), torch.randint(10, (16,))


BUILDERS: dict[str, Callable[[Ease], Built]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "GPT-2": MODELS["GPT-2 (narrow)"],
    "LoRA": MODELS["LoRA (narrow)"],
}


def built(name: str, ease: Ease = AS_IT_IS) -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.optim.Optimizer]:
    """A model, its batch, and SGD of what it trains."""
    torch.manual_seed(0)
    model, inputs, targets = BUILDERS[name](ease)
    return model, inputs, targets, torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=RATE)


@dataclass
class Meter:
    """Is told of the end of every step, and measures the next one as its number says.

    Args:
        package: the folder whose functions are the engine's own; None: it has none.
    """

    package: str | None
    steps: int = 0
    begun: float = 0.0
    times: list[float] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    operations: list[Any] = field(default_factory=list)
    _profile: Any = None

    def end(self, *_: object) -> None:
        """A step is over."""
        taken = time.process_time() - self.begun
        self.steps += 1
        if self.steps in TIMED:
            self.times.append(taken)
        if self.steps == PROFILED - 1:
            self._profile = profile(activities=[ProfilerActivity.CPU])
            self._profile.__enter__()
        if self.steps == PROFILED:
            self._profile.__exit__(None, None, None)
            self.operations = [event for event in self._profile.events() or [] if event.name.startswith("aten::")]
        if self.steps == COUNTED - 1:
            sys.setprofile(self._called)
        if self.steps == COUNTED:
            sys.setprofile(None)
        self.begun = time.process_time()

    def _called(self, frame: Any, event: str, _: object) -> None:
        if event == "call" and self.package is not None and frame.f_code.co_filename.startswith(self.package):
            self.calls.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    @property
    def cost(self) -> Cost:
        """What was measured."""
        outermost = [one for one in self.operations if one.cpu_parent is None or not one.cpu_parent.name.startswith("aten::")]
        return {
            "milliseconds": 1e3 * statistics.median(self.times),
            "operations": len(outermost),
            "waits": sum(one.name in WAITS for one in self.operations),
            "calls": len(self.calls),
            "functions": len(set(self.calls)),
            "files": len({file for file, _ in self.calls}),
        }


def _folder(package: Any) -> str:
    return f"{Path(package.__file__).parent}/"


def _unreduced() -> RecordLoss:
    loss = RecordLoss()
    loss.reduction = "none"
    return loss


def _run(records: int) -> lethe.Run:
    fields: dict[str, Any] = {"records": records, "batches": lethe.batches.Cyclic(records), "steps": STEPS, "step_size": RATE}
    return lethe.Run(**fields, clip_norm=CLIP_NORM, noise_multiplier=NOISE_MULTIPLIER, release="all")


def plain(name: str) -> Cost:
    """Without privacy."""
    model, inputs, targets, optimizer = built(name)
    loss, meter = RecordLoss(), Meter(None)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
        meter.end()
    return meter.cost


def by_fit(name: str, **options: Any) -> Cost:
    """`fit`, with all that is on by default, and options."""
    model, inputs, targets, _ = built(name)
    meter = Meter(_folder(lethe))
    fit(model, _unreduced(), (inputs, targets), _run(len(inputs)), options=TrainOptions(progress=meter.end, **options))
    return meter.cost


def by_engine(name: str) -> Cost:
    """A loop of one's own with a PrivacyEngine, with all that is on by default."""
    model, inputs, targets, optimizer = built(name)
    loss, meter = _unreduced(), Meter(_folder(lethe))
    losses = lambda batch: loss(model(batch[0]), batch[1])  # noqa: E731
    engine = PrivacyEngine(model, optimizer, losses, (inputs, targets), _run(len(inputs)))
    for batch in engine.batches():
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
        meter.end()
    return meter.cost


def by_opacus(name: str) -> Cost:
    """Opacus' hooks."""
    import opacus  # an optional rival  # pyright: ignore[reportMissingImports]

    model, inputs, targets, optimizer = built(name, Ease(positions=True, untied=True))
    made: Any = opacus.PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=len(inputs)),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
        poisson_sampling=False,
    )
    loss, meter = RecordLoss(), Meter(_folder(opacus))
    for _ in range(STEPS):
        made[1].zero_grad()
        loss(made[0](inputs), targets).backward()
        made[1].step()
        meter.end()
    return meter.cost


ENGINES: dict[str, Callable[[str], Cost]] = {
    "plain": plain,
    "lethe fit": by_fit,
    "lethe fit per layer": partial(by_fit, clip_groups="per_layer"),
    "lethe loop": by_engine,
    "opacus hooks": by_opacus,
}


def measured(name: str, engines: list[str], rounds: int) -> dict[str, Cost]:
    """Of each engine the medians of the rounds; `time` and `times operations` are ratios to plain of the same round."""
    found: dict[str, list[Cost]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            gc.collect()
            cost = ENGINES[engine](name)
            base = found["plain"][-1] if engine != "plain" else cost
            cost["time"], cost["times operations"] = (cost[key] / base[key] for key in ("milliseconds", "operations"))
            found[engine].append(cost)
    return {engine: {key: statistics.median(one[key] for one in costs) for key in costs[0]} for engine, costs in found.items()}


def table_of(name: str, found: dict[str, Cost]) -> Table:
    """For people."""
    table = Table(title=f"{name}: an ordinary step", title_justify="left")
    columns = ("engine", "ms", "times plain", "operations", "times plain", "waits", "own calls", "of functions", "in files")
    for column in columns:
        table.add_column(column, justify="left" if column == "engine" else "right")
    for engine, cost in found.items():
        counts = (f"{cost[key]:.0f}" for key in ("waits", "calls", "functions", "files"))
        ratios = f"{cost['time']:.2f}", f"{cost['operations']:.0f}", f"{cost['times operations']:.2f}"
        table.add_row(engine, f"{cost['milliseconds']:.2f}", *ratios, *counts)
    return table


def main() -> int:
    """Print one table a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", default=",".join(BUILDERS))
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    asked = parser.parse_args()
    names = asked.models.split(",")
    if unknown := [name for name in names if name not in BUILDERS]:
        print(f"step_cost: got {', '.join(unknown)}; it knows {', '.join(BUILDERS)}.", file=sys.stderr)
        return 2
    if asked.rounds < 1:
        print(f"step_cost: got {asked.rounds} rounds; it needs 1 or more.", file=sys.stderr)
        return 2
    needed = {"GPT-2": ("transformers",), "LoRA": ("transformers", "peft")}
    if missing := sorted({one for name in names for one in needed.get(name, ()) if importlib.util.find_spec(one) is None}):
        print(f"step_cost: {' and '.join(missing)} not found. Do: pip install {' '.join(missing)}; or --models mlp,cnn", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    engines = [engine for engine in ENGINES if engine != "opacus hooks" or importlib.util.find_spec("opacus")]
    told: dict[str, dict[str, Cost]] = {}
    for name in names:
        told[name] = measured(name, engines, asked.rounds)
        Console(width=140).print(table_of(name, told[name]))
    if asked.json:
        asked.json.write_text(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
