"""The oracle is torch.autograd, one record at a time."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from problems import CLASSES, COLUMNS, RECORDS, make_problem, make_run

from lethe.errors import InputError
from lethe.run.losses.linear import LinearLoss, require_linear_loss
from lethe.train.linear.gradients import LinearModel
from lethe.train.linear.loop import prepared
from lethe.train.linear.models import Linear, prepare_features, prepare_targets

KINDS = ("softmax_regression", "logistic_regression", "least_squares")
CPU = torch.device("cpu")


def pieces(kind: str, intercept: bool) -> tuple[torch.Tensor, torch.Tensor, LinearLoss]:
    problem = make_problem(kind)
    rows = prepare_features(problem.features, feature_norm=1.5, intercept=intercept, dtype=torch.float64, device=CPU).rows
    targets = prepare_targets(problem.targets, classes=problem.classes, records=RECORDS, device=CPU)
    return rows, targets, require_linear_loss(make_run(kind).loss).for_classes(problem.classes)


def textbook_loss(kind: str, scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """From torch.nn.functional, not from the code under test."""
    functional = torch.nn.functional
    if kind == "softmax_regression":
        return functional.cross_entropy(scores, target)
    if kind == "logistic_regression":
        return functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype))
    return functional.huber_loss(scores, target, delta=0.8)


def autograd_gradient(kind: str, row: torch.Tensor, target: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    leaf = parameters.clone().requires_grad_()
    textbook_loss(kind, row @ leaf, target.squeeze() if kind == "softmax_regression" else target).backward()
    assert leaf.grad is not None
    return leaf.grad


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("clip_norm", [None, 0.3, 100.0])  # no clipping, most records clipped, none clipped
def test_the_clipped_sum_is_the_sum_of_clipped_autograd_gradients(kind: str, intercept: bool, clip_norm: float | None) -> None:
    rows, targets, loss = pieces(kind, intercept)
    parameters = torch.randn(rows.shape[1], loss.outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = LinearModel(loss, rows, targets, clip_norm=clip_norm)
    batch = torch.tensor([1, 4, 7, 22, 9])
    expected = torch.zeros_like(parameters)
    clipped = 0
    for record in batch.tolist():
        gradient = autograd_gradient(kind, rows[record], targets[record], parameters)
        norm = float(torch.linalg.vector_norm(gradient))
        clipped += clip_norm is not None and norm > clip_norm
        expected += gradient * min(1.0, (clip_norm or np.inf) / norm)
    if clip_norm == 0.3:
        assert clipped >= 2  # otherwise the case would test nothing
    got = model.clipped_gradient_sum(parameters, batch)
    assert got.numpy() == pytest.approx(expected.numpy(), rel=1e-12, abs=1e-13)  # rounding of five products and a softmax


def test_slices_and_indices_are_the_same_batch() -> None:
    rows, targets, loss = pieces("softmax_regression", False)
    model = LinearModel(loss, rows, targets, clip_norm=0.3)
    parameters = torch.ones(COLUMNS, loss.outputs, dtype=torch.float64)
    by_slice = model.clipped_gradient_sum(parameters, slice(5, 10))
    assert torch.equal(by_slice, model.clipped_gradient_sum(parameters, torch.arange(5, 10)))


def test_gradients_and_starts_are_stored_by_outputs() -> None:
    # Otherwise BLAS reads a tall table column by column: 2 to 18 times as slow for 2 to 10 outputs.
    rows, targets, loss = pieces("softmax_regression", intercept=False)
    ready = prepared(Linear(classes=CLASSES), (rows.numpy(), targets.flatten().numpy()), make_run("softmax_regression"))
    gradient = ready.model.clipped_gradient_sum(ready.start, slice(0, RECORDS))
    assert gradient.shape == ready.start.shape == (rows.shape[1], loss.outputs)
    assert (ready.start - gradient).T.is_contiguous()


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_batch_and_a_record_without_features_add_nothing(kind: str) -> None:
    rows, targets, loss = pieces(kind, False)
    rows = rows.clone()
    rows[3] = 0.0
    model = LinearModel(loss, rows, targets, clip_norm=0.3)
    parameters = torch.ones(COLUMNS, loss.outputs, dtype=torch.float64)
    for batch in (torch.tensor([], dtype=torch.int64), torch.tensor([3])):
        assert (model.clipped_gradient_sum(parameters, batch) == 0).all()


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "document", [{"kind": "unknown", "gradient_bound": 1.0}, {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}]
)
def test_losses_that_cannot_be_enforced_are_refused(document: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a loss of a linear model"):
        require_linear_loss(make_run(loss=document).loss)
