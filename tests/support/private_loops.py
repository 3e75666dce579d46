"""A loop of one's own around a small network, for the tests of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from doors import arguments
from networks import CROSS_ENTROPY, make_data, make_network, make_network_run
from torch import Tensor

from lethe.run.run import Run
from lethe.train import PrivacyEngine

Losses = Callable[[Any], Tensor]


def losses_of(model: Any, criterion: Callable[..., Tensor] = CROSS_ENTROPY) -> Losses:
    """The function of a batch (inputs, targets)."""
    return lambda batch: criterion(model(batch[0]), batch[1])


class Loop:
    """An engine with a model, an optimiser and a loader, and one step after another."""

    model: Any

    def __init__(
        self,
        run: Run | None = None,
        *,
        optimizer: Callable[..., Any] | None = None,
        model: Any = None,
        losses: Losses | None = None,
        data: Any = None,
        **options: Any,
    ) -> None:
        self.run = make_network_run(noise_multiplier=1.0) if run is None else run
        self.given = make_network() if model is None else model
        if not options.keys() & {"seed", "secure"}:
            options = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0), **options}
        self.model = self.given
        self.optimizer = torch.optim.SGD(self.given.parameters(), lr=0.5) if optimizer is None else optimizer(self.given.parameters())
        losses, data = losses_of(self.given) if losses is None else losses, make_data() if data is None else data
        self.engine = PrivacyEngine(self.given, self.optimizer, losses, data, self.run, **arguments(options))
        self.loader = self.engine.batches()

    def use(self, batch: Any) -> None:
        self.engine.backward(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def whole(self) -> Run:
        for batch in self.loader:
            self.use(batch)
        return self.engine.recorded_run()
