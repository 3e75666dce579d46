"""fit_linear: carry out a Run on data. The loop, `descend`, is the whole algorithm on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from lethe.errors import InputError, LetheError
from lethe.run.known_fields import require_run
from lethe.run.losses import LinearLoss
from lethe.run.run import Run
from lethe.train.core.budgeted_noise import BudgetedNoise, NoiseOfStep, NoisePolicy, as_planned, as_planned_above_rounding, refuse_policy
from lethe.train.core.generators import fresh_generator, is_seeded, same_stream, seeded_generators
from lethe.train.core.noise_resolution import refuse_drowned
from lethe.train.core.pass_average import PassAverage
from lethe.train.core.progress import Callback, reporting
from lethe.train.core.proximal import Proximal, proximal_step
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import Batch, draw_batches
from lethe.train.core.vouching import linear_record
from lethe.train.linear.features import Features, numbers, prepare_features, refuse_not_finite
from lethe.train.linear.gradients import LinearModel, refuse_other_clipping
from lethe.train.linear.links import linear_loss, link_of
from lethe.train.linear.noise import GaussianNoise
from lethe.train.linear.targets import prepare_targets
from lethe.train.linear.trained import Report, Trained

_DTYPES = {"float64": torch.float64, "float32": torch.float32}


def descend(
    parameters: torch.Tensor,
    model: LinearModel,
    batches: Iterable[Batch],
    step_sizes: Sequence[float],
    noise_stds: Sequence[float],
    divisor: int,
    noise: GaussianNoise,
    prox: Proximal,
    recorder: Recorder,
    finished: Callable[[int], None],
    noise_of_step: NoiseOfStep,
    average: PassAverage,
) -> torch.Tensor:
    r"""$x_t = \mathrm{prox}_{\lambda_t h}\big(x_{t-1} - \lambda_t g_t + \nu_t\big)$ with $\nu_t \sim N(0, \tau_t^2 I)$; returns the last.

    `average` may put a weighted mean of the pass in the place of its last $x_{t-1} - \lambda_t g_t$; `noise_of_step` may choose another
    noise than the planned, or refuse the step, which ends the run before it.
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
        finished(step)
    return parameters


@torch.inference_mode()
def fit_linear(
    run: Run,
    features: Any,
    targets: Any,
    *,
    classes: int | None = None,
    seed: int | None = None,
    batch_generator: torch.Generator | None = None,
    noise_generator: torch.Generator | None = None,
    initial: Any = None,
    noise_policy: NoisePolicy | None = None,
    progress: bool | Callback = False,
    dtype: str | torch.dtype = "float64",
    device: str | torch.device = "cpu",
) -> Trained:
    r"""Train a linear model as `run` says, and record the run that was executed.

    The loss is the model: any `lethe.losses.LinearLoss`, such as Softmax, Logistic (one weight vector, targets 0 and 1), LeastSquares or
    SmoothedHinge. Features are projected to norm feature_norm, so the facts that a certificate derives from that norm are enforced.

    Args:
        run: what to do; its noise_multiplier must be set (0 is allowed: no privacy), unless a policy chooses it. With noise_budget set,
            every step is paid for before it is taken, and the first that the budget does not reach ends training.
        features: shape (n, d) with n = run.records.
        targets: shape (n,): class numbers 0..classes-1, or real numbers for least squares and Huber.
        classes: the public number of classes, never read off the data; needed for softmax regression, cut or not, unless the loss says it.
        seed: makes batches and noise repeatable, for tests and benchmarks: whoever knows the seed knows the noise, and two fits under one
            seed share it. The recorded run is then `seeded`, and its certificate: no release. None: fresh entropy.
        batch_generator: instead of a seed, and as seeded where the design keeps its batches secret: a CPU generator for the batches.
        noise_generator: instead of a seed, and as seeded: another generator, on `device`, for the noise.
        initial: $x_0$, shape (d, k), or (d + 1, k) with the intercept's row last; must not depend on the data. None: zeros.
        noise_policy: chooses each step's noise multiplier from what was released so far (see `Observed`); it may use public data besides,
            and must see nothing else of the private data. Needs run.noise_budget. None: the run's own noise.
        progress: True: a bar on standard error if that is a terminal; or a function of (step, steps).
        dtype: "float64" or "float32".
        device: where the arithmetic is done, such as "cpu" or "cuda".
    Returns:
        The model after the last step, the recorded run (equal to `run` if its loss's evidence is "enforced" and all its steps were
        taken with its own noise, not seeded), and a report.
    Raises:
        BudgetExceededError: the first step alone costs more than run.noise_budget.
        InputError: anything about the run, the data or the options that cannot be used; nothing is trained then.
        LetheError: the parameters overflowed, or some noise was too small to survive rounding.
    """
    require_run(run)
    refuse_other_clipping(run)
    loss, prox = linear_loss(run.loss).for_classes(classes), proximal_step(run.regularisers)
    noise_of_step = _noise_of_step(run, noise_policy)
    noise_stds = run.noise_stds.tolist() if noise_policy is None else [float("nan")] * run.total_steps  # a policy decides them all
    chosen_dtype, chosen_device = _arithmetic(dtype, device)
    generators = _generators(seed, batch_generator, noise_generator, chosen_device)
    data = _features(run, loss, features, chosen_dtype, chosen_device)
    column = prepare_targets(targets, classes=loss.target_classes, records=run.records, dtype=chosen_dtype, device=chosen_device)
    model = LinearModel(link_of(loss), data.rows, column, clip_norm=run.clip_norm, outputs=loss.outputs)
    start = _initial(initial, (data.rows.shape[1], loss.outputs), chosen_dtype, chosen_device)
    if noise_policy is None:
        refuse_drowned(_smallest_noise(run), start)
    noise = GaussianNoise(start.shape, generators[1], chosen_dtype)
    recorder = Recorder(run, seeded=is_seeded(run, seed=seed, batch_generator=batch_generator, noise_generator=noise_generator))
    batches = (batch if isinstance(batch, slice) else batch.to(chosen_device) for batch in draw_batches(run, generators[0]))
    with reporting(progress, run.total_steps) as finished:
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
            finished,
            noise_of_step,
            PassAverage(run.pass_averages),
        )
    return _trained(last, run, recorder, data, loss.target_classes, noise_of_step if isinstance(noise_of_step, BudgetedNoise) else None)


