"""The influence of noise at every step at once: random probes carried backwards along the path of one training."""

from __future__ import annotations

import math

import numpy as np
import torch

from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.influence.auxiliary import AuxiliaryData, PublicData, SyntheticData, require_public
from lethe.influence.backward import influence_along
from lethe.influence.estimate import Estimate
from lethe.influence.linear_problem import linear_problem, refuse_pass_averages, repeat_seeds
from lethe.run.descended import descends_envelope
from lethe.run.regularisers import Ball
from lethe.run.run import Run
from lethe.run.schedules.base import Array
from lethe.train.callbacks.progress import Progress, reporting


@torch.no_grad()
def adjoint_influence(
    run: Run, data: AuxiliaryData, *, repeats: int, seed: int, directions: int = 8, progress: bool | Progress = False
) -> Estimate:
    r"""The influence of every step's noise on the expected mean loss $f$ of a linear model, from one backward pass a repeat.

    $$q_t = \tfrac12\,\mathbb{E}\,\mathrm{tr}\,\nabla^2_{\nu_t} f(x_T) = \tfrac12\,\mathbb{E}\Big[\mathrm{tr}\,J_t^\top H_T J_t
    - \sum_{k>t} \frac{\lambda_k}{b}\,\mathrm{tr}\,J_{k-1,t}^\top \nabla^3\!f_{B_k}(x_{k-1})[p_k]\,J_{k-1,t}\Big]$$

    with $J_{k,t} = \partial x_k/\partial\nu_t$, $J_t = J_{T,t}$, $H_T$ the Hessian of the final loss, and $p_k$ its gradient in the
    parameters of step k before the proximal step. The first term is what noise costs where the loss is a quadratic; the second is what it
    costs (or gains) because it changes the curvature met on the way, and vanishes as the final gradient does. Since
    $\partial\,\mathbb{E} g(\tau\xi)/\partial\tau^2 = \frac12\mathbb{E}\,\mathrm{tr}\nabla^2 g(\tau\xi)$ for standard normal $\xi$, the mean
    over noisy paths is the derivative itself, not an expansion around the noiseless path.

    Traces are Hutchinson's: with $RR^\top$ the matrix in the middle, $\mathrm{tr}\,J^\top RR^\top J = \mathbb{E}\|J^\top R z\|^2$ for
    $z \sim N(0, I)$; one pass of vector-Jacobian products carries $R z$ back through all steps and picks up the second term's share at each
    (its positive and its negative part in two separate probes), so a repeat costs as much as a few trainings, whatever T.

    Clipping: the path is the clipped one and the Jacobian of a clipped gradient is exact. Of the second term, what clipped records would
    add, and what happens on the very boundary (of clipping, of a truncated residual, of an l1 threshold), is left out; without clipping,
    truncation and l1 nothing is. (Softmax regression with most records clipped, 30 steps: within 3 percent.)

    Args:
        run: with its noise set; 0 is allowed, and gives the influence around the path without noise.
        data: SyntheticData or PublicData.
        repeats: >= 2, seeds for paths (batches and noise) and probes.
        seed: integer >= 0, from which these seeds are made.
        directions: probes carried back along each path.
        progress: True, or a function of (repeats done, repeats).
    Returns:
        All T weights, with standard errors over the repeats.
    Raises:
        InputError: plain arrays, an argument out of range, a ball among the regularisers, averaged passes, or
            an envelope of several scores.
        LetheError: a training overflowed.
    """
    require_public(run, data, (SyntheticData, PublicData))
    repeats = require_count("repeats", repeats, low=2)
    directions = require_count("directions", directions, low=1)
    seed = require_count("seed", seed, low=0)
    refuse_pass_averages(run)
    if any(isinstance(part, Ball) for part in run.regularisers):
        raise InputError(
            "regulariser: ball; its projection bends, which this estimate leaves out.",
            source="regulariser",
            remedy="use retraining_influence.",
        )
    if descends_envelope(run) and not run.loss.scalar:
        raise InputError(
            "clip_method: envelope; the derivative of an envelope of several scores is left out of this estimate.",
            source="run.clip_method",
            remedy="use retraining_influence.",
        )
    problem = linear_problem(run, data)
    rows: list[Array] = []
    with reporting(progress, repeats) as finished:
        for number in repeat_seeds(seed, repeats):
            # Probes must not reuse the path's normal numbers.
            probe_seed, path_seed = repeat_seeds(number, 2)
            path = problem.path(run.noise_stds, path_seed)
            rows.append(influence_along(problem, path, directions, torch.Generator().manual_seed(probe_seed)))
            finished(len(rows), repeats)
    samples = np.array(rows)
    return Estimate(
        steps=run.total_steps,
        probes=np.arange(1, run.total_steps + 1),
        weights=samples.mean(axis=0),
        errors=samples.std(axis=0, ddof=1) / math.sqrt(repeats),
        basis=data.basis,
        detail=f"adjoint of {repeats} paths with {directions} probes each on {data.origin}",
    )
