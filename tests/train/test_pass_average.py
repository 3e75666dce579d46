"""Passes that end at a weighted average: bit for bit the loop as it is written in the Run's docstring."""

from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import SLOT_DESIGNS
from problems import executed, make_loss, make_problem, make_run
from scipy import stats

from lethe.errors import HypothesisError
from lethe.run.losses.linear import require_linear_loss
from lethe.run.run import Run
from lethe.train import Fitted
from lethe.train.core.generators import seeded_generators
from lethe.train.core.proximal import proximal_step
from lethe.train.core.recorder import Recorder
from lethe.train.core.samplers import draw_batches
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.models import LinearPredictor, prepare_features
from lethe.train.network.noise.gaussian import NetworkNoise

KINDS = ("softmax_regression", "logistic_regression", "least_squares")
BOTH = [{"kind": "ridge", "strength": 0.3}, {"kind": "ball", "radius": 0.4}]
WEIGHTS: tuple[Any, ...] = (1.0, [0.1, 0.2, 0.0, 0.7], {"schedule": "exponential", "first": 1.0, "ratio": 2.0})


def averaging_run(kind: str = "softmax_regression", weights: Any = 1.0, **changes: Any) -> Run:
    return make_run(kind, **{"noise_at": "pass_ends", "pass_weights": weights, **changes})


def fit(run: Run, **options: Any) -> Fitted[LinearPredictor]:
    problem = make_problem(run.loss.kind)
    return fit_linear(run, problem.features, problem.targets, **{"classes": problem.classes, "seed": 0, **options})


@torch.inference_mode()
def written_out(run: Run) -> np.ndarray:
    """x_e = prox(sum_k omega_k y_k + nu_e), u_k = prox(y_k), y_k = u_{k-1} - lambda_k g_k: pass by pass, and all y_k kept."""
    problem = make_problem(run.loss.kind)
    loss = require_linear_loss(run.loss).for_classes(problem.classes)
    batch_generator, noise_generator = seeded_generators(0, (torch.device("cpu"), torch.device("cpu")))
    rows = prepare_features(
        problem.features, feature_norm=1.5, intercept=loss.intercept, dtype=torch.float64, device=torch.device("cpu")
    ).rows
    targets = torch.tensor(problem.targets).reshape(-1, 1)
    model = LinearModel(loss, rows, targets, clip_norm=run.clip_norm)
    prox, noise = proximal_step(run.regularisers), NetworkNoise(noise_generator)
    batches, weights = list(draw_batches(run, batch_generator)), run.pass_averages
    assert weights is not None
    x = torch.zeros(rows.shape[1], loss.outputs, dtype=torch.float64)
    for first in range(0, run.total_steps, run.steps_per_pass):
        u, ys = x, []
        for step in range(first, first + run.steps_per_pass):
            ys.append(u + model.clipped_gradient_sum(u, batches[step]) * (-float(run.step_sizes[step]) / run.batch_size))
            u = prox(ys[-1], float(run.step_sizes[step]))
        mean = sum(weight * y for weight, y in zip(weights.tolist(), ys, strict=True) if weight > 0)
        last = first + run.steps_per_pass - 1
        assert isinstance(mean, torch.Tensor)
        noise.add_to([mean], float(run.noise_stds[last]))
        x = prox(mean, float(run.step_sizes[last]))
    return x.numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_it_is_the_loop_as_written_bit_for_bit(kind: str, weights: Any) -> None:
    schedule = {"schedule": "time_decay", "first": 0.4, "rate": 0.1}
    run = averaging_run(kind, weights, step_size=schedule, regulariser=BOTH, loss=make_loss(kind, intercept=True))
    trained = fit(run)
    assert (np.vstack([trained.model.weights, trained.model.intercept]) == written_out(run)).all()


@pytest.mark.parametrize("design", SLOT_DESIGNS)
def test_every_fixed_design_is_averaged(design: str) -> None:
    run = averaging_run(design=design)
    assert (fit(run).model.weights == written_out(run)).all()
    assert not np.array_equal(fit(run).model.weights, fit(run.replace(pass_weights=None)).model.weights)


@pytest.mark.parametrize("regulariser", [None, BOTH])
def test_all_weight_on_the_last_iterate_is_the_plain_recursion(regulariser: Any) -> None:
    """But for rounding: the noise is added to the average there, and to the move here."""
    averaged = averaging_run(weights=[0.0, 0.0, 0.0, 3.0], regulariser=regulariser)
    plain = fit(averaged.replace(pass_weights=None))
    assert plain.run.rounding_errors is not None
    apart = np.linalg.norm(fit(averaged).model.weights - plain.model.weights)
    assert apart <= plain.run.rounding_errors.sum()


def test_the_noise_is_not_averaged_away() -> None:
    """Features 0: the last iterate is the sum of the pass ends' noises, whatever the weights; 200 000 coordinates."""
    run = Run(
        records=8,
        batches={"design": "cyclic", "size": 2},
        passes=3,
        step_size=0.5,
        noise_multiplier=3.0,
        noise_at="pass_ends",
        pass_weights=1.0,
        loss={"kind": "softmax_regression", "feature_norm": 1.0},
        release="last",
        neighbours="replace_one",
    )
    trained = fit_linear(run, np.zeros((8, 1000)), np.zeros(8), classes=200, seed=4)
    low, high = stats.chi2.interval(1 - 1e-9, 200_000)
    assert low < float((trained.model.weights**2).sum()) / (3 * run.noise_stds[3] ** 2) < high


def test_other_noise_at_pass_ends_is_recorded_and_noise_inside_a_pass_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = averaging_run()
    less = plan.noise_stds.copy()
    less[7] /= 2
    run = executed(monkeypatch, plan, noise_stds=less)
    assert run.pass_weights == plan.pass_weights
    assert (run.noise_stds <= less).all()
    assert run.noise_stds == pytest.approx(less, rel=5e-16)  # two roundings
    less[5] = 0.1
    with pytest.raises(HypothesisError, match="noise inside"):
        executed(monkeypatch, plan, noise_stds=less)


def test_an_unfinished_pass_is_not_recorded() -> None:
    plan = averaging_run()
    recorder = Recorder(plan, seeded=False)
    for batch in list(draw_batches(plan, torch.Generator()))[:6]:
        recorder.note(step_size=0.4, noise_std=0.0, batch=batch)
    with pytest.raises(HypothesisError, match="unfinished"):
        recorder.run(plan, enforced=True)
