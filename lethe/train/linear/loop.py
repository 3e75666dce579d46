"""Training of a linear model. The loop, `descend`, is the whole algorithm on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from lethe.run.run import Run
from lethe.train.core.budgeted_noise import BudgetedNoise, NoiseOfStep, NoisePolicy, above_rounding, as_planned, refuse_policy
from lethe.train.core.noise_resolution import fresh_share, refuse_drowned, refuse_overflow, refuse_unstable, smallest_noise
from lethe.train.core.pass_average import PassAverage
from lethe.train.core.progress import reporting
from lethe.train.core.proximal import Proximal, proximal_step
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.core.vouching import linear_record
from lethe.train.fitted import Fitted, Report, spending
from lethe.train.linear.description import CLOSED_FORM, Linear, Prepared, generators_of, prepared
from lethe.train.linear.gradients import GradientSums
from lethe.train.linear.noise import StepNoise, step_noise
from lethe.train.linear.predictor import LinearPredictor
from lethe.train.options import CommonOptions


def descend(
    parameters: torch.Tensor,
    model: GradientSums,
    batches: Iterable[Batch],
    step_sizes: Sequence[float],
    noise_stds: Sequence[float],
    divisor: int,
    noise: StepNoise,
    prox: Proximal,
    recorder: Recorder,
    finished: Callable[[int, torch.Tensor], None],
    noise_of_step: NoiseOfStep,
    average: PassAverage,
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
    """
    for step, (batch, step_size, planned) in enumerate(zip(batches, step_sizes, noise_stds, strict=True), start=1):
        noise_std = noise_of_step(step, parameters, planned)
        if noise_std is None:
            break
        gradient = model.clipped_gradient_sum(parameters, batch) / divisor
        moved = average(parameters - step_size * gradient)
        parameters = prox(moved + noise.draw(noise_std), step_size)
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


def train_linear(described: Linear, data: Any, run: Run, options: CommonOptions) -> Fitted[LinearPredictor]:
    """Train a linear model, as `lethe.train.fit` says.

    Args:
        described, data, run: as given to `fit`.
        options: the rest.
    Raises:
        BudgetExceededError, InputError, LetheError: as `fit`.
    """
    return train_prepared(prepared(described, data, run), run, options)


@torch.inference_mode()
def train_prepared(ready: Prepared, run: Run, options: CommonOptions) -> Fitted[LinearPredictor]:
    """`train_linear` of what has been checked.

    Args:
        ready: the data and the start.
        run: as given to `fit`.
        options: the rest.
    Raises:
        BudgetExceededError, InputError, LetheError: as `fit`.
    """
    loss, model, start, projected, declared = ready
    policy, prox = options.noise_policy, proximal_step(run.regularisers)
    noise_of_step = _noise_of_step(run, policy)
    drawn = run.uncorrelated  # what is drawn anew at each step; `noise` correlates it
    noise_stds = drawn.noise_stds.tolist() if policy is None else [float("nan")] * run.total_steps  # a policy decides them all
    if policy is None:
        refuse_drowned(smallest_noise(run), start)
    refuse_unstable(run, start.dtype)
    batch_generator, noise_generator = generators_of(options, start.device)
    recorder = Recorder(drawn, seeded=options.seeded(run))
    noise = step_noise(run, start.shape, noise_generator, start.dtype)
    batches = (batch if isinstance(batch, slice) else batch.to(start.device) for batch in draw_batches(drawn, batch_generator))
    told = options.callbacks
    budget = noise_of_step.filter if isinstance(noise_of_step, BudgetedNoise) else None
    told.begin(run, seeded=recorder.seeded, budget=budget)

    def taken(step: int, iterate: torch.Tensor) -> None:
        finished(step)
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
            noise_of_step,
            PassAverage(run.pass_averages),
        )
    recorded = noise.executed(recorded_after(last, drawn, recorder))
    refuse_drowned(smallest_noise(recorded), last)
    predictor = LinearPredictor.of(last, loss)
    return Fitted(
        model=predictor,
        run=recorded,
        training_record=linear_record(recorded, predictor.weights, predictor.intercept, declared),
        checked=CLOSED_FORM,
        declared=tuple(claim.detail for claim in declared),
        report=Report.of(run, steps=recorded.total_steps, projected=projected),
        **spending(budget, seeded=recorded.seeded),
    )


def recorded_after(last: torch.Tensor, run: Run, recorder: Recorder, *, remedy: str = "take smaller steps or less noise.") -> Run:
    """The recorded run of a loop that ended well.

    Args:
        last: the last iterate, of any shape.
        run: that was to be carried out.
        recorder: of the steps.
        remedy: against overflow.
    Raises:
        LetheError: the iterate overflowed, or the noise was too small to survive its rounding.
    """
    refuse_overflow([last], run, remedy=remedy)
    recorded = recorder.run(run, enforced=True)
    refuse_drowned(smallest_noise(recorded), last)
    return recorded


def _noise_of_step(run: Run, policy: NoisePolicy | None) -> NoiseOfStep:
    refuse_policy(run, policy)
    if run.noise_budget is not None:
        return BudgetedNoise(run, policy)
    # Correlated noise is certified as if every iterate were released, so it has to be there in each of them.
    return above_rounding(fresh_share(run)) if run.release == "all" or run.noise is not None else as_planned
