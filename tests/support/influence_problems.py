"""Small runs for the estimators, and the influence by means that share nothing with them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from lethe.influence import PublicData
from lethe.influence.data import Estimate
from lethe.run.run import Run

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def make_run(kind: str = "least_squares", **changes: Any) -> Run:
    """24 records, full batches, 6 steps, no clipping; residuals are never truncated."""
    loss: dict[str, Any] = {"kind": kind, "feature_norm": 1.5, **({"residual_bound": 100.0} if kind == "least_squares" else {})}
    fields: dict[str, Any] = {
        "records": 24,
        "batches": {"design": "full"},
        "steps": 6,
        "step_size": 0.4,
        "noise_multiplier": 0.02 if kind == "least_squares" else 2.0,
        "loss": loss,
        "release": "last",
        "neighbours": "replace_one",
        **changes,
    }
    if "passes" in changes:
        del fields["steps"]
    return Run(**fields)


def make_data(kind: str = "least_squares", records: int = 24, columns: int = 3, seed: int = 5) -> PublicData:
    """Rows no longer than 1.5, so that nothing is projected; as many as the run has, so that all are taken, once."""
    random = np.random.default_rng(seed)
    features = random.uniform(-0.8, 0.8, size=(records, columns))
    classes = 3 if kind == "softmax_regression" else None
    targets = random.normal(size=records) if kind == "least_squares" else random.integers(classes or 2, size=records)
    return PublicData(features, targets, statement="drawn here", classes=classes)


def make_estimate(weights: Any, probes: Any = None, steps: int | None = None) -> Estimate:
    """Of these weights, at these steps."""
    weights = np.array(weights, dtype=np.float64)
    probes = np.arange(1, len(weights) + 1) if probes is None else np.array(probes)
    return Estimate(
        steps=steps or int(probes[-1]), probes=probes, weights=weights, errors=np.zeros(len(weights)), basis="synthetic", detail="by hand"
    )


def second_moment_influence(eigenvalues: Matrix, step_sizes: Matrix, ridge: float = 0.0) -> Matrix:
    """Unit noise at one step of a quadratic, its second moment followed to the end: one recursion for each step and eigenvalue."""
    weights = []
    for noisy in range(len(step_sizes)):
        moments = np.zeros_like(eigenvalues)
        for step, size in enumerate(step_sizes):
            moments = ((1 - size * eigenvalues) ** 2 * moments + (step == noisy)) / (1 + size * ridge) ** 2
        weights.append(0.5 * float(eigenvalues @ moments))
    return np.array(weights)


def least_squares_influence(rows: Matrix, batches: Sequence[slice], step_sizes: Matrix) -> Matrix:
    """Products of the batches' own Jacobians, as matrices."""
    columns = rows.shape[1]
    hessian = rows.T @ rows / len(rows)
    weights = []
    for noisy in range(len(step_sizes)):
        jacobian = np.eye(columns)
        for batch, size in list(zip(batches, step_sizes, strict=True))[noisy + 1 :]:
            drawn = rows[batch]
            jacobian = jacobian - size / len(drawn) * drawn.T @ (drawn @ jacobian)
        weights.append(0.5 * float(np.trace(jacobian.T @ hessian @ jacobian)))
    return np.array(weights)


def laplacian_influence(
    run: Run, data: PublicData, record_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], outputs: int
) -> Matrix:
    """Half the trace of the Hessian of the final loss in each step's noise, around no noise, by autograd through a loop of its own.

    Full batches, no regulariser. record_loss: from scores (n, k) and targets (n,) to losses (n,).
    """
    records = data.records(run)
    rows, targets = torch.tensor(records.features), torch.tensor(records.targets)
    size = rows.shape[1] * outputs

    def final_loss(noise: torch.Tensor) -> torch.Tensor:
        parameters = torch.zeros(rows.shape[1], outputs, dtype=torch.float64)
        for step, step_size in enumerate(run.step_sizes):
            scores = rows @ parameters
            if not scores.requires_grad:
                scores.requires_grad_()
            (residuals,) = torch.autograd.grad(record_loss(scores, targets).sum(), scores, create_graph=True)
            gradients = rows[:, :, None] * residuals[:, None, :]
            norms = gradients.flatten(1).norm(dim=1)
            scale = torch.ones_like(norms) if run.clip_norm is None else (run.clip_norm / norms).clamp(max=1.0)
            gradient = (gradients * scale[:, None, None]).sum(0) / len(rows)
            parameters = parameters - step_size * gradient + noise[step * size : (step + 1) * size].view_as(parameters)
        return record_loss(rows @ parameters, targets).mean()

    hessian = torch.autograd.functional.hessian(final_loss, torch.zeros(size * run.total_steps, dtype=torch.float64))
    assert isinstance(hessian, torch.Tensor)
    return 0.5 * hessian.diagonal().view(run.total_steps, size).sum(1).numpy()
