r"""The influence of noise at every step at once: random probes carried backwards along the path of one training. For linear models of any
loss; users call `adjoint_influence` on public or synthetic data, and give the estimate to `lethe.allocate`, which puts more noise into
steps of small influence. T steps, step size $\lambda$, batch size b, clip norm C, iterates $x_t$, noise $\nu_t$.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lethe.calculus.domains import require_count
from lethe.influence.data import AuxiliaryData, Estimate, PublicData, SyntheticData, require_public
from lethe.influence.retraining import LinearProblem, Trajectory, left_to_retraining, linear_problem, refuse_pass_averages, repeat_seeds
from lethe.run.effective_loss import descends_envelope
from lethe.run.losses import Logistic, Softmax
from lethe.run.losses.linear import LinearLoss
from lethe.run.regularisers import Ball
from lethe.run.run import Run
from lethe.run.schedules.shapes import Array
from lethe.train.linear.gradients import residuals_of


@torch.no_grad()
def adjoint_influence(run: Run, data: AuxiliaryData, *, repeats: int, seed: int, directions: int = 8) -> Estimate:
    r"""The influence of every step's noise on the expected mean loss f of a linear model, from one backward pass a repeat.

    $$q_t = \tfrac12\,\mathbb{E}\,\mathrm{tr}\,\nabla^2_{\nu_t} f(x_T)$$

    by random probes that vector-Jacobian products carry back through all steps: a repeat costs as much as a few trainings, whatever T. The
    mean over noisy paths is the derivative itself, not an expansion around the noiseless path. The Jacobian of a clipped gradient is exact;
    what clipped records would add to the curvature, and what happens on the very boundary (of clipping, of a truncated residual, of an l1
    threshold), is left out; without clipping, truncation and l1 nothing is. Derivation: docs/influence.md.

    Args:
        run: with its noise set; 0 is allowed, and gives the influence around the path without noise.
        data: SyntheticData or PublicData.
        repeats: >= 2, seeds for paths (batches and noise) and probes.
        seed: integer >= 0, from which these seeds are made.
        directions: probes carried back along each path.
    Raises:
        InputError: among others a ball among the regularisers, averaged passes, or an envelope of several scores.
    """
    require_public(run, data, SyntheticData, PublicData)
    repeats, directions = require_count("repeats", repeats, low=2), require_count("directions", directions)
    seed = require_count("seed", seed, low=0)
    refuse_pass_averages(run)
    if any(isinstance(part, Ball) for part in run.regularisers):
        raise left_to_retraining("regulariser: ball; its projection bends, which this estimate leaves out.", "regulariser")
    if descends_envelope(run) and not run.loss.scalar:
        what = "clip_method: envelope; the derivative of an envelope of several scores is left out of this estimate."
        raise left_to_retraining(what, "run.clip_method")
    problem, samples = linear_problem(run, data), list[Array]()
    for number in repeat_seeds(seed, repeats):
        # Probes must not reuse the path's normal numbers.
        probe_seed, path_seed = repeat_seeds(number, 2)
        path = problem.path(run.noise_stds, path_seed)
        samples.append(_influence_along(problem, path, directions, torch.Generator().manual_seed(probe_seed)))
    detail = f"adjoint of {repeats} paths with {directions} probes each on {data.origin}"
    steps = np.arange(1, run.total_steps + 1)
    return Estimate.of_samples(samples, steps=run.total_steps, probes=steps, basis=data.basis, detail=detail)


def _influence_along(problem: LinearProblem, path: Trajectory, directions: int, generator: torch.Generator) -> Array:
    r"""An unbiased estimate of $\frac12\mathrm{tr}\,\nabla^2_{\nu_t} f(x_T)$ for every step t of one path, shape (T,)."""
    # The mean of the products of `plus` less that of `minus` is the Hessian of the final loss after the noise, before the proximal step.
    rows, targets = problem.rows, problem.column
    scores = rows @ path.before[-1]
    curvature = _curvature(problem.loss, scores, targets)
    plus = (
        rows.T @ curvature.root(torch.randn((directions, *scores.shape), generator=generator, dtype=torch.float64)) / math.sqrt(len(rows))
    )
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
        self._curvature = _curvature(problem.loss, scores, targets)
        residuals = residuals_of(problem.loss, scores, targets)
        lengths = torch.linalg.vector_norm(residuals, dim=1, keepdim=True)
        norms = lengths * torch.linalg.vector_norm(self._rows, dim=1, keepdim=True)
        limit = math.inf if run.clip_norm is None else run.clip_norm
        self._unclipped = norms <= limit
        self._factors = torch.where(self._unclipped, 1.0, limit / norms)
        self._units = torch.where(self._unclipped, 0.0, residuals / lengths)

    def carried(self, vectors: Tensor) -> Tensor:
        """The transposed derivative of the step times vectors of shape (..., d, k); a clipped residual keeps its length."""
        scores = self._rows @ vectors
        turned = self._factors * (scores - self._units * (self._units * scores).sum(dim=-1, keepdim=True))
        return vectors - self._share * (self._rows.T @ self._curvature.product(turned))

    def bend_roots(self, gradient: Tensor, directions: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Random roots of the two parts of the third derivative along `gradient`, of unclipped records."""
        direction = self._unclipped * (self._rows @ gradient)
        noise = torch.randn((2, directions, *direction.shape), generator=generator, dtype=torch.float64)
        plus, minus = (math.sqrt(self._share) * (self._rows.T @ root) for root in self._curvature.bend_roots(direction, noise))
        return plus, minus


