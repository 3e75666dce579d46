"""Gradient descent that decides as it goes how much budget each step is worth: DP-AGD of Lee and Kifer, for linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lethe.calculus.guarantees import ZCDP, NotPrivate
from lethe.errors import BudgetExceededError, InputError, LetheError
from lethe.run.losses import Loss
from lethe.run.run import Neighbours
from lethe.train.core.generators import fresh_generator, seeded_generators
from lethe.train.linear.adaptive_descent import AdaptiveDescent
from lethe.train.linear.features import prepare_features
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.links import linear_loss, link_of
from lethe.train.linear.paid_queries import PaidQueries
from lethe.train.linear.targets import prepare_targets

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveStep:
    """One step that was taken. All of it is covered by the guarantee.

    Args:
        length: the step length that was chosen, > 0.
        longest: the longest candidate.
        gradient_rho: what the gradient had cost when it was good enough.
        spent: the budget spent so far.
    """

    length: float
    longest: float
    gradient_rho: float
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdaptivelyTrained:
    """What `fit_adaptively` returns; everything in it is covered by the guarantee.

    Args:
        weights: shape (d, k).
        intercept: shape (k,); zeros if the model has none.
        classes: their number, None where targets are numbers.
        guarantee: the budget, rounded up: everything noisy that was seen on the way may be released, not the last iterate only. Under a
            seed there is none: whoever knows it knows the noise.
        with_fresh_noise: under a seed, what would hold without one; else None.
        neighbours: the relation that the guarantee is about.
        history: the steps that were taken.
    """

    weights: npt.NDArray[np.float64]
    intercept: npt.NDArray[np.float64]
    classes: int | None
    guarantee: ZCDP | NotPrivate
    with_fresh_noise: ZCDP | None
    neighbours: Neighbours
    history: tuple[AdaptiveStep, ...]


@torch.inference_mode()
def fit_adaptively(
    plan: AdaptiveDescent, features: Any, targets: Any, *, loss: Loss, classes: int | None = None, seed: int | None = None
) -> AdaptivelyTrained:
    r"""Train a linear model by DP-AGD: full-batch gradients, step lengths chosen by noisy comparison, and a budget that ends the run.

    Each gradient is the sum of the records' clipped ones with Gaussian noise of standard deviation $\Delta/\sqrt{2\rho_g}$, where
    $\Delta = C_g$ ($2C_g$ when a record is replaced). `noisy_min` compares the losses along it; if length 0 wins, the gradient was too
    noisy: a fresh one of cost `growth` $\cdot \rho_g$ is averaged in, weights in proportion to cost, and the comparison is made again.
    From then on gradients cost that much more.

    Privacy: every gradient and comparison is paid for, before it is computed, from one `BudgetFilter`; it refuses what it cannot pay, and
    training ends there. The average is post-processing of two paid gradients: both together cost
    $\rho_g + \mathrm{growth}\cdot\rho_g$, and the average has the variance of one gradient of that cost.

    Args:
        plan: the constants.
        features: shape (n, d); projected to the loss's feature_norm.
        targets: shape (n,), as for fit_linear.
        loss: any `lethe.losses.LinearLoss`, without regulariser.
        classes: the public number of classes; needed for softmax regression, cut or not.
        seed: makes the noise repeatable, for tests and benchmarks; the guarantee is then none at all. None: fresh entropy.
    Raises:
        InputError: anything about the data or options that cannot be used.
        LetheError: the parameters overflowed.
    Reference: Lee & Kifer 2018, arXiv:1808.09501. Their published code takes the candidate before the chosen one, and pays
        for the gradient a second time after each success; neither is in the algorithm.
    """
    if not isinstance(plan, AdaptiveDescent):
        raise InputError(f"plan: got {type(plan).__name__}; it needs an AdaptiveDescent.")
    known = linear_loss(loss).for_classes(classes)
    count, outputs = known.target_classes, known.outputs
    data = prepare_features(features, feature_norm=known.feature_norm, intercept=known.intercept, dtype=torch.float64, device=_CPU)
    column = prepare_targets(targets, classes=count, records=len(data.rows), dtype=torch.float64, device=_CPU)
    generator = fresh_generator(_CPU) if seed is None else seeded_generators(seed, (_CPU,))[0]
    model = LinearModel(link_of(known), data.rows, column, clip_norm=plan.gradient_clip, outputs=outputs)
    queries = PaidQueries(plan, model, generator)

    parameters = torch.zeros(data.rows.shape[1], outputs, dtype=torch.float64)
    gradient_rho, longest = plan.gradient_rho, plan.longest_step
    history: list[AdaptiveStep] = []
    try:
        while len(history) < plan.most_steps:
            gradient = queries.gradient(parameters, gradient_rho)
            lengths = torch.linspace(0.0, longest, plan.candidates, dtype=torch.float64)
            while (chosen := queries.best(parameters, normalised(gradient), lengths)) == 0:
                extra = plan.growth * gradient_rho
                gradient = averaged(gradient, gradient_rho, queries.gradient(parameters, extra), extra)
                gradient_rho += extra
            length = float(lengths[chosen])
            parameters = parameters - length * normalised(gradient)
            history.append(AdaptiveStep(length=length, longest=longest, gradient_rho=gradient_rho, spent=queries.budget.spent()))
            if len(history) % plan.refresh == 0:
                longest = min(1.1 * max(step.length for step in history[-plan.refresh :]), plan.longest_step)
    except BudgetExceededError:
        pass  # the end of the run: what could not be paid was not computed
    if not bool(torch.isfinite(parameters).all()):
        raise LetheError("training overflowed: the parameters are not finite.", remedy="pay more for the gradients.")
    weights = parameters.numpy()
    return AdaptivelyTrained(
        weights=weights[: data.columns].copy(),
        intercept=weights[-1].copy() if len(weights) > data.columns else np.zeros(outputs),
        classes=count,
        guarantee=queries.budget.guarantee() if seed is None else NotPrivate(),
        with_fresh_noise=None if seed is None else queries.budget.guarantee(),
        neighbours=plan.neighbours,
        history=tuple(history),
    )


def averaged(gradient: torch.Tensor, rho: float, fresh: torch.Tensor, extra: float) -> torch.Tensor:
    r"""$(\rho g + \rho' g')/(\rho + \rho')$.

    The noises have variances $\Delta^2/(2\rho)$ and $\Delta^2/(2\rho')$, so the mean's has $\Delta^2/(2(\rho+\rho'))$: that of one gradient
    which costs as much as both.
    """
    return (rho * gradient + extra * fresh) / (rho + extra)


def normalised(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient's direction; it has noise, so it is not 0."""
    return gradient / torch.linalg.vector_norm(gradient)
