"""Random probes carried back along a path: the traces that `adjoint_influence` averages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from lethe.influence.curvature import curvature_of
from lethe.influence.linear_problem import LinearProblem, Trajectory
from lethe.run.schedules.base import Array
from lethe.train.linear.gradients import residuals_of


def influence_along(problem: LinearProblem, path: Trajectory, directions: int, generator: torch.Generator) -> Array:
    r"""An unbiased estimate of $\frac12\mathrm{tr}\,\nabla^2_{\nu_t} f(x_T)$ for every step t of one path, shape (T,).

    With $\Phi_t$ the Hessian of the final loss as a function of $y_t$ (step t's parameters after the noise, before the proximal step),
    $P_t$ the derivative of the proximal step, $A_t$ that of the gradient step, and $p_t$ the gradient of the final loss in $y_t$:

    $$\Phi_T = P_T H_T P_T,\qquad
    \Phi_{t-1} = P_{t-1}\Big(A_t^\top \Phi_t A_t - \frac{\lambda_t}{b}\nabla^3\!f_{B_t}(x_{t-1})[p_t]\Big)P_{t-1}$$

    `plus` and `minus` are random vectors with $\mathbb{E}[g_+g_+^\top] - \mathbb{E}[g_-g_-^\top] = \Phi_t$: the recursion acts on each
    as on a root of $\Phi_t$, and independent roots of the new term add up.

    Args:
        problem: the run and its data.
        path: of the training to differentiate along.
        directions: independent probes.
        generator: of the probes, unrelated to the path's noise.
    """
    rows, targets = problem.rows, problem.column
    scores = rows @ path.before[-1]
    curvature = curvature_of(problem.loss, scores, targets)
    plus = rows.T @ curvature.root(_normal((directions, *scores.shape), generator)) / math.sqrt(len(rows))
    minus = torch.zeros_like(plus)
    gradient = rows.T @ residuals_of(problem.loss, scores, targets) / len(rows)
    weights = np.empty(problem.run.total_steps)
    for step in reversed(range(problem.run.total_steps)):
        slope = _prox_slope(problem, path.unproximated[step], float(problem.run.step_sizes[step]))
        plus, minus, gradient = slope * plus, slope * minus, slope * gradient
        weights[step] = float((plus**2).sum() - (minus**2).sum()) / (2 * directions)
        back = _StepBack(problem, path, step)
        bent_plus, bent_minus = back.bend_roots(gradient, directions, generator)
        # The new term has a minus sign: its positive part belongs to `minus`.
        plus, minus, gradient = back.carried(plus) + bent_minus, back.carried(minus) + bent_plus, back.carried(gradient)
    return weights


class _StepBack:
    """The derivatives of one gradient step $x - (\\lambda/b)\\sum_{i\\in B} \\mathrm{Clip}_C(u_i r_i^\\top)$ where the path took it."""

    def __init__(self, problem: LinearProblem, path: Trajectory, step: int) -> None:
        run, batch = problem.run, path.batches[step]
        self._share = float(run.step_sizes[step]) / run.batch_size
        self._rows = problem.rows[batch]
        scores, targets = self._rows @ path.before[step], problem.column[batch]
        self._curvature = curvature_of(problem.loss, scores, targets)
        residuals = residuals_of(problem.loss, scores, targets)
        lengths = torch.linalg.vector_norm(residuals, dim=1, keepdim=True)
        norms = lengths * torch.linalg.vector_norm(self._rows, dim=1, keepdim=True)
        limit = math.inf if run.clip_norm is None else run.clip_norm
        self._unclipped = norms <= limit
        self._factors = torch.where(self._unclipped, 1.0, limit / norms)
        self._units = torch.where(self._unclipped, 0.0, residuals / lengths)

    def carried(self, vectors: torch.Tensor) -> torch.Tensor:
        """The transposed derivative of the step times vectors of shape (..., d, k); a clipped residual keeps its length."""
        scores = self._rows @ vectors
        turned = self._factors * (scores - self._units * (self._units * scores).sum(dim=-1, keepdim=True))
        return vectors - self._share * (self._rows.T @ self._curvature.product(turned))

    def bend_roots(self, gradient: torch.Tensor, directions: int, generator: torch.Generator) -> tuple[Any, Any]:
        """Random roots of the two parts of the third derivative along `gradient`, of unclipped records; zeros where it is 0."""
        direction = self._unclipped * (self._rows @ gradient)
        roots = self._curvature.bend_roots(direction, _normal((2, directions, *direction.shape), generator))
        if roots is None:
            return 0.0, 0.0
        scale = math.sqrt(self._share)
        return scale * (self._rows.T @ roots[0]), scale * (self._rows.T @ roots[1])


def _prox_slope(problem: LinearProblem, parameters: torch.Tensor, step_size: float) -> torch.Tensor | float:
    """The diagonal of the proximal step's derivative, which has no other entries for ridge and l1."""
    if not problem.run.regularisers:
        return 1.0
    with torch.enable_grad():
        point = parameters.detach().requires_grad_()
        (slope,) = torch.autograd.grad(problem.prox(point, step_size).sum(), point)
    return slope


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)
