"""Every loss that fit_linear trains: bounds against records, tensors against arrays; along envelopes norms to the last bit."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import as_planned, with_fresh_noise
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import CLASSES, COLUMNS, LOSSES, make_loss, make_problem, make_run

import lethe
from lethe.accounting.certify import certify
from lethe.run.losses import LOSSES as REGISTERED
from lethe.run.losses import Softmax, parse_loss
from lethe.run.losses.linear import LinearLoss
from lethe.train.linear.gradients import LinearModel, losses_of, residuals_of
from lethe.train.linear.models import prepare_features, prepare_targets

KINDS = tuple(LOSSES)
CPU = torch.device("cpu")
DTYPES = (torch.float64, torch.float32)


def the_loss(kind: str, **changes: object) -> LinearLoss:
    loss = parse_loss(make_loss(kind, **changes))
    assert isinstance(loss, LinearLoss)
    return loss.for_classes(None if loss.numeric_targets or loss.scalar else CLASSES)


def drawn(loss: LinearLoss, count: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores, of which some are level and some far off, and targets."""
    rng = np.random.default_rng(seed)
    scores = scale * rng.choice([0.0, 0.1, 1.0, 10.0], size=(count, 1)) * rng.standard_normal((count, loss.outputs))
    targets = rng.standard_normal(count) if loss.target_classes is None else rng.integers(loss.target_classes, size=count)
    return scores, targets.astype(np.float64)


def column(targets: np.ndarray, loss: LinearLoss) -> torch.Tensor:
    return torch.tensor(targets[:, None]).to(torch.float64 if loss.numeric_targets else torch.int64)


@pytest.mark.sampled(2)
@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-3, 1.0, 1e3, 1e8]),
    far=st.sampled_from([1e-3, 1.0, 1e6]),
    intercept=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_record_has_a_longer_gradient_than_the_bound(
    kind: str, seed: int, size: float, far: float, intercept: bool, dtype: torch.dtype
) -> None:
    """Unclipped, as fit_linear computes them, squared in whole fractions."""
    loss = the_loss(kind, intercept=intercept)
    rng = np.random.default_rng(seed)
    problem = make_problem(kind, records=6, seed=seed % 1000)
    targets = far * problem.targets if loss.numeric_targets else problem.targets
    rows = prepare_features(size * problem.features, feature_norm=1.5, intercept=intercept, dtype=dtype, device=CPU).rows
    held = prepare_targets(targets, classes=loss.target_classes, records=6, device=CPU)
    model = LinearModel(loss, rows, held, clip_norm=None)
    parameters = torch.tensor(rng.choice([0.1, 100.0]) * rng.standard_normal((rows.shape[1], loss.outputs)))
    for record in range(6):
        share = model.clipped_gradient_sum(parameters, slice(record, record + 1)).flatten().tolist()
        assert sum(Fraction(entry) ** 2 for entry in share) <= Fraction(loss.derived_gradient_bound) ** 2


