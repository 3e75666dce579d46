"""Training of a linear model. The loop, `descend`, is the whole algorithm on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from lethe.run.losses import LinearLoss
from lethe.run.precision import Precision
from lethe.run.run import Run
from lethe.train.core.budgeted_noise import BudgetedNoise, NoiseOfStep, as_planned, refuse_policy
from lethe.train.core.iterates.bounded_iterates import keep_within, precision_of, radius_of
from lethe.train.core.iterates.pass_average import PassAverage
from lethe.train.core.iterates.proximal import Proximal, proximal_step
from lethe.train.core.noise_resolution import refuse_overflow, refuse_unstable
from lethe.train.core.progress import reporting
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.core.vouching import linear_record
from lethe.train.fitted import Fitted, Report, spending
from lethe.train.linear.blocks import BlockBackbone
from lethe.train.linear.description import CLOSED_FORM, Linear, generators_of, prepared
from lethe.train.linear.gradients import GradientSums, gradient_rounding
from lethe.train.linear.noise import GaussianNoise, step_noise
from lethe.train.linear.predictor import LinearPredictor
from lethe.train.options import TrainOptions


def descend(
    parameters: torch.Tensor,
    model: GradientSums,
    batches: Iterable[Batch],
    step_sizes: Sequence[float],
    noise_stds: Sequence[float],
    divisor: int,
    noise: GaussianNoise,
    prox: Proximal,
    recorder: Recorder,
    finished: Callable[[int, torch.Tensor], None],
    noise_of_step: NoiseOfStep,
    average: PassAverage,
    precision: Precision | None = None,
) -> torch.Tensor:
    r"""$x_t = \mathrm{prox}_{\lambda_t h}\big(x_{t-1} - \lambda_t g_t + \nu_t\big)$ with $\nu_t \sim N(0, \tau_t^2 I)$; returns the last.

    `average` may put a weighted mean of the pass in the place of its last $x_{t-1} - \lambda_t g_t$; `noise_of_step` may choose another
    noise than the planned, or refuse the step, which ends the run before it.

    Args:
        parameters: $x_0$, shape (d, k).
        model: gives the sums of clipped gradients, in loss per parameter unit.
        batches: of each step.
        step_sizes: $\lambda_t$, T of them.
        noise_stds: $\tau_t$, T of them, in parameter units.
        divisor: what a sum is divided by for the mean gradient $g_t$.
        noise: draws $\nu_t$.
        prox: of the regularisers.
        recorder: notes each step.
        finished: is told the number of each step, from 1, and $x_t$.
        noise_of_step: decides the noise of a step.
        average: of a pass.
        precision: of the recorded run: keeps the iterates within a ball; None: every iterate is released.
    """
    for step, (batch, step_size, planned) in enumerate(zip(batches, step_sizes, noise_stds, strict=True), start=1):
        noise_std = noise_of_step(step, parameters, planned)
        if noise_std is None:
            break
        move = model.clipped_gradient_sum(parameters, batch) * (-step_size / divisor)
        drawn = noise.draw(noise_std)
        # The noise is added before anything is rounded at the size of the parameters: what a record changes is hidden by then.
        moved = parameters + (move + drawn) if average.weights is None else average(parameters + move) + drawn
        if precision is not None:
            keep_within([moved], radius_of(precision))
        parameters = prox(moved, step_size)
        recorder.note(
            step_size=step_size,
            noise_std=noise_std,
            clip_norm=model.clip_norm,
            divisor=divisor,
            batch=batch,
            pass_weights=average.weights,
        )
        finished(step, parameters)
    return parameters


@torch.inference_mode()
def train_linear(
    described: Linear, data: Any, run: Run, options: TrainOptions, *, backbone: BlockBackbone | None = None
) -> Fitted[LinearPredictor]:
    """Train a linear model, as `lethe.train.fit` says.

    Args:
        described, data, run: as given to `fit`.
        options: the rest.
        backbone: of a table in blocks, makes the features; None: they are what is stored.
    Raises:
        BudgetExceededError, InputError, LetheError: as `fit`.
    """
    ready = prepared(described, data, run, backbone=backbone)
    model, start, declared = ready.model, ready.start, ready.declared
    policy, prox = options.noise_policy, proximal_step(run.regularisers)
    refuse_policy(run, policy)
    budgeted = None if run.noise_budget is None else BudgetedNoise(run, policy)
    drawn = run.uncorrelated  # what is drawn anew at each step; `noise` correlates it
    noise_stds = drawn.noise_stds.tolist() if policy is None else [float("nan")] * run.total_steps  # a policy decides them all
    refuse_unstable(run, start.dtype)
    batch_generator, noise_generator = generators_of(options, start.device)
    recorder = Recorder(drawn, seeded=options.seeded(run))
    noise = step_noise(run, start.shape, noise_generator)
    precision = linear_precision(drawn, ready.loss, start) if run.noise is None else None  # correlated noise releases all iterates
    batches = (batch if isinstance(batch, slice) else batch.to(start.device) for batch in draw_batches(drawn, batch_generator))
    told = options.callbacks
    budget = None if budgeted is None else budgeted.filter
    told.begin(run if precision is None else run.replace(precision=precision), seeded=recorder.seeded, budget=budget)

    def taken(step: int, iterate: torch.Tensor) -> None:
        finished(step, run.total_steps)
        told.step(recorder)

    with reporting(options.progress, run.total_steps) as finished:
        last = descend(
            start,
            model,
            batches,
            run.step_sizes.tolist(),
            noise_stds,
            run.batch_size,
            noise,
            prox,
            recorder,
            taken,
            as_planned if budgeted is None else budgeted,
            PassAverage(run.pass_averages),
            precision,
        )
    released = last.to(ready.dtype)
    recorded = noise.executed(recorded_after(released, drawn, recorder, precision))
    predictor = LinearPredictor.of(released, ready.loss)
    return Fitted(
        model=predictor,
        run=recorded,
        record=linear_record(recorded, predictor.weights, predictor.intercept, declared),
        checked=CLOSED_FORM,
        declared=tuple(claim.detail for claim in declared),
        report=Report.of(run, steps=recorded.total_steps, projected=ready.projected),
        **spending(budget, seeded=recorded.seeded),
    )


def linear_precision(run: Run, loss: LinearLoss, start: torch.Tensor, *, in_blocks: bool = True) -> Precision | None:
    """The precision of the recorded run; None: every iterate is released, and rounding them costs nothing.

    Args:
        run: to be carried out, of noise drawn anew at each step.
        loss: of the run, with the number of its classes.
        start: shape (D, k), float64.
        in_blocks: as `gradient_rounding`.
    Raises:
        InputError: the run says less than this training needs.
    """
    if run.release == "all":
        return None

    def error(norm: float) -> float:
        return gradient_rounding(run, loss, start.shape[0], norm, in_blocks=in_blocks)

    return precision_of(run, float(start.norm()), start.numel(), error)


def recorded_after(
    last: torch.Tensor, run: Run, recorder: Recorder, precision: Precision | None, *, remedy: str = "take smaller steps or less noise."
) -> Run:
    """The recorded run of a loop that ended well.

    Args:
        last: the last iterate, of any shape.
        run: that was to be carried out.
        recorder: of the steps.
        precision: in which it was carried out.
        remedy: against overflow.
    Raises:
        LetheError: the iterate overflowed.
    """
    refuse_overflow([last], run, remedy=remedy)
    return recorder.run(run, enforced=True).replace(precision=precision)
