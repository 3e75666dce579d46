"""Features, targets and gradients of linear models: finite, projected, in chunks; clipped as autograd says."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import COLUMNS, RECORDS, make_problem, make_run

import lethe
from lethe.errors import InputError
from lethe.run.losses import LeastSquares, Logistic, Softmax
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.train.linear import models as features
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.models import Features, LinearPredictor, prepare_features, prepare_targets

CPU = torch.device("cpu")


def prepared(values: object, intercept: bool = False, dtype: torch.dtype = torch.float64) -> Features:
    return prepare_features(values, feature_norm=1.5, intercept=intercept, dtype=dtype, device=CPU)


def targets_of(values: object, classes: int | None, records: int = 3) -> torch.Tensor:
    return prepare_targets(values, classes=classes, records=records, device=CPU)


def test_lists_arrays_and_tensors_are_read() -> None:
    read_only = np.eye(2)
    read_only.flags.writeable = False
    for values in ([[1, 0], [0, 1]], np.eye(2, dtype=np.float32), torch.eye(2), np.eye(2, dtype=bool), read_only):
        assert (prepared(values).rows.numpy() == np.eye(2)).all()
    assert targets_of([0.0, 2.0, 1.0], 3).tolist() == [[0], [2], [1]]  # class numbers become integers, real targets stay
    assert targets_of([0.5, -2.0, 1.0], None).tolist() == [[0.5], [-2.0], [1.0]]


def test_the_number_of_classes_is_public_and_never_guessed() -> None:
    softmax, logistic = Softmax(feature_norm=1.0), Logistic(feature_norm=1.0)
    assert softmax.for_classes(10).outputs == softmax.for_classes(10).for_classes(None).target_classes == 10
    assert logistic.for_classes(None).target_classes == logistic.for_classes(2).target_classes == 2
    assert LeastSquares(feature_norm=1.0, residual_bound=1.0).for_classes(None).target_classes is None
    with pytest.raises(InputError, match="classes"):
        assert softmax.outputs


@pytest.mark.parametrize("intercept", [False, True])
def test_chunks_change_nothing_and_count_their_rows(intercept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    whole = prepared(table, intercept, torch.float32)
    monkeypatch.setattr(features, "_CHUNK", 21)  # seven rows at a time
    parts = prepared(torch.from_numpy(table), intercept, torch.float32)
    assert torch.equal(parts.rows, whole.rows)
    assert parts.projected == whole.projected
    table[23, 1] = np.nan
    with pytest.raises(InputError, match=r"features\[23, 1\]: got nan; .*row 23"):
        prepared(table, intercept, torch.float32)


KINDS = ("softmax_regression", "logistic_regression", "least_squares")


def pieces(kind: str, intercept: bool) -> tuple[torch.Tensor, torch.Tensor, LinearLoss]:
    problem = make_problem(kind)
    targets = targets_of(problem.targets, problem.classes, RECORDS)
    return prepared(problem.features, intercept).rows, targets, require_linear_loss(make_run(kind).loss).for_classes(problem.classes)


def textbook_loss(kind: str, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """From torch.nn.functional, not from the code under test."""
    functional = torch.nn.functional
    if kind == "softmax_regression":
        return functional.cross_entropy(scores, target.squeeze())
    if kind == "logistic_regression":
        return functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
    return functional.huber_loss(scores, target, delta=0.8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("clip_norm", [None, 0.3, 100.0])  # no clipping, most records clipped, none clipped
def test_the_clipped_sum_is_the_sum_of_clipped_autograd_gradients(kind: str, intercept: bool, clip_norm: float | None) -> None:
    rows, targets, loss = pieces(kind, intercept)
    rows[3] = 0.0
    parameters = torch.randn(rows.shape[1], loss.outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = LinearModel(loss, rows, targets, clip_norm=clip_norm)
    batch = torch.tensor([1, 4, 7, 22, 9])
    leaf, expected, clipped = parameters.clone().requires_grad_(), torch.zeros_like(parameters), 0
    for record in batch.tolist():
        (gradient,) = torch.autograd.grad(textbook_loss(kind, rows[record] @ leaf, targets[record]), leaf)
        norm = float(torch.linalg.vector_norm(gradient))
        clipped += clip_norm is not None and norm > clip_norm
        expected += gradient * min(1.0, (clip_norm or np.inf) / norm)
    if clip_norm == 0.3:
        assert clipped >= 2  # otherwise the case would test nothing
    got = model.clipped_gradient_sum(parameters, batch)
    assert got.numpy() == pytest.approx(expected.numpy(), rel=1e-12, abs=1e-13)  # rounding of five products and a softmax
    for nothing in (torch.tensor([], dtype=torch.int64), torch.tensor([3])):  # an empty batch, and a record without features
        assert (model.clipped_gradient_sum(parameters, nothing) == 0).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    clip_norm=st.floats(1e-6, 1.0),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_no_record_contributes_more_than_the_clip_norm_in_exact_arithmetic(
    seed: int, clip_norm: float, kind: str, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    _, targets, loss = pieces(kind, False)
    rows = torch.randn(RECORDS, COLUMNS, generator=generator, dtype=dtype) * 100
    model = LinearModel(loss, rows, targets, clip_norm=clip_norm)
    parameters = torch.randn(COLUMNS, loss.outputs, generator=generator, dtype=torch.float64)
    for record in range(5):
        share = model.clipped_gradient_sum(parameters, slice(record, record + 1)).flatten().tolist()
        assert sum(Fraction(entry) ** 2 for entry in share) <= Fraction(clip_norm) ** 2


def test_a_number_is_predicted_by_weights_and_intercept_to_the_last_digits() -> None:
    features = np.random.default_rng(0).normal(size=(20, 3))
    loss = lethe.losses.LeastSquares(feature_norm=100.0, residual_bound=1.0, intercept=True)
    model = LinearPredictor(weights=np.array([[1.0], [-2.0], [0.5]]), intercept=np.array([0.25]), loss=loss)
    assert model.predict(features) == pytest.approx(features @ [1.0, -2.0, 0.5] + 0.25, rel=1e-12)