@pytest.mark.parametrize("kind", KINDS)
def test_some_record_reaches_the_bound(kind: str) -> None:
    """A bound, or a model, that were 1 % off would show; softmax cut at 0.7 included."""
    loss = the_loss(kind)
    rows = prepare_features(np.full((1, COLUMNS), 1e3), feature_norm=1.5, intercept=False, dtype=torch.float64, device=CPU).rows
    longest = 0.0
    # Certain of a wrong class, or far off; for one against the rest wrong in every score.
    for pattern in ([1.0], [-1.0]) if loss.outputs == 1 else ([-1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]):
        model = LinearModel(loss, rows, column(np.zeros(1), loss), clip_norm=None)
        parameters = 50.0 * torch.tensor(pattern, dtype=torch.float64).repeat(COLUMNS, 1)
        longest = max(longest, float(torch.linalg.vector_norm(model.clipped_gradient_sum(parameters, slice(0, 1)))))
    assert 0.999 * loss.derived_gradient_bound <= longest <= loss.derived_gradient_bound


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_and_arrays_agree(kind: str) -> None:
    loss = the_loss(kind)
    scores, targets = drawn(loss, 500, 3)
    exact, held = torch.tensor(scores), column(targets, loss)
    residuals, losses = residuals_of(loss, exact, held), losses_of(loss, exact, held)
    assert residuals.dtype == losses.dtype == torch.float64
    assert residuals.numpy() == pytest.approx(loss.slopes(scores, targets), abs=1e-12)
    assert losses.numpy() == pytest.approx(loss.values(scores, targets), rel=1e-11, abs=1e-12)
    assert (torch.linalg.vector_norm(residuals, dim=1) <= loss.slope_bound * (1 + 10 * np.finfo(np.float64).eps)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_trained_recorded_and_certified(kind: str) -> None:
    problem = make_problem(kind)
    run = make_run(kind, clip_norm=None)
    trained = fit_linear(run, problem.features, problem.targets, classes=problem.classes, seed=0)
    assert as_planned(trained.run) == run  # a number of classes that no bound depends on included: the run does not say it
    assert trained.model.weights.shape == (COLUMNS, the_loss(kind).outputs)
    certificate = certify(with_fresh_noise(trained.run), 1e-5)
    assert 0.0 < certificate.epsilon < np.inf
    assert certificate.theorem == "optimal-shift"  # of a convex loss the last iterate


def test_the_list_is_of_every_linear_loss() -> None:
    assert {kind for kind, loss in REGISTERED.items() if issubclass(loss, LinearLoss)} == set(KINDS)


def model_of(
    rows: np.ndarray, classes: np.ndarray, loss: LinearLoss, clip_norm: float, method: Any = "envelope", dtype: torch.dtype = torch.float64
) -> LinearModel:
    targets = prepare_targets(classes, classes=loss.target_classes, records=len(rows), device=torch.device("cpu"))
    return LinearModel(loss, torch.tensor(rows, dtype=dtype), targets, clip_norm=clip_norm, method=method)


@settings(max_examples=examples(20))
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 6),
    clip_norm=st.floats(1e-4, 2.0),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_no_record_has_more_than_the_clip_norm_by_a_single_bit(seed: int, classes: int, clip_norm: float, dtype: torch.dtype) -> None:
    """The squares of a record's gradient, added up as fractions."""
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((5, 3)) * rng.choice([1e-3, 0.5, 1.0], size=(5, 1)), rng.integers(classes, size=5)
    model = model_of(rows, labels, Softmax(feature_norm=5.0, classes=classes), clip_norm, dtype=dtype)
    parameters = torch.tensor(rng.choice([0.1, 3.0, 30.0]) * rng.standard_normal((3, classes)))
    for record in range(5):
        gradient = model.clipped_gradient_sum(parameters, slice(record, record + 1)).numpy().ravel()
        assert sum(Fraction(float(entry)) ** 2 for entry in gradient) <= Fraction(clip_norm) ** 2
    long = model_of(rows, labels, Softmax(feature_norm=5.0, classes=classes), math.inf, dtype=dtype)
    for record in range(5):
        whole, norm = long.clipped_gradient_sum(parameters, slice(record, record + 1)), np.linalg.norm(rows[record])
        if float(whole.norm()) > clip_norm * 1.001 and clip_norm / norm < 1.0:  # between 1 and sqrt 2 it counts as 1
            assert float(model.clipped_gradient_sum(parameters, slice(record, record + 1)).norm()) >= clip_norm * (1 - 3e-5)


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10**6), clip_norm=st.floats(0.02, 1.5), size=st.floats(0.1, 20.0), apart=st.floats(1e-5, 5.0))
def test_a_step_brings_no_two_models_apart(seed: int, clip_norm: float, size: float, apart: float) -> None:
    """Weights in random places, records of different norms, step size 2/M of the envelope; plain clipping has no such promise."""
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((8, 3)), rng.integers(4, size=8)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    loss = Softmax(feature_norm=1.0, classes=4)
    model, step = model_of(rows, labels, loss, clip_norm), 2.0 / loss.envelope_smoothness(clip_norm)
    weights = torch.tensor(size * rng.standard_normal((3, 4)))
    other = weights + apart * torch.tensor(rng.standard_normal((3, 4)))

    def moved(point: torch.Tensor) -> torch.Tensor:
        return point - step / 8 * model.clipped_gradient_sum(point, slice(None))

    assert float((moved(weights) - moved(other)).norm()) <= float((weights - other).norm()) * (1 + 1e-12) + 2 * step * clip_norm * 1e-9


def test_at_the_loss_s_own_bound_nothing_is_searched_or_cut() -> None:
    """The clip norm is the bound itself, rounded inward in training: still no envelope of another bound."""
    problem, bound = make_problem("softmax_regression"), Softmax(feature_norm=1.5).derived_gradient_bound
    start = 20.0 * np.eye(4, 3)
    whole, cut = (
        fit_linear(make_run(clip_norm=norm, clip_method="envelope"), problem.features, problem.targets, classes=3, seed=0, initial=start)
        for norm in (bound, 0.99 * bound)
    )
    plain = fit_linear(make_run(clip_norm=bound), problem.features, problem.targets, classes=3, seed=0, initial=start)
    np.testing.assert_array_equal(whole.model.weights, plain.model.weights)
    assert not np.allclose(cut.model.weights, plain.model.weights, rtol=0, atol=0.02)


def test_a_record_moves_the_model_by_its_bound_and_no_more() -> None:
    """From a start where the envelope is linear, one record zeroed out: C lambda / b a pass, to nine digits (1 % of C would show), and no
    more than that and the rounding that is counted."""
    rows = np.tile([0.6, 0.8], (8, 1))
    labels, start = np.zeros(8, dtype=int), np.outer([0.6, 0.8], [-40.0, 40.0])
    run = lethe.Run(
        records=8, batches={"design": "cyclic", "size": 4}, passes=3, step_size=2.0, clip_norm=0.2, clip_method="envelope",
        noise_multiplier=1e-9, loss=Softmax(feature_norm=1.0), release="last", neighbours="zero_out",
    )  # fmt: skip
    other = np.where(np.arange(8)[:, None] == 7, 0.0, rows)
    one, two = (fit_linear(run, table, labels, classes=2, initial=start, seed=0) for table in (rows, other))
    moved = np.linalg.norm(one.model.weights - two.model.weights)
    assert moved == pytest.approx(3 * run.sensitivities[0], rel=1e-9)
    assert one.run.rounding_errors is not None
    assert moved <= 3 * run.sensitivities[0] + one.run.rounding_errors.sum()
    assert run.sensitivities[0] == 2.0 * 0.2 / 4
