"""The command line of every recipe, and what it prints at the end: how well it learnt, what is proved, seconds a step and memory."""

import argparse
import json
import math
import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

QUIET: dict[str, Any] = {
    "save_strategy": "no",
    "logging_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "dataloader_pin_memory": torch.cuda.is_available(),
}
"""Of the arguments of a Trainer: nothing is written, nothing printed on the way."""


def parse(description: str | None, *, epsilon: float) -> argparse.Namespace:
    """The options of a recipe, of which `description` is the docstring and `epsilon` the default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size",
        choices=("real", "random", "small"),
        default="real",
        help="real: the published model and data; random: that architecture with random weights on made-up data; small: seconds on a CPU",
    )
    parser.add_argument("--steps", type=int, help="a training of so many steps, certified for these, in place of the whole one")
    parser.add_argument("--epsilon", type=float, default=epsilon, help="inf: without privacy (default: %(default)s)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where model and certificate go (with --size real: NAME-trained)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what is printed, for a program")
    options = parser.parse_args()
    if options.size == "real" and options.output is None:
        options.output = Path(f"{Path(parser.prog).stem}-trained")
    return options


@contextmanager
def downloading(what: str) -> Iterator[None]:
    """Within it what is published is loaded; where that cannot be had, the recipe ends and says what does not need it."""
    try:
        yield
    except (OSError, ImportError) as error:
        why = str(error).strip().partition("\n")[0]
        raise SystemExit(
            f"{what} cannot be loaded: {why}\n"
            "--size real needs the network, or what it loaded before, and every package that the recipe names.\n"
            "Without them: --size random for time and memory, --size small for a training of seconds."
        ) from error


class Meter:
    """Times the steps of a training of `model`: `TrainOptions(progress=meter)`, or `trainer.add_callback(meter.callback())`."""

    def __init__(self, options: argparse.Namespace, model: torch.nn.Module) -> None:
        self.options, self.model = options, model
        self.start, self.times = self._sums(), list[float]()
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()  # of training, not of making the model

    def __call__(self, step: int, steps: int) -> None:
        """A step was taken."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())

    def callback(self) -> Any:
        """For a Trainer."""
        from transformers import TrainerCallback

        meter = self

        class Steps(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                meter(state.global_step, state.max_steps)

        return Steps()

    def report(self, certificate: Any, whole: int, **scores: float) -> None:
        """Print and write the scores, on public data; the certificate, None without privacy; and the cost of a step.

        Args:
            certificate: a `lethe` certificate, or what has its epsilon and delta.
            whole: steps of the whole training.
            scores: such as accuracy=0.9.
        """
        steps = [after - before for before, after in pairwise(self.times)]  # the first step, which compiles and checks, is left out
        seconds = statistics.median(steps) if steps else math.nan
        memory = (
            torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        )
        moved = statistics.mean(before != now for before, now in zip(self.start, self._sums(), strict=True))
        results = {
            **scores,
            "epsilon": math.inf if certificate is None else certificate.epsilon,
            "delta": None if certificate is None else certificate.delta,
            "steps": len(self.times),
            "seconds_per_step": seconds,
            "hours": seconds * whole / 3600,
            "gibibytes": memory / 2**30,
            "moved": moved,
        }
        print(*(f"{name} {score:.4g}" for name, score in scores.items()), sep="\n")
        print("without privacy" if certificate is None else certificate)
        print(
            f"{len(self.times)} steps of {whole}, {seconds:.3g} s each: {results['hours']:.2g} hours in all; {memory / 2**30:.1f} GiB; "
            f"{moved:.0%} of the trained tensors moved"
        )
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(results))
        if self.options.output is not None:
            self._save(self.options.output, certificate)

    def _save(self, folder: Path, certificate: Any) -> None:
        """In transformers' way where the model has it (of an adapter the adapter alone), or a state dict."""
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(self.model, "save_pretrained"):
            self.model.save_pretrained(folder)
        else:
            torch.save(self.model.state_dict(), folder / "model.pt")
        if certificate is not None:
            certificate.save(folder / "certificate.json")

    def _sums(self) -> list[float]:
        """One number a trained tensor, by which it is seen to move."""
        return [float(tensor.detach().double().square().sum()) for tensor in self.model.parameters() if tensor.requires_grad]
