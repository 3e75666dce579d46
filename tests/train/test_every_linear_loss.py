"""Every loss that fit_linear trains: its class against differences, its bounds against records, its tensors against its arrays."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import as_planned, with_fresh_noise
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import CLASSES, COLUMNS, LOSSES, make_loss, make_problem, make_run

from lethe.accounting.certify import certify
from lethe.run.losses import LOSSES as REGISTERED
from lethe.run.losses import parse_loss
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