@dataclass(frozen=True, slots=True, eq=False)
class _Curvature:
    """The second and third derivatives of each record's loss in its scores, as functions."""

    product: Callable[[Tensor], Tensor]  # the second derivative S times directions
    root: Callable[[Tensor], Tensor]  # $Rz$ for noise z, with $RR^\\top = S$
    bend_roots: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # such roots of both parts of the third derivative along a direction


def _curvature(loss: LinearLoss, scores: Tensor, targets: Tensor) -> _Curvature:
    """The curvature of the run's loss at these scores; an error for losses whose third derivative is not implemented."""
    match loss:
        case Softmax():
            return _softmax(torch.softmax(scores, dim=-1))
        case Logistic():
            chances = torch.sigmoid(scores)
            second = chances * (1 - chances)
            return _diagonal(second, second * (1 - 2 * chances))
        case _:
            curvatures = loss.curvatures(scores.numpy(), targets.to(torch.float64).squeeze(1).numpy())
            if curvatures.terms or not loss.quadratic_pieces:
                raise left_to_retraining(f"loss.kind: got {loss.kind}; its third derivative is not known here.", "run.loss")
            diagonal = torch.from_numpy(curvatures.diagonal).to(scores)
            return _diagonal(diagonal, torch.zeros_like(diagonal))


def _diagonal(second: Tensor, third: Tensor) -> _Curvature:
    """The curvature of losses whose Hessian in the scores is diagonal."""

    def bend_roots(direction: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        bend = third * direction
        return bend.clamp(min=0).sqrt() * noise[0], (-bend).clamp(min=0).sqrt() * noise[1]

    return _Curvature(lambda directions: second * directions, lambda noise: second.sqrt() * noise, bend_roots)


def _softmax(chances: Tensor) -> _Curvature:
    r"""$S = \mathrm{diag}(p) - pp^\top$ and $T = \sum_c p_ca_c (e_c - p)(e_c - p)^\top$, $a = s - p\cdot s$, split by the sign of $a_c$."""

    def product(directions: Tensor) -> Tensor:
        return chances * (directions - (chances * directions).sum(dim=-1, keepdim=True))

    def weighted(weights: Tensor, noise: Tensor) -> Tensor:
        scaled = weights.sqrt() * noise  # sum_c sqrt(w_c) z_c (e_c - p)
        return scaled - chances * scaled.sum(dim=-1, keepdim=True)

    def bend_roots(direction: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        weights = product(direction)
        return weighted(weights.clamp(min=0), noise[0]), weighted((-weights).clamp(min=0), noise[1])

    return _Curvature(product, lambda noise: weighted(chances, noise), bend_roots)


def _prox_slope(problem: LinearProblem, parameters: Tensor, step_size: float) -> Tensor | float:
    """The diagonal of the proximal step's derivative, which has no other entries for ridge and l1."""
    if not problem.run.regularisers:
        return 1.0
    with torch.enable_grad():
        point = parameters.detach().requires_grad_()
        (slope,) = torch.autograd.grad(problem.prox(point, step_size).sum(), point)
    return slope
