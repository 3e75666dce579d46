"""Gradient descent that decides as it goes how much budget each step is worth: DP-AGD of Lee and Kifer, for linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lethe.certificates.statement import Statement
from lethe.errors import BudgetExceededError, InputError, LetheError
from lethe.run.active_spender import spender_in_force
from lethe.run.losses.base import Loss
from lethe.run.losses.linear import require_linear_loss
from lethe.train.core.generators import fresh_generator, seeded_generators
from lethe.train.linear.loop import starting_point
from lethe.train.linear.models import LinearPredictor, prepare_features, prepare_targets
from lethe_experiments.adaptive.plan import AdaptiveDescent
from lethe_experiments.adaptive.queries import PaidQueries

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveStep:
    """One step of an `AdaptiveDescent`. All of it is covered by the guarantee.

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
    """A model trained by DP-AGD.

    Args:
        model: the last iterate.
        statement: what it costs, and what that rests on: everything noisy that was seen on the way may be released. No theorem on runs
            speaks of it, so there is no certificate of a run.
        history: the steps, covered by the statement.
        spent: the zCDP that was spent. The guarantee is the budget: where training stopped may itself depend on what was released.
    """

    model: LinearPredictor
    statement: Statement
    history: tuple[AdaptiveStep, ...]
    spent: float


@torch.inference_mode()
def train_adaptively(
    plan: AdaptiveDescent,
    features: Any,
    targets: Any,
    *,
    loss: Loss,
    classes: int | None = None,
    initial: Any = None,
    seed: int | None = None,
    noise_generator: np.random.Generator | torch.Generator | None = None,
) -> AdaptivelyTrained:
    """Train a linear model by `descend_adaptively`, in float64 on the CPU.

    Args:
        plan: the constants.
        features: shape (n, d); rows are projected to the loss's feature_norm.
        targets: shape (n,).
        loss: any `lethe.losses.LinearLoss`.
        classes, initial: as of `lethe.train.Linear`.
        seed: for tests and benchmarks; whoever knows it knows the noise, and nothing is guaranteed.
        noise_generator: a torch.Generator, in the seed's place.
    Raises:
        InputError: anything about these that cannot be used; or `lethe.ledger.spending` is in force, which cannot tell its price.
        LetheError: the parameters overflowed.
    """
    if spender_in_force() is not None:
        raise InputError(
            "ledger: an AdaptiveDescent has no run that can be certified, and so no price by itself.",
            source="lethe.ledger.spending",
            remedy="reserve Spending(...).release(lethe.guarantees.ZCDP(plan.rho)) outside the block, and settle with its statement.",
        )
    known = require_linear_loss(loss).for_classes(classes)
    table = prepare_features(features, feature_norm=known.feature_norm, intercept=known.intercept, dtype=torch.float64, device=_CPU)
    column = prepare_targets(targets, classes=known.target_classes, records=len(table.rows), device=_CPU)
    start = starting_point(initial, (table.rows.shape[1], known.outputs), _CPU)
    queries = PaidQueries(plan, known, table.rows, column, _generator_of(seed, noise_generator))
    last, history = descend_adaptively(start, plan, queries)
    if not bool(torch.isfinite(last).all()):
        raise LetheError("training overflowed: the last iterate is not finite.", remedy="pay more for the gradients.")
    return AdaptivelyTrained(
        model=LinearPredictor.of(last, known),
        statement=plan.statement(len(table.rows), seeded=seed is not None or noise_generator is not None),
        history=history,
        spent=queries.budget.spent(),
    )


def _generator_of(seed: int | None, given: object) -> torch.Generator:
    if seed is not None and given is not None:
        raise InputError("seed: given together with a generator.", remedy="give one of the two.")
    if seed is not None:
        return seeded_generators(seed, (_CPU, _CPU))[1]
    if given is None:
        return fresh_generator(_CPU)
    if not isinstance(given, torch.Generator) or given.device.type != "cpu":
        raise InputError(f"noise_generator: got {given!r}; it needs a torch.Generator on the CPU.")
    return given


def descend_adaptively(parameters: Tensor, plan: AdaptiveDescent, queries: PaidQueries) -> tuple[Tensor, tuple[AdaptiveStep, ...]]:
    r"""DP-AGD: full-batch gradients, step lengths chosen by noisy comparison, and a budget that ends the run.

    Each gradient is the sum of the records' clipped ones with Gaussian noise of standard deviation $\Delta/\sqrt{2\rho_g}$, where
    $\Delta = C_g$ ($2C_g$ when a record is replaced). `noisy_min` compares the losses along it; if length 0 wins, the gradient was too
    noisy: a fresh one of cost `growth` $\cdot \rho_g$ is averaged in, weights in proportion to cost, and the comparison is made again.
    From then on gradients cost that much more.

    Privacy: every gradient and comparison is paid for, before it is computed, from one `BudgetFilter`; it refuses what it cannot pay, and
    training ends there. The average is post-processing of two paid gradients: both together cost
    $\rho_g + \mathrm{growth}\cdot\rho_g$, and the average has the variance of one gradient of that cost.

    Args:
        parameters: $x_0$, shape (d, k).
        plan: the constants.
        queries: the data, and the budget.
    Returns:
        The last iterate, and the steps that led to it.
    Reference: Lee & Kifer 2018, arXiv:1808.09501. Their published code takes the candidate before the chosen one, and pays
        for the gradient a second time after each success; neither is in the algorithm.
    """
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
    return parameters, tuple(history)


def averaged(gradient: Tensor, rho: float, fresh: Tensor, extra: float) -> Tensor:
    r"""The mean of two noisy gradients, weighted by their costs: $(\rho g + \rho' g')/(\rho + \rho')$.

    The noises have variances $\Delta^2/(2\rho)$ and $\Delta^2/(2\rho')$, so the mean's has $\Delta^2/(2(\rho+\rho'))$: that of one gradient
    which costs as much as both.

    Args:
        gradient, rho: g, of any shape, and its cost.
        fresh, extra: g', of that shape, and its cost.
    """
    return (rho * gradient + extra * fresh) / (rho + extra)


def normalised(gradient: Tensor) -> Tensor:
    """The gradient's direction; it has noise, so it is not 0."""
    return gradient / torch.linalg.vector_norm(gradient)
