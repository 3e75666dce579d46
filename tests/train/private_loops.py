"""A loop of one's own around a small network, for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run

from lethe.run.run import Run
from lethe.train import PrivacyEngine


class Loop:
    """An engine with a model, an optimiser and a loader, and one step after another."""

    model: Any

    def __init__(self, run: Run | None = None, *, optimizer: Callable[..., Any] | None = None, model: Any = None, **options: Any) -> None:
        self.run = make_network_run(noise_multiplier=1.0) if run is None else run
        self.given = make_network() if model is None else model
        options = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0), **options}
        grouped = {name: options.pop(name) for name in ("users", "records_per_user") if name in options}
        self.engine = PrivacyEngine(self.run, **options)
        own = torch.optim.SGD(self.given.parameters(), lr=0.5) if optimizer is None else optimizer(self.given.parameters())
        self.model, self.optimizer, self.loader = self.engine.make_private(module=self.given, optimizer=own, data=make_data(), **grouped)
        assert self.model is self.given
        assert self.optimizer is own

    def losses(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with self.engine.recording():
            return CROSS_ENTROPY(self.model(inputs), targets)

    def use(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.engine.backward(self.losses(inputs, targets))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def whole(self) -> Run:
        for inputs, targets in self.loader:
            self.use(inputs, targets)
        return self.engine.recorded_run()
