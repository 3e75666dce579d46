"""A loop of one's own around `PrivacyEngine`, with the arguments of `fit`, so that the same games audit both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lethe.run.run import Run
from lethe.train import PrivacyEngine, TrainOptions


def fit_by_engine(
    model: nn.Module, loss: Any, data: Any, run: Run, *, optimizer: torch.optim.Optimizer | None = None, options: TrainOptions
) -> Run:
    """Train by `PrivacyEngine`; returns the recorded run.

    Args:
        model, loss, data, run, options: as for `fit`.
        optimizer: None: plain SGD with the run's step sizes, which must be one number.
    """
    descent = torch.optim.SGD(model.parameters(), lr=float(run.step_sizes[0])) if optimizer is None else optimizer

    def losses(batch: Any) -> torch.Tensor:
        *inputs, targets = batch
        return loss(model(*inputs), targets)

    engine = PrivacyEngine(model, descent, losses, data, run, options=options)
    try:
        for batch in engine.batches():
            engine.backward(batch)
            descent.step()
            descent.zero_grad()
        return engine.recorded_run()
    finally:
        engine.close()
