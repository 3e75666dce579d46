"""Training of a linear model: its noise, and the loop; `descend` is the whole algorithm on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from lethe.run.losses import LinearLoss
from lethe.run.noise.draws import Draws
from lethe.run.precision import Precision
from lethe.run.run import Run
from lethe.train.core.budgeted_noise import BudgetedNoise, refuse_policy
from lethe.train.core.iterates import PassAverage, Proximal, keep_within, precision_of, proximal_step, radius_of
from lethe.train.core.noise_resolution import refuse_overflow, refuse_unstable
from lethe.train.core.progress import reporting
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.core.training_records import linear_record
from lethe.train.fitted import Fitted, Report, spending
from lethe.train.linear.description import Linear, generators_of, prepared
from lethe.train.linear.frozen_features import Backbone
from lethe.train.linear.gradients import GradientSums, gradient_rounding
from lethe.train.linear.predictor import LinearPredictor
from lethe.train.options import CommonOptions


class GaussianNoise:
    r"""Draws $N(0, \tau^2 I)$ in parameter units; of correlated noise $\tau_t u_t$ with $u = C^{-1}z$, $z_t \sim N(0, I)$.

    $\tau_t = \lambda_t z C_\mathrm{clip}/b$ changes with the step size alone, so that the noise on the sums of gradients is $C^{-1}z$
    whatever the step sizes are. What is kept between steps is what the strategy's stream keeps.

    Drawn in float64: PyTorch's float32 normals never exceed 5.77 standard deviations, so that a large enough output would have one
    possible cause. The generator decides how secret the noise is: PyTorch's are statistical generators, not cryptographic ones, and their
    samples are floating-point numbers, not exact Gaussians. Both are outside of what a certificate says.

    Args:
        shape: of the parameters.
        generator: used for noise only, never for batches.
        run: whose noise may be correlated; None: it is independent.
    Raises:
        LetheError: correlated noise would outgrow its draws.
    """

    def __init__(self, shape: torch.Size, generator: torch.Generator, run: Run | None = None) -> None:
        self._shape, self._generator = shape, generator
        self._draws = None if run is None or run.noise is None else Draws(run.noise)
        if run is not None:
            refuse_unstable(run, torch.float64)

    def draw(self, noise_std: float) -> torch.Tensor | float:
        """The noise of the next step, of standard deviation `noise_std` >= 0; 0.0, and nothing drawn, when it is 0."""
        if noise_std == 0.0:
            if self._draws is not None:
                self._draws.none()
            return 0.0
        drawn = torch.randn(self._shape, generator=self._generator, dtype=torch.float64, device=self._generator.device)
        return noise_std * (drawn if self._draws is None else self._draws.next(drawn))

    def executed(self, recorded: Run) -> Run:
        """What was recorded of each step as a run with this noise; HypothesisError as `Draws.executed`."""
        return recorded if self._draws is None else self._draws.executed(recorded)


def descend(
    run: Run,
    parameters: torch.Tensor,
    model: GradientSums,
    batches: Iterable[Batch],
    noise: GaussianNoise,
    *,
    noise_of_step: Callable[[int, torch.Tensor], float | None] | None = None,
    prox: Proximal | None = None,
    recorder: Recorder | None = None,
    finished: Callable[[int, torch.Tensor], None] | None = None,
    precision: Precision | None = None,
) -> torch.Tensor:
    r"""$x_t = \mathrm{prox}_{\lambda_t h}\big(x_{t-1} - \lambda_t g_t + \nu_t\big)$ with $\nu_t \sim N(0, \tau_t^2 I)$; returns the last.

    The average of a pass, where the run has one, stands in the place of its last $x_{t-1} - \lambda_t g_t$.

    Args:
        run: gives $\lambda_t$, $\tau_t$, the divisor of the sums, the regularisers and the averages; of noise drawn anew at each step.
        parameters: $x_0$, shape (d, k).
        model: gives the sums of clipped gradients, in loss per parameter unit.
        batches: of each step.
        noise: draws $\nu_t$.
        noise_of_step: $\tau_t$ from t and $x_{t-1}$, or None, which ends the run before that step; None: the run's.
        prox: None: of the run's regularisers.
        recorder: notes each step.
        finished: is told the number of each step, from 1, and $x_t$.
        precision: of the recorded run: keeps the iterates within a ball; None: every iterate is released.
    """
    noise_of_step = noise_of_step or (lambda step, _: float(run.noise_stds[step - 1]))
    average = None if run.pass_averages is None else PassAverage(run.pass_averages)
    prox = prox or proximal_step(run.regularisers)
    for step, (batch, step_size) in enumerate(zip(batches, run.step_sizes.tolist(), strict=True), start=1):
        noise_std = noise_of_step(step, parameters)
        if noise_std is None:
            break
        move = model.clipped_gradient_sum(parameters, batch) * (-step_size / run.batch_size)
        drawn = noise.draw(noise_std)
        # The noise is added before anything is rounded at the size of the parameters: what a record changes is hidden by then.
        moved = parameters + (move + drawn) if average is None else average(parameters + move) + drawn
        if precision is not None:
            keep_within([moved], radius_of(precision))
        parameters = prox(moved, step_size)
        if recorder is not None:
            recorder.note(step_size=step_size, noise_std=noise_std, batch=batch)
        if finished is not None:
            finished(step, parameters)
    return parameters


def train_linear(
    described: Linear, data: Any, run: Run, options: CommonOptions, *, backbone: Backbone | None = None
) -> Fitted[LinearPredictor]:
    """Train a linear model, as `lethe.train.fit` says.

    Args:
        described, data, run: as given to `fit`.
        options: the rest.
        backbone: makes the features; None: they are given.
    Raises:
        BudgetExceededError, HypothesisError, InputError, LetheError: as `fit`.
    """
    ready = prepared(described, data, run, backbone=backbone)
    refuse_policy(run, options.noise_policy)
    prox = proximal_step(run.regularisers)
    budgeted = None if run.noise_budget is None else BudgetedNoise(run, options.noise_policy)
    batch_generator, noise_generator = generators_of(options, ready.start.device)
    drawn = run.uncorrelated  # what is drawn anew at each step; `noise` correlates it
    recorder, noise = Recorder(drawn, seeded=options.seeded(run)), GaussianNoise(ready.start.shape, noise_generator, run)
    precision = linear_precision(run, ready.loss, ready.start)
    told, budget = options.callbacks, None if budgeted is None else budgeted.filter
    told.begin(run if precision is None else run.replace(precision=precision), seeded=recorder.seeded, budget=budget)

    def taken(step: int, iterate: torch.Tensor) -> None:
        finished(step, run.total_steps)
        told.step(recorder)

    with torch.inference_mode(), reporting(options.progress, run.total_steps) as finished:
        last = descend(
            drawn,
            ready.start,
            ready.model,
            draw_batches(drawn, batch_generator),
            noise,
            noise_of_step=budgeted,
            prox=prox,
            recorder=recorder,
            finished=taken,
            precision=precision,
        )
    released = last.to(ready.dtype)
    refuse_overflow([released], run)
    recorded = noise.executed(recorder.run(drawn, enforced=True).replace(precision=precision))
    predictor = LinearPredictor.of(released, ready.loss)
    return Fitted(
        model=predictor,
        run=recorded,
        record=linear_record(recorded, predictor.weights, predictor.intercept, ready.declared),
        checked=ready.checked,
        report=Report.of(run, steps=recorded.total_steps, projected=ready.projected),
        **spending(budget, seeded=recorded.seeded),
    )


def linear_precision(run: Run, loss: LinearLoss, start: torch.Tensor, *, in_blocks: bool = True) -> Precision | None:
    """The precision of the recorded run; None: every iterate is released, as of correlated noise, and rounding them costs nothing.

    Args:
        run: to be carried out.
        loss: of the run, with the number of its classes.
        start: shape (D, k), float64.
        in_blocks: as `gradient_rounding`.
    Raises:
        InputError: the run says less than this training needs.
    """
    if run.release == "all" or run.noise is not None:
        return None

    def error(norm: float) -> float:
        return gradient_rounding(run, loss, start.shape[0], norm, in_blocks=in_blocks)

    return precision_of(run, float(start.norm()), start.numel(), error)
