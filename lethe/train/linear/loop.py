"""Training of a linear model: what is prepared of it and its data, and the loop.

`fit` calls `train_linear`; estimators and influence/retraining.py call `descend`.

`descend` is the whole algorithm on one screen.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lethe.certificates.records import HypothesisClaim
from lethe.errors import InputError
from lethe.partitions.dask_tables import table_in_blocks
from lethe.run.effective_loss import gradients_by
from lethe.run.known_fields import refuse_users, require_run
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.run.precision import Precision
from lethe.run.run import Run
from lethe.train.callbacks.notifier import Notifier
from lethe.train.callbacks.progress import progress_of
from lethe.train.core.budgeted_noise import BudgetedNoise, refuse_policy
from lethe.train.core.iterates import PassAverage, keep_within, precision_of, radius_of, refuse_overflow
from lethe.train.core.proximal import Proximal, bounded, proximal_step
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches, refuse_other_records
from lethe.train.core.training_records import PRIVATE, WORKERS, linear_record
from lethe.train.data.loaders import as_source
from lethe.train.data.sources import refuse_fields
from lethe.train.fitted import Diagnostics, Fitted, spending
from lethe.train.linear.blocks import BlockLinearModel, Rows
from lethe.train.linear.frozen_features import Backbone
from lethe.train.linear.gradients import LinearModel, gradient_rounding, refuse_other_clipping
from lethe.train.linear.models import Linear, LinearPredictor, numbers, prepare_features, prepare_targets
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise
from lethe.train.network.noise.training_noise import TrainingNoise, own_sources
from lethe.train.options import TrainOptions

_CLOSED_FORM = "nothing was left to check: every record's gradient is computed by itself, in closed form"


class Prepared(NamedTuple):
    """The checked inputs of a loop that trains a linear model; `start` is float64, `dtype` that of the released model."""

    loss: LinearLoss
    model: LinearModel | BlockLinearModel
    start: Tensor
    projected: int
    dtype: torch.dtype
    declared: tuple[HypothesisClaim, ...]


@torch.no_grad()
def prepared(described: Linear, data: Any, run: Run, *, backbone: Backbone | None = None) -> Prepared:
    """The loss, the data and the start, checked.

    Data have shapes (n, d) and (n,) with n = run.records, or are a table in blocks; with a backbone any records.
    """
    refuse_users(require_run(run, correlated=True), "a linear model's trainer" if backbone is None else "the trainer of a Head")
    refuse_other_clipping(run)
    loss = require_linear_loss(run.loss).for_classes(described.classes)
    dtype, device = described.arithmetic()
    pair, declared = isinstance(data, tuple | list) and len(data) == 2, ()
    if (blocks := table_in_blocks(*data) if pair else table_in_blocks(data)) is not None:
        if device.type != "cpu":
            raise InputError(
                f"device: got {device}; a table in blocks is computed where its blocks are read, on the CPU.",
                source="device of Linear, or of the head",
                remedy="leave it out, or give tables in memory.",
            )
        rows = Rows(loss=loss, dtype=dtype, clip_norm=run.clip_norm, method=gradients_by(run), backbone=backbone)
        model = BlockLinearModel(blocks, rows, run)
        projected, columns, declared = model.projected, model.width, (WORKERS,) if run.batches.secret else ()
    else:
        if backbone is not None:
            source = refuse_fields(as_source(data), "a Head")
            refuse_other_records(run.records, len(source))
            data = tuple(map(torch.cat, zip(*backbone.checked(source, device), strict=True)))
            declared = tuple(HypothesisClaim("data", detail) for detail in getattr(source, "declared", ()))
        elif not pair:
            raise InputError(
                f"data: got {type(data).__name__}; a linear model needs the pair (features, targets).",
                remedy="give arrays of shapes (records, features) and (records,); to stream other data train nn.Linear(...) as a module.",
            )
        table = prepare_features(data[0], feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=dtype, device=device)
        refuse_other_records(run.records, len(table.rows), "the features have {} rows")
        column = prepare_targets(data[1], classes=loss.target_classes, records=run.records, device=device)
        model = LinearModel(loss, table.rows, column, clip_norm=run.clip_norm, method=gradients_by(run))
        projected, columns = table.projected, table.rows.shape[1]
    start = proximal_step(bounded(run.regularisers))(starting_point(described.initial, (columns, loss.outputs), device), 1.0)
    return Prepared(loss, model, start, projected, dtype, declared)


def starting_point(initial: Any, shape: tuple[int, int], device: torch.device) -> Tensor:
    """$x_0$ in float64: zeros, or what is given; InputError for another shape, or an entry that is not finite."""
    if initial is None:
        return torch.zeros(shape[::-1], dtype=torch.float64, device=device).T  # as gradients are: a faster product with rows
    start = numbers("initial", initial)
    if start.shape != shape:
        raise InputError(f"initial: got shape {start.shape}; it needs {shape}: features (and a last row for an intercept) by outputs.")
    return torch.tensor(start, dtype=torch.float64, device=device)


def linear_noise(run: Run, fresh: NetworkNoise | SecureNoise) -> TrainingNoise:
    """The noise of a linear model's parameters, which are float64, correlated as the run says; LetheError if it drowns in rounding."""
    return TrainingNoise(fresh if run.noise is None else CorrelatedNetworkNoise(run, fresh, torch.float64))


