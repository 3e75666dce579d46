"""Gradient descent that decides as it goes how much budget each step is worth: DP-AGD of Lee and Kifer, for linear models."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from lethe.calculus.guarantees import NotPrivate
from lethe.errors import BudgetExceededError, InputError
from lethe.run.known_fields import require_run
from lethe.run.run import Run
from lethe.train.callbacks.callback import PrivateStep, StepEnd
from lethe.train.core.noise_resolution import refuse_overflow
from lethe.train.core.progress import reporting
from lethe.train.fitted import AdaptiveStep, Fitted, Report, spending
from lethe.train.linear.adaptive_descent import AdaptiveDescent
from lethe.train.linear.description import CLOSED_FORM, Linear, generators_of, prepared
from lethe.train.linear.paid_queries import PaidQueries
from lethe.train.linear.predictor import LinearPredictor
from lethe.train.options import CommonOptions


def descend_adaptively(
    parameters: torch.Tensor, plan: AdaptiveDescent, queries: PaidQueries, finished: Callable[[int, AdaptiveStep], None]
) -> tuple[torch.Tensor, tuple[AdaptiveStep, ...]]:
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
        finished: is told the number of each step, from 1, and the step.
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
            finished(len(history), history[-1])
    except BudgetExceededError:
        pass  # the end of the run: what could not be paid was not computed
    return parameters, tuple(history)


@torch.inference_mode()
def train_adaptively(described: Linear, data: Any, run: Run, plan: AdaptiveDescent, options: CommonOptions) -> Fitted[LinearPredictor]:
    """Train a linear model by `descend_adaptively`, as `lethe.train.fit` says.

    Args:
        described, data, run: as given to `fit`.
        plan: the policy.
        options: the rest.
    Raises:
        InputError, LetheError: as `fit`.
    """
    plan.refuse_other(require_run(run))
    _refuse_unknown(described, options)
    ready = prepared(described, data, run)
    loss, model, start = ready.loss, ready.model, ready.start
    queries = PaidQueries(plan, model, generators_of(options, start.device, batches=False)[0])
    seeded, told = run.seeded or options.seeded(run), options.callbacks
    told.begin(run, seeded=seeded, budget=queries.budget)

    def taken(number: int, step: AdaptiveStep) -> None:
        finished(number, plan.most_steps)
        told.told(_said(step, number, plan, run))

    with reporting(options.progress, plan.most_steps) as finished:
        last, history = descend_adaptively(start, plan, queries, taken)
    refuse_overflow([last], run, remedy="pay more for the gradients.")
    guarantee = queries.budget.guarantee()
    return Fitted(
        model=LinearPredictor.of(last, loss),
        run=run.replace(loss=run.loss.model_copy(update={"evidence": "enforced"}), seeded=seeded),
        training_record=None,
        checked=CLOSED_FORM,
        declared=(),
        report=Report.of(run, steps=len(history), projected=ready.projected),
        **spending(queries.budget, seeded=seeded),
        guarantee=NotPrivate() if seeded else guarantee,
        with_fresh_noise=guarantee if seeded else None,
        statement=plan.statement(run.records, seeded=seeded),
        history=history,
    )


def _said(step: AdaptiveStep, number: int, plan: AdaptiveDescent, run: Run) -> StepEnd:
    """The step for callbacks; all records take part in it, and what was chosen in it is covered by the guarantee."""
    return StepEnd(
        step=number,
        steps=plan.most_steps,
        step_size=step.length,
        noise_std=None,
        noise_multiplier=plan.touch_factor / math.sqrt(2.0 * step.gradient_rho),
        clip_norm=plan.gradient_clip,
        batch_size=run.batch_size,
        spent=step.spent,
        private=PrivateStep(records=run.records, loss=None),
    )


def _refuse_unknown(described: Linear, options: CommonOptions) -> None:
    if described.arithmetic() != (torch.float64, torch.device("cpu")):
        raise InputError(
            f"dtype, device: got {described.dtype}, {described.device}; an AdaptiveDescent computes in float64 on the CPU.",
            source="dtype and device of Linear, noise_policy",
            remedy="leave both out.",
        )
    if options.batch_generator is not None:
        raise InputError(
            "batch_generator: given, and an AdaptiveDescent takes all records at every step.",
            source="batch_generator, noise_policy",
            remedy="leave it out; noise_generator is for the noise.",
        )


def averaged(gradient: torch.Tensor, rho: float, fresh: torch.Tensor, extra: float) -> torch.Tensor:
    r"""The mean of two noisy gradients, weighted by their costs: $(\rho g + \rho' g')/(\rho + \rho')$.

    The noises have variances $\Delta^2/(2\rho)$ and $\Delta^2/(2\rho')$, so the mean's has $\Delta^2/(2(\rho+\rho'))$: that of one gradient
    which costs as much as both.

    Args:
        gradient, rho: g, of any shape, and its cost.
        fresh, extra: g', of that shape, and its cost.
    """
    return (rho * gradient + extra * fresh) / (rho + extra)


def normalised(gradient: torch.Tensor) -> torch.Tensor:
    """The gradient's direction; it has noise, so it is not 0."""
    return gradient / torch.linalg.vector_norm(gradient)
