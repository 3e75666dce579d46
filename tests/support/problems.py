"""Small problems for the trainer's tests: data of each kind, runs that fit them, and frozen backbones with a convex head."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from helpers import batches as batches_of
from helpers import make_run as make_any_run
from torch import Tensor, nn

from lethe.run.losses import parse_loss
from lethe.run.losses.linear import LinearLoss
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.linear import loop

RECORDS, COLUMNS, CLASSES = 23, 4, 3

LOSSES: dict[str, dict[str, Any]] = {
    "softmax_regression": {"feature_norm": 1.5},
    "logistic_regression": {"feature_norm": 1.5},
    "least_squares": {"feature_norm": 1.5, "residual_bound": 0.8},
    "huber": {"feature_norm": 1.5, "residual_bound": 0.3},
    "truncated_logistic_regression": {"feature_norm": 1.5, "cut": 0.3},
    "truncated_softmax_regression": {"feature_norm": 1.5, "cut": 0.7},
    "smoothed_hinge": {"feature_norm": 1.5, "width": 0.3},
    "one_versus_rest_hinge": {"feature_norm": 1.5, "classes": CLASSES, "width": 0.6},
    "tweedie_regression": {"feature_norm": 1.5, "power": 1.6, "target_bound": 2.0, "cut": 0.7},
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Arguments of fit_linear: features about as long as the bound, so some rows are projected and some are not."""

    features: np.ndarray
    targets: np.ndarray
    classes: int | None


def make_problem(kind: str, records: int = RECORDS, seed: int = 0) -> Problem:
    random = np.random.default_rng(seed)
    features = random.normal(size=(records, COLUMNS)) * 0.8
    loss = parse_loss(make_loss(kind))
    if isinstance(loss, LinearLoss) and loss.numeric_targets:
        return Problem(features=features, targets=random.normal(size=records), classes=None)
    classes = 2 if loss.scalar else CLASSES
    return Problem(features=features, targets=random.integers(classes, size=records), classes=classes)


def make_loss(kind: str, **changes: Any) -> dict[str, Any]:
    return {"kind": kind, "evidence": "enforced", **LOSSES[kind], **changes}


def make_run(kind: str = "softmax_regression", design: str = "cyclic", **changes: Any) -> Run:
    """23 records in batches of 5 (3 left over), 3 passes, clipped at 0.6."""
    fields: dict[str, Any] = {
        "records": RECORDS,
        "batches": batches_of(design, 5),
        "passes": 3,
        "step_size": 0.4,
        "clip_norm": 0.6,
        "noise_multiplier": 2.0,
        "loss": make_loss(kind),
        "release": "last",
        "neighbours": "replace_one",
        **changes,
    }
    if "steps" in changes:
        del fields["passes"]
    return Run(**fields)


def executed(
    monkeypatch: pytest.MonkeyPatch, plan: Run, *, step_sizes: Any = None, noise_stds: Any = None, batches: Sequence[Any] | None = None
) -> Run:
    """The recorded run where fit_linear's loop takes other step sizes, noise or batches than the plan's."""
    descend, problem = loop.descend, make_problem(plan.loss.kind)

    def otherwise(run: Run, start: Any, model: Any, planned: Any, noise: Any, **told: Any) -> Any:
        if noise_stds is not None:
            told["noise_of_step"] = lambda step, _: float(noise_stds[step - 1])
        if step_sizes is not None:
            run = run.replace(steps=len(step_sizes), step_size=list(step_sizes))
        return descend(run, start, model, list(planned)[: run.total_steps] if batches is None else batches, noise, **told)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "descend", otherwise)
        return fit_linear(plan, problem.features, problem.targets, classes=problem.classes, seed=0).run


HEAD_RECORDS, INPUTS, FEATURES = 37, 6, 5
HEAD_KINDS: dict[str, tuple[dict[str, Any], int]] = {
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
        return nn.Linear(FEATURES, HEAD_KINDS[kind][1], bias=bias, dtype=dtype)


def make_records(kind: str = "softmax_regression", dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(3)
    classes = {"softmax_regression": 3, "logistic_regression": 2}.get(kind)
    targets = random.normal(size=HEAD_RECORDS) if classes is None else random.integers(classes, size=HEAD_RECORDS)
    return torch.tensor(random.normal(size=(HEAD_RECORDS, INPUTS)), dtype=dtype), torch.tensor(targets)


def make_head_run(kind: str = "softmax_regression", intercept: bool = True, **changes: Any) -> Run:
    loss = {"kind": kind, "feature_norm": 0.9, "intercept": intercept, "evidence": "enforced", **HEAD_KINDS[kind][0]}
    steps = {"passes": 3, "step_size": 0.4, "noise_multiplier": 2.0, "noise_at": "pass_ends"}
    return make_any_run(records=HEAD_RECORDS, batches={"design": "cyclic", "size": 9}, loss=loss, **{**steps, **changes})


def fitted_head(
    backbone: nn.Module | None = None, head: nn.Linear | None = None, run: Run | None = None, **options: Any
) -> Fitted[nn.Sequential]:
    backbone, head = make_backbone() if backbone is None else backbone, make_head() if head is None else head
    run = make_head_run() if run is None else run
    return fit_head(backbone, head, **{"data": make_records(), "run": run, "seed": 5, **options})


def weights_of(result: Fitted[nn.Sequential]) -> np.ndarray:
    return result.model.state_dict()["2.weight"].double().numpy().T
