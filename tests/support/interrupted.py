"""Trainings that are killed, and a spy on their noise that knows nothing of the library's journal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from doors import arguments
from helpers import DESIGNS as ALL_DESIGNS
from networks import CROSS_ENTROPY, RECORDS, make_data, make_network, make_network_run
from torch import Tensor, nn

from lethe.run.run import Run
from lethe.train import Checkpoints, Fitted, fit
from lethe.train.core.samplers import draw_batches
from lethe.train.data.batches import BatchStream
from lethe.train.network.noise.gaussian import NetworkNoise

AVERAGED: dict[str, Any] = {"noise_at": "pass_ends", "pass_weights": 1.0, "passes": 5}
DESIGNS: dict[str, dict[str, Any]] = {
    **{design: {} for design in ALL_DESIGNS},
    "pass_ends": {"design": "shuffled", "noise_at": "pass_ends", "passes": 5},
    "averaged": {"design": "cyclic", **AVERAGED},
    "averaged_shuffled": {"design": "shuffled", **AVERAGED},
}
"""Designs of batches and places of noise, by name."""


class Killed(BaseException):
    """Stands for the end of a process: nothing in the library may catch it."""


def make_kept_run(name: str, release: str = "all", **changes: Any) -> Run:
    """20 steps with noise of one of DESIGNS."""
    fields = {"steps": 20, "noise_multiplier": 1.0, **DESIGNS[name], **changes}
    if "passes" in fields:
        del fields["steps"]
    return make_network_run(fields.pop("design", name), release=release, **fields)


def planned_batches(run: Run, seed: int = 3) -> list[list[int]]:
    """The records of every step of a training that nobody interrupts."""
    return [torch.arange(RECORDS)[batch].tolist() for batch in draw_batches(run, torch.Generator().manual_seed(seed))]


class Spy:
    """Notes each addition of noise: the step whose batch came last, its records, and the noise; and may end the process there.

    Args:
        tell: is called with the step and its records just before the noise is drawn.
    """

    def __init__(self, tell: Callable[[int, list[int]], None] = lambda step, records: None) -> None:
        self._tell = tell
        self.steps: list[int] = []
        self.records: list[list[int]] = []
        self.noises: list[Tensor] = []
        self._kill_at, self._before = 0, False

    def kill(self, count: int, *, before: bool) -> None:
        """End the process at the count-th noise from now, just before or just after it is drawn."""
        self._kill_at, self._before = len(self.steps) + count, before

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within: it listens."""
        add, iterate = NetworkNoise.add, BatchStream.__iter__
        present: list[Any] = []

        def spied(noise: NetworkNoise, tensors: Any, noise_std: float, **correlating: Any) -> None:
            tensors = list(tensors)
            if noise_std == 0.0:
                return
            step, records = present[-1].step, torch.arange(RECORDS)[present[-1].whole].tolist()
            here = len(self.steps) + 1 == self._kill_at
            if here and self._before:
                self._kill_at = 0
                raise Killed
            self._tell(step, records)
            untouched = tensors[0].detach().clone()
            add(noise, tensors, noise_std, **correlating)
            self.steps.append(step)
            self.records.append(records)
            self.noises.append(tensors[0].detach() - untouched)
            if here:
                raise Killed

        def followed(stream: BatchStream) -> Iterator[Any]:
            for batch in iterate(stream):
                present[:] = [batch]
                yield batch

        NetworkNoise.add, BatchStream.__iter__ = spied, followed  # type: ignore[method-assign]
        try:
            yield
        finally:
            NetworkNoise.add, BatchStream.__iter__ = add, iterate  # type: ignore[method-assign]


def trained(
    folder: Path, run: Run, spy: Spy | None = None, *, every: int = 3, model: nn.Module | None = None, **options: Any
) -> Fitted[nn.Module] | None:
    """fit with checkpoints, on a network and its data; None: it was killed."""
    with (Spy() if spy is None else spy).watching():
        try:
            return fit(
                make_network() if model is None else model,
                options.pop("loss", CROSS_ENTROPY),
                options.pop("data", None) or make_data(),
                run,
                **arguments(
                    {
                        "checkpoints": options.pop("checkpoints", Checkpoints(folder=folder, every=every)),
                        "batch_generator": torch.Generator().manual_seed(3),
                        "physical_size": 4,
                        "isolation": "declared",
                        **options,
                    }
                ),
            )
        except Killed:
            return None