def _trained(
    last: torch.Tensor, run: Run, recorder: Recorder, data: Features, classes: int | None, budgeted: BudgetedNoise | None
) -> Trained:
    if not bool(torch.isfinite(last).all()):
        raise LetheError(
            "training overflowed: the last iterate is not finite.",
            source=f"step_size up to {run.step_sizes.max():g}, and noise_multiplier",
            remedy="take smaller steps or less noise.",
        )
    recorded = recorder.run(run, enforced=True)
    refuse_drowned(_smallest_noise(recorded), last)
    parameters = last.to(device="cpu", dtype=torch.float64).numpy()
    weights = parameters[: data.columns].copy()
    intercept = parameters[-1].copy() if len(parameters) > data.columns else np.zeros(parameters.shape[1])
    used = run.steps_per_pass * run.batch_size
    return Trained(
        weights=weights,
        intercept=intercept,
        classes=classes,
        run=recorded,
        record=linear_record(recorded, weights, intercept),
        report=Report(
            records=run.records,
            projected=data.projected,
            steps=recorded.total_steps,
            left_over=run.records - used if run.batches.fixed and run.batches.exact_size else 0,
            spent=None if budgeted is None else budgeted.spent,
            odometer=None if budgeted is None or recorded.seeded else budgeted.odometer,
        ),
    )


def _noise_of_step(run: Run, policy: NoisePolicy | None) -> NoiseOfStep:
    refuse_policy(run, policy)
    if run.noise_budget is not None:
        return BudgetedNoise(run, policy)
    return as_planned_above_rounding if run.release == "all" else as_planned


def _smallest_noise(run: Run) -> float:
    return float(run.noise_stds[run.noise_stds > 0].min(initial=np.inf))


def _features(run: Run, loss: LinearLoss, features: Any, dtype: torch.dtype, device: torch.device) -> Features:
    data = prepare_features(features, feature_norm=loss.feature_norm, intercept=loss.intercept, dtype=dtype, device=device)
    if len(data.rows) != run.records:
        raise InputError(
            f"records: the run says {run.records}; the features have {len(data.rows)} rows.",
            source="run.records",
            remedy="certify and train the same number of records.",
        )
    return data


def _arithmetic(dtype: str | torch.dtype, device: str | torch.device) -> tuple[torch.dtype, torch.device]:
    chosen = _DTYPES.get(str(dtype).removeprefix("torch."))
    if chosen is None:
        raise InputError(f"dtype: got {dtype!r}; it needs float64 or float32: coarser noise is not Gaussian.")
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).item()  # a device that holds no numbers, such as meta, is refused here
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise InputError(f"device: got {device!r}; it cannot be used: {str(error).splitlines()[0]}", remedy='use "cpu".') from error
    return chosen, place


def _generators(
    seed: int | None, batch: torch.Generator | None, noise: torch.Generator | None, device: torch.device
) -> tuple[torch.Generator, torch.Generator]:
    if seed is not None:
        if batch is not None or noise is not None:
            raise InputError(
                "seed: given together with a generator; a seed makes both generators.", remedy="give the seed or the generators."
            )
        first, second = seeded_generators(seed, (torch.device("cpu"), device))
        return first, second
    if same_stream(batch, noise):
        raise InputError(
            "noise_generator: in the same state as batch_generator; noise must not be predictable from batches.",
            remedy="give two generators.",
        )
    for name, generator, place in (("batch_generator", batch, torch.device("cpu")), ("noise_generator", noise, device)):
        if generator is not None and (not isinstance(generator, torch.Generator) or generator.device.type != place.type):
            raise InputError(f"{name}: got {generator!r}; it needs a torch.Generator on {place.type}.")
    return batch or fresh_generator(torch.device("cpu")), noise or fresh_generator(device)


def _initial(initial: Any, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if initial is None:
        return torch.zeros(shape, dtype=dtype, device=device)
    start = numbers("initial", initial)
    if start.shape != shape:
        raise InputError(f"initial: got shape {start.shape}; it needs {shape}: features (and a last row for an intercept) by outputs.")
    refuse_not_finite("initial", start)
    return torch.tensor(start, dtype=dtype, device=device)
