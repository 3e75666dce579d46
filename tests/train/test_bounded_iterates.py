"""The norm that iterates are kept within, and the rounding of a linear model's gradients that its precision states."""

import itertools
import math
from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import helpers
import mpmath
import numpy as np
import pytest
import torch
from doors import fit_linear
from torch import nn

import lethe
from lethe.run.losses.linear import require_linear_loss
from lethe.run.run import Run
from lethe.train import Checkpoints, TrainOptions, fit
from lethe.train.core.iterates import keep_within, precision_of, radius_of
from lethe.train.linear.gradients import LinearModel, gradient_rounding
from lethe.train.linear.loop import linear_precision
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.training_noise import TrainingNoise
from lethe.train.network.steps import Descent, shown_rounding

DATA = np.random.default_rng(0).normal(size=(40, 3)), np.random.default_rng(0).integers(0, 2, 40)
SQUARES = lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=1.0)


def make_run(**changes: Any) -> Run:
    said = {"passes": 4, "noise_multiplier": 4.0, "loss": lethe.losses.Logistic(feature_norm=1.0)}
    return helpers.make_run(**{"records": 40, "batches": lethe.batches.Cyclic(8), **said, **changes})


def test_within_the_ball_every_bit_stays_and_outside_it_is_the_projection() -> None:
    tensors = [torch.randn(7, 3, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    before = [tensor.clone() for tensor in tensors]
    keep_within(tensors, 100.0)
    assert all(torch.equal(one, other) for one, other in zip(tensors, before, strict=True))
    tensors = [torch.full((3,), 4.0, dtype=torch.float64), torch.full((1,), 4.0, dtype=torch.float64)]
    keep_within(tensors, 2.0)
    assert torch.cat(tensors) == pytest.approx(np.ones(4), rel=1e-15)


def test_the_norm_is_far_above_where_training_goes() -> None:
    run = make_run()
    precision = precision_of(run, 3.0, 10, lambda norm: 0.0)
    reach = 3.0 + float(run.step_sizes.sum()) * run.clip_bound + float(np.linalg.norm(run.noise_stds)) * (np.sqrt(10) + 12)
    assert reach <= radius_of(precision) <= reach * (1 + 1e-5)
    assert precision.parameter_norm == 2.0 * radius_of(precision)
    assert precision.roundings == 18.0
    onto = precision_of(run.replace(regulariser=lethe.regularisers.Simplex(50.0)), 3.0, 10, lambda norm: 0.0)
    assert radius_of(onto) == pytest.approx(radius_of(precision) + 47.0, rel=1e-5)  # a simplex takes its points away from 0


def test_a_linear_model_s_ball_knows_its_start_and_all_its_parameters() -> None:
    run, start = make_run(), torch.ones((300, 1), dtype=torch.float64)
    precision = linear_precision(run, require_linear_loss(run.loss), start)
    assert precision is not None
    path = float(run.step_sizes.sum()) * run.clip_bound + float(np.linalg.norm(run.noise_stds)) * (np.sqrt(300) + 12)
    assert radius_of(precision) == pytest.approx(np.sqrt(300) + path, rel=1e-5)
    rounding = gradient_rounding(run, require_linear_loss(run.loss), 300, radius_of(precision), in_blocks=True)
    assert precision.gradient_error == pytest.approx(rounding, rel=1e-5, abs=0.0)


def test_a_linear_model_starts_in_its_domain() -> None:
    run = make_run(batches=lethe.batches.Full(), passes=1, noise_multiplier=0.0, regulariser=lethe.regularisers.Ball(0.5))
    start = np.array([[3.0], [-4.0], [0.0]])
    far, near = (fit_linear(run, *DATA, seed=0, initial=start * factor) for factor in (1.0, 0.1))
    assert far.model.weights == pytest.approx(near.model.weights, rel=1e-12)
    assert far.run.precision is not None
    assert near.run.precision is not None
    assert far.run.precision.parameter_norm == pytest.approx(near.run.precision.parameter_norm, rel=1e-12)
    other = fit_linear(run, *DATA, seed=0, initial=-start).model.weights
    assert np.abs(other - near.model.weights).max() > 0.1


def test_a_planned_precision_is_carried_out_or_refused() -> None:
    recorded = fit_linear(make_run(), *DATA, seed=0).run
    assert recorded.precision is not None
    again = fit_linear(make_run(precision=recorded.precision), *DATA, seed=0).run
    assert again == recorded
    for fewer in ({"dtype": "float32"}, {"gradient_error": 0.0}, {"roundings": 17.8}, {"parameter_norm": 0.99}):
        with pytest.raises(lethe.InputError, match="leave precision out"):
            fit_linear(make_run(precision=recorded.precision.model_copy(update=fewer)), *DATA, seed=0)
    with pytest.raises(lethe.InputError, match="leave precision out"):
        fit_linear(make_run(precision=recorded.precision), *DATA, seed=0, initial=np.full((3, 1), 1e6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pass_ends", [False, True])
def test_the_iterates_are_within_a_ball_that_is_stated(dtype: torch.dtype, *, pass_ends: bool) -> None:
    """Noise is some 30 times as long as the radius, which is that of the longest move without."""
    stated = lethe.Precision(dtype="float64", parameter_norm=2 * 0.6, gradient_error=1.0, roundings=18.0)
    averaged = {"noise_at": "pass_ends", "pass_weights": 1.0} if pass_ends else {}
    run = make_run(precision=stated, noise_multiplier=200.0, **averaged)
    linear = fit_linear(run, *DATA, seed=0)
    network = nn.Linear(3, 2, bias=False, dtype=dtype)
    nn.init.zeros_(network.weight)
    data = torch.from_numpy(DATA[0]).to(dtype), torch.from_numpy(DATA[1])
    loss = lethe.losses.Convex(smoothness=1.0)
    trained = fit(network, nn.CrossEntropyLoss(reduction="none"), data, run.replace(loss=loss, clip_norm=1.0), options=TrainOptions(seed=1))
    assert linear.run.precision == trained.run.precision == stated
    for weights in (linear.model.weights, network.weight.detach().double().numpy()):
        assert np.linalg.norm(weights) == pytest.approx(0.6, rel=1e-6)


@pytest.mark.parametrize("start", [1000.0, 0.0])
def test_a_training_that_goes_on_keeps_the_ball_of_its_own_start(start: float, tmp_path: Path) -> None:
    """The model that is given to go on is overwritten; its norm tells nothing of the iterates."""

    def network(size: float) -> nn.Module:
        model = nn.Linear(4, 2).double()
        for parameter in model.parameters():
            nn.init.constant_(parameter, size)
        return model

    def stop(step: int, steps: int) -> None:
        if step == 4:
            raise KeyboardInterrupt

    data = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(64) % 2
    run = make_run(records=64, clip_norm=1.0, loss=lethe.losses.Convex(smoothness=1.0), step_size=1e-2)
    loss, kept = nn.CrossEntropyLoss(reduction="none"), Checkpoints(folder=tmp_path, every=2)
    with pytest.raises(KeyboardInterrupt):
        fit(network(1000.0), loss, data, run, options=TrainOptions(checkpoints=kept, progress=stop, seed=1))
    again = network(start)
    recorded = fit(again, loss, data, run, options=TrainOptions(checkpoints=kept, seed=1)).run
    assert recorded.precision is not None
    assert recorded.precision.parameter_norm > 2 * 1000.0 * np.sqrt(10)
    assert float(torch.linalg.vector_norm(torch.cat([one.detach().flatten() for one in again.parameters()]))) > 3000.0


@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled", "full"])
@pytest.mark.parametrize("changes", [{}, {"noise_at": "pass_ends"}, {"regulariser": lethe.regularisers.L2(0.1)}, {"step_size": 1e-3}])
def test_a_plan_is_kept_once_rounding_is_counted(design: str, changes: dict[str, Any]) -> None:
    batches = {"design": design} if design == "full" else {"design": design, "size": 8}
    run = lethe.plan(make_run(batches=batches, noise_multiplier=None, **changes), epsilon=2.0, delta=1e-3)
    recorded = fit_linear(run, *DATA, seed=0).run.replace(seeded=False)
    certified = lethe.certify(recorded, delta=1e-3).epsilon
    assert lethe.certify(run, delta=1e-3).epsilon <= certified <= 2.0  # equal where composition proves it


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (lethe.losses.Convex(smoothness=3.0), 3.0 * 2.0**-24 * 10.0),
        (lethe.losses.WeaklyConvex(weak_convexity=5.0, smoothness=3.0), 5.0 * 2.0**-24 * 10.0),
        (lethe.losses.Holder(constant=2.0, exponent=0.5), 2.0 * (2.0**-24 * 10.0) ** 0.5),
        (lethe.losses.Unknown(), 0.0),
    ],
)
def test_a_model_in_float32_shows_other_gradients(loss: lethe.losses.Loss, expected: float) -> None:
    run = make_run(loss=loss, clip_norm=1.0)
    shown = shown_rounding(run, torch.float32, 10.0)
    assert shown == pytest.approx(expected, rel=1e-9)
    assert shown >= expected
    assert shown_rounding(run, torch.float64, 10.0) == 0.0
    poisson = shown_rounding(run.replace(batches=lethe.batches.Poisson(8)), torch.float32, 10.0)
    assert poisson == pytest.approx(5.0 * expected, rel=1e-9)  # a batch may hold all 40


def test_a_stated_precision_is_held_to_the_gradients_within_its_own_ball() -> None:
    """Of a ball a hundred times as large as the start, gradients are off by what they are at its edge."""
    stated = lethe.Precision(dtype="float64", parameter_norm=200.0, gradient_error=50.0, roundings=18.0)
    with pytest.raises(lethe.InputError, match="gradient_error >= 100"):
        precision_of(make_run(precision=stated), 1.0, 10, lambda norm: norm)
    enough = stated.model_copy(update={"gradient_error": 100.0})
    assert precision_of(make_run(precision=enough), 1.0, 10, lambda norm: norm) == enough


@pytest.mark.parametrize("averaged", [False, True])
def test_a_hidden_iterate_moves_in_float64_whatever_the_model(*, averaged: bool) -> None:
    """A step without noise, so that the move is known to the last bit; the model has it rounded."""
    changes = {"pass_weights": [0.0, 0.0, 0.0, 0.0, 1.0]} if averaged else {}
    model = nn.Linear(3, 2, bias=False)
    before, descent = model.weight.detach().double().clone(), descent_of(model, noise_at="pass_ends", **changes)
    sums = torch.full((2, 3), 1.0 / 3.0, dtype=torch.float64)
    descent(1, {model.weight: sums.clone()})
    assert torch.equal(descent.iterate["weight"], before - 0.5 / 8 * sums)
    assert torch.equal(model.weight.detach(), descent.iterate["weight"].float())
    assert not torch.equal(model.weight.detach().double(), descent.iterate["weight"])


def descent_of(model: nn.Module, **changes: Any) -> Descent:
    run = make_run(loss=lethe.losses.Convex(smoothness=1.0), clip_norm=1.0, **changes)
    return Descent(dict(model.named_parameters()), run, TrainingNoise(NetworkNoise(np.random.default_rng(0))))


def test_a_training_that_goes_on_in_a_coarser_model_counts_what_that_one_is_shown() -> None:
    descents = [descent_of(nn.Linear(3, 2, dtype=dtype)) for dtype in (torch.float64, torch.float32)]
    before = lethe.Precision(dtype="float64", parameter_norm=4000.0)
    for descent, error in zip(descents, (0.0, 2000.0 * 2.0**-24), strict=True):
        descent.load_state_dict({"precision": before.to_document()})
        assert descent.precision is not None
        assert descent.precision.parameter_norm == 4000.0
        assert descent.precision.gradient_error == pytest.approx(error, rel=1e-9)
    descents[0].load_state_dict({"precision": before.model_copy(update={"gradient_error": 0.5}).to_document()})
    assert descents[0].precision is not None
    assert descents[0].precision.gradient_error == 0.5


@pytest.mark.parametrize("autocast", [False, True])
def test_the_precision_of_a_network_counts_the_type_it_computes_in(*, autocast: bool) -> None:
    told = pytest.warns(UserWarning, match=r"model\.double\(\)") if autocast else nullcontext()
    with torch.autocast("cpu", enabled=autocast), told:
        precision = descent_of(nn.Linear(3, 2)).precision
    assert precision is not None
    unit = 2.0**-8 if autocast else 2.0**-24
    assert precision.gradient_error == pytest.approx(unit * radius_of(precision), rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "in_blocks", "products", "drawn", "summands"),
    [
        ({}, True, 256 + 3, 8.0, 8.0),
        ({}, False, 700, 8.0, 8.0),
        ({"batches": lethe.batches.Poisson(8), "records": 10_000}, True, 259, 8 + 12 * 8**0.5 + 100, 8 + 12 * 8**0.5 + 100),
        ({"batches": lethe.batches.Full(), "unit": "user"}, False, 700, 40.0, 2.0**24),
    ],
)
def test_the_bound_on_a_gradient_s_rounding(changes: dict[str, Any], in_blocks: bool, products: int, drawn: float, summands: float) -> None:
    """The formula of docs/theory.md, at R = 2, M = R^2/4, C = .5, k = 1."""
    run = make_run(loss=lethe.losses.Logistic(feature_norm=2.0), clip_norm=0.5, **changes)
    bound = 1.0 * (products + 8) * 30.0 + 2.0 * (1 + 16) + (700 + 2 + 32) * 0.5 + 2.0 * 0.5 * summands
    stated = gradient_rounding(run, require_linear_loss(run.loss), 700, 30.0, in_blocks=in_blocks)
    expected = 2.0**-53 * drawn / run.batch_size * bound
    assert expected <= stated == pytest.approx(expected, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("width", [60, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_is_off_by_no_more_than_is_stated(dtype: torch.dtype, width: int) -> None:
    """Rows whose scores cancel, at large parameters: float64 is off by a share of the bound, arithmetic in float32 would exceed it."""
    generator = np.random.default_rng(0)
    records, norm = 12, 1e4
    rows = generator.normal(size=(records, width)).astype(np.float32).astype(np.float64)
    rows /= 2.0 ** np.ceil(np.log2(np.linalg.norm(rows, axis=1, keepdims=True)))
    parameters = generator.normal(size=width)
    parameters -= rows.T @ np.linalg.lstsq(rows.T, parameters, rcond=None)[0]  # every score is 0, but for rounding
    parameters *= norm / np.linalg.norm(parameters)
    targets = generator.normal(size=records) * 0.1
    run = make_run(records=records, batches=lethe.batches.Full(), loss=SQUARES)
    stated = gradient_rounding(run, SQUARES, width, norm, in_blocks=True)
    model = LinearModel(SQUARES, torch.from_numpy(rows).to(dtype), torch.from_numpy(targets)[:, None], clip_norm=None)
    computed = model.clipped_gradient_sum(torch.from_numpy(parameters)[:, None], slice(0, records)).flatten().tolist()
    x, exact = [Fraction(float(value)) for value in parameters], [Fraction(0)] * width
    for row, target in zip(rows, targets, strict=True):  # residuals cut at 1, in rational numbers; no record's gradient is clipped
        u = [Fraction(float(value)) for value in row]
        residual = sum((one * other for one, other in zip(u, x, strict=True)), Fraction(0)) - Fraction(float(target))
        exact = [so_far + max(min(residual, Fraction(1)), Fraction(-1)) * one for so_far, one in zip(exact, u, strict=True)]
    off = np.linalg.norm([float((Fraction(one) - other) / records) for one, other in zip(computed, exact, strict=True)])
    assert 1e-5 * stated < off <= stated
    assert stated <= gradient_rounding(run, SQUARES, width, norm, in_blocks=False)
    coarse = rows.astype(np.float32) @ parameters.astype(np.float32)
    assert np.abs(coarse - rows @ parameters).max() > 10 * stated


def test_a_slope_of_counts_and_costs_is_off_by_no_more_than_is_counted() -> None:
    """One record with the feature 1, so that all else that is counted is a few roundings; against 50 digits, near targets of all sizes."""
    rng, worst = np.random.default_rng(0), 0.0
    for power, bound, cut in itertools.product((1.0, 1.3, 1.8, 2.0), (1e-4, 8.0, 1e5), (1e-3, 1.0, 1e3)):
        cut *= bound ** (2.0 - power) * (1.0 + 1e-9)
        loss = lethe.losses.Tweedie(feature_norm=1.0, power=power, target_bound=bound, cut=cut)
        run = make_run(records=2, batches=lethe.batches.Full(), loss=loss)
        targets = bound * np.exp(-rng.uniform(0.0, 13.0, 20))
        for target, score in zip(targets, np.log(targets) + rng.normal(size=20) * 0.5, strict=True):
            stated = run.batch_size / 2 * gradient_rounding(run, loss, 1, abs(score), in_blocks=True)
            model = LinearModel(loss, torch.ones((1, 1), dtype=torch.float64), torch.tensor([[target]]), clip_norm=None)
            computed = float(model.clipped_gradient_sum(torch.tensor([[score]]), slice(0, 1)))
            with mpmath.workdps(50):
                mean, p = mpmath.e ** mpmath.mpf(float(score)), mpmath.mpf(power)
                exact = max(min(mean ** (2 - p) - mpmath.mpf(float(target)) * mean ** (1 - p), mpmath.mpf(cut)), -mpmath.mpf(cut))
                off = abs(float(mpmath.mpf(computed) - exact))
            assert off <= stated
            worst = max(worst, off / stated)
            of_terms = 2.0 * loss.curvature_bound
            assert abs(computed) == cut or max(math.exp((2.0 - power) * score), target * math.exp((1.0 - power) * score)) <= of_terms
    assert worst > 1e-3


def test_what_a_slope_of_counts_and_costs_adds_is_the_formula_of_the_page() -> None:
    loss = lethe.losses.Tweedie(feature_norm=2.0, power=1.0, target_bound=8.0, cut=3.0)
    run = make_run(loss=loss, clip_norm=0.5)
    smoothness, norm = 4.0 * 11.0, 30.0
    bound = (
        smoothness * (3 + 8 + 6) * norm
        + 2.0 * (1 + 16)
        + (3 + 2 + 32) * 0.5
        + 2.0 * 0.5 * 8
        + (160 + 10 * math.log(8.0)) * smoothness / 2.0
    )
    assert gradient_rounding(run, loss, 3, norm, in_blocks=False) == pytest.approx(2.0**-53 * bound, rel=1e-9, abs=0.0)
