"""Each way of training on a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from doors import fit_head, fit_linear
from torch import nn

import lethe
from lethe.train import PrivacyEngine, fit
from lethe.train.core.samplers import draw_batches


def _features(run: lethe.Run) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return random.normal(size=(run.records, 3)), random.integers(2, size=run.records)


def _fit(run: lethe.Run) -> Any:
    features, targets = _features(run)
    data = torch.tensor(features), torch.tensor(targets)
    return fit(nn.Linear(3, 2).double(), nn.CrossEntropyLoss(reduction="none"), data, run)


def _engine(run: lethe.Run) -> Any:
    features, targets = _features(run)
    model = nn.Linear(3, 2).double()
    data = torch.tensor(features), torch.tensor(targets)
    own = torch.optim.SGD(model.parameters(), lr=0.5)
    engine = PrivacyEngine(model, own, lambda batch: model(batch[0]).sum(1), data, run)
    loader = engine.batches()
    return next(iter(loader))


TRAINERS: dict[str, Callable[[lethe.Run], Any]] = {
    "draw_batches": lambda run: next(draw_batches(run, torch.Generator().manual_seed(0))),
    "fit_linear": lambda run: fit_linear(run, *_features(run), classes=2),
    "fit_head": lambda run: fit_head(
        nn.Identity(), nn.Linear(3, 2, bias=False).double(), (torch.tensor(_features(run)[0]), torch.tensor(_features(run)[1])), run
    ),
    "fit": _fit,
    "engine": _engine,
}
