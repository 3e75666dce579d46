"""Frozen backbones with a convex head, and records to train it on."""

from typing import Any

import numpy as np
import torch
from doors import fit_head
from helpers import make_run
from torch import Tensor, nn

from lethe.run.run import Run
from lethe.train import Fitted

RECORDS, INPUTS, FEATURES = 37, 6, 5
KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "softmax_regression": ({}, 3),
    "logistic_regression": ({}, 1),
    "least_squares": ({"residual_bound": 0.8}, 1),
}


def make_backbone(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        backbone = nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, FEATURES)).to(dtype)
        backbone(torch.randn(50, INPUTS, dtype=dtype) * 2 + 1)  # running statistics of other, public records
    return backbone.requires_grad_(False)


def make_head(kind: str = "softmax_regression", bias: bool = True, dtype: torch.dtype = torch.float64) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Linear(FEATURES, KINDS[kind][1], bias=bias, dtype=dtype)


def make_records(kind: str = "softmax_regression", dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(3)
    classes = {"softmax_regression": 3, "logistic_regression": 2}.get(kind)
    targets = random.normal(size=RECORDS) if classes is None else random.integers(classes, size=RECORDS)
    return torch.tensor(random.normal(size=(RECORDS, INPUTS)), dtype=dtype), torch.tensor(targets)


def make_head_run(kind: str = "softmax_regression", intercept: bool = True, **changes: Any) -> Run:
    loss = {"kind": kind, "feature_norm": 0.9, "intercept": intercept, "evidence": "enforced", **KINDS[kind][0]}
    steps = {"passes": 3, "step_size": 0.4, "noise_multiplier": 2.0, "noise_at": "pass_ends"}
    return make_run(records=RECORDS, batches={"design": "cyclic", "size": 9}, loss=loss, **{**steps, **changes})


def fitted(
    backbone: nn.Module | None = None, head: nn.Linear | None = None, run: Run | None = None, **options: Any
) -> Fitted[nn.Sequential]:
    backbone, head = make_backbone() if backbone is None else backbone, make_head() if head is None else head
    run = make_head_run() if run is None else run
    return fit_head(backbone, head, **{"data": make_records(), "run": run, "seed": 5, **options})


def weights_of(result: Fitted[nn.Sequential]) -> np.ndarray:
    return result.model.state_dict()["2.weight"].double().numpy().T
