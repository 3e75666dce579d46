"""Memory and time of a step: two forward passes along a direction, against per-sample gradients, against inference; a process each.

    python benchmarks/zeroth_order.py [--layers 8] [--width 512] [--batch 32] [--tokens 128]

Memory is the most that the process held, beyond what it held with model and data made: of the GPU if there is one.
"""

import argparse
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import torch
from torch import nn

import lethe
from lethe.train import TrainOptions, fit

WAYS = ("inference", "directional", "clip")
STEPS = 5


class Classifier(nn.Module):
    """An encoder of tokens, and the mean over them."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, width)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True), layers)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of two classes, shape (B, 2)."""
        return self.head(self.encoder(self.table(tokens)).mean(1))


def held(device: torch.device) -> float:
    """The most bytes held so far."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated())
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(way: str, args: Any) -> None:
    """Print megabytes and seconds a step."""
    warnings.simplefilter("ignore")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Classifier(args.layers, args.width).to(device)
    data = torch.randint(1000, (args.batch, args.tokens)), torch.randint(2, (args.batch,))
    run = lethe.Run(
        records=args.batch, batches=lethe.batches.Full(), steps=1, step_size=1e-6, clip_norm=1.0, noise_multiplier=1.0, release="all"
    )
    with torch.no_grad():
        model.eval()(data[0][:1].to(device))
    before = held(device)

    def steps(count: int) -> None:
        if way == "inference":
            with torch.no_grad():
                for _ in range(2 * count):
                    model.eval()(data[0].to(device))
            return
        options = TrainOptions(method=way, progress=False, isolation="declared")
        fit(model, nn.CrossEntropyLoss(), data, run.replace(steps=count), options=options)

    steps(1)
    begun = time.perf_counter()
    steps(STEPS)
    if device.type == "cuda":
        torch.cuda.synchronize()
    print(f"{(held(device) - before) / 1e6:.0f} {(time.perf_counter() - begun) / STEPS:.3f}")


def main() -> None:
    """Measure all ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 8), ("width", 512), ("batch", 32), ("tokens", 128)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--way", choices=WAYS)
    args = parser.parse_args()
    if args.way:
        measured(args.way, args)
        return
    count = sum(parameter.numel() for parameter in Classifier(args.layers, args.width).parameters())
    print(f"{count / 1e6:.1f} million parameters, float32: {4 * count / 1e6:.0f} MB\n")
    print(f"{'':<14}{'MB beyond model':>16}{'s a step':>10}")
    for way in WAYS:
        line = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--way", way], check=True, capture_output=True, text=True).stdout
        memory, seconds = line.split()
        print(f"{'two inferences' if way == 'inference' else way:<14}{memory:>16}{seconds:>10}")


if __name__ == "__main__":
    main()