def descend(
    run: Run,
    parameters: Tensor,
    gradient_sum: Callable[[Tensor, Batch], Tensor],
    batches: Iterable[Batch],
    add_noise: Callable[[Sequence[Tensor], float], None],
    *,
    noise_of_step: Callable[[int, Tensor], float | None] | None = None,
    prox: Proximal | None = None,
    recorder: Recorder | None = None,
    finished: Callable[[int, Tensor], None] | None = None,
    precision: Precision | None = None,
) -> Tensor:
    r"""$x_t = \mathrm{prox}_{\lambda_t h}\big(x_{t-1} - \lambda_t g_t + \nu_t\big)$ with $\nu_t \sim N(0, \tau_t^2 I)$; returns the last.

    The average of a pass, where the run has one, stands in the place of its last $x_{t-1} - \lambda_t g_t$. $x_0$ is of shape (d, k);
    `noise_of_step` gives $\tau_t$ from t and $x_{t-1}$, or None, which ends the run before that step; `finished` is told t and $x_t$;
    `precision` keeps the iterates within a ball.
    """
    noise_of_step = noise_of_step or (lambda step, _: float(run.noise_stds[step - 1]))
    average = None if run.pass_averages is None else PassAverage(run.pass_averages)
    prox = prox or proximal_step(run.regularisers)
    for step, (batch, step_size) in enumerate(zip(batches, run.step_sizes.tolist(), strict=True), start=1):
        noise_std = noise_of_step(step, parameters)
        if noise_std is None:
            break
        move = gradient_sum(parameters, batch) * (-step_size / run.batch_size)
        if average is None:  # noise comes before anything is rounded at the size of the parameters: what a record changes is hidden by then
            add_noise([move], noise_std)
            moved = parameters + move
        else:
            moved = average(parameters + move)
            add_noise([moved], noise_std)
        if precision is not None:
            keep_within([moved], radius_of(precision))
        parameters = prox(moved, step_size)
        if recorder is not None:
            recorder.note(step_size=step_size, noise_std=noise_std, batch=batch)
        if finished is not None:
            finished(step, parameters)
    return parameters


def train_linear(
    described: Linear, data: Any, run: Run, options: TrainOptions, notifier: Notifier, *, backbone: Backbone | None = None
) -> Fitted[LinearPredictor]:
    """Train a linear model, of the features that a backbone makes or that are given, as `lethe.train.fit` says."""
    ready = prepared(described, data, run, backbone=backbone)
    refuse_policy(run, options.noise_policy)
    prox = proximal_step(run.regularisers)
    budgeted = None if run.noise_budget is None else BudgetedNoise(run, options.noise_policy)
    batch_generator, fresh = own_sources(run, ready.start.device, options)
    drawn = run.uncorrelated  # what is drawn anew at each step; `noise` correlates it
    recorder, noise = Recorder(drawn, seeded=options.seeded(run)), linear_noise(run, fresh)
    precision = linear_precision(run, ready.loss, ready.start)
    budget = None if budgeted is None else budgeted.filter
    notifier.begin(run if precision is None else run.replace(precision=precision), seeded=recorder.seeded, budget=budget)

    def on_step(step: int, iterate: Tensor) -> None:
        finished(step, run.total_steps)
        if notifier.live:
            notifier.step(recorder)

    finished = progress_of(options.progress)
    with torch.inference_mode():
        last = descend(
            drawn,
            ready.start,
            ready.model.clipped_gradient_sum,
            draw_batches(drawn, batch_generator),
            noise.add_to,
            noise_of_step=budgeted,
            prox=prox,
            recorder=recorder,
            finished=on_step,
            precision=precision,
        )
    released = last.to(ready.dtype)
    refuse_overflow([released], run)
    recorded = noise.executed(recorder.run(drawn, enforced=True).replace(precision=precision))
    predictor = LinearPredictor.of(released, ready.loss)
    return Fitted(
        model=predictor,
        run=recorded,
        record=linear_record(
            recorded, predictor.weights, predictor.intercept, (*ready.declared, *((PRIVATE,) if notifier.private else ()))
        ),
        checked=_CLOSED_FORM,
        diagnostics=Diagnostics.of(run, steps=recorded.total_steps, projected=ready.projected),
        **spending(budget, seeded=recorded.seeded),
    )


def linear_precision(run: Run, loss: LinearLoss, start: Tensor, *, in_blocks: bool = True) -> Precision | None:
    """The precision of the recorded run; None: every iterate is released, as of correlated noise, and rounding them costs nothing.

    $x_0$ is of shape (D, k), float64.
    """
    if run.release == "all" or run.noise is not None:
        return None
    rows = start.shape[0]
    return precision_of(run, float(start.norm()), start.numel(), lambda norm: gradient_rounding(run, loss, rows, norm, in_blocks=in_blocks))
