"""Convex heads on frozen features: what is trained and certified, and which backbones, heads and data are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_head, fit_linear
from helpers import as_planned, with_fresh_noise
from problems import FEATURES, INPUTS, make_backbone, make_head, make_head_run, make_records, weights_of
from problems import HEAD_KINDS as KINDS
from problems import HEAD_RECORDS as RECORDS
from problems import fitted_head as fitted
from torch import Tensor, nn

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.certificates.certificate import Certificate
from lethe.errors import HypothesisError, InputError
from lethe.run.losses import parse_loss


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_fit_linear_on_the_features_and_the_model_predicts_as_trained(kind: str, intercept: bool, dtype: torch.dtype) -> None:
    backbone, head, run = make_backbone(dtype), make_head(kind, intercept, dtype), make_head_run(kind, intercept)
    inputs, targets = make_records(kind, dtype)
    start = [head.weight.detach().clone().T] + ([head.bias.detach().clone()[None]] if intercept else [])
    result = fit_head(backbone, head, (inputs, targets), run, seed=5, physical_size=RECORDS)
    backbone.eval()
    features = backbone(inputs).double().numpy()
    lengths = np.linalg.norm(features, axis=1)
    assert (lengths > 0.9).any()
    assert (lengths < 0.9).any()
    assert result.diagnostics.projected == (lengths > 0.9).sum()
    linear = fit_linear(
        run, features, targets.numpy(), classes=3 if kind == "softmax_regression" else None, seed=5, initial=torch.cat(start), dtype=dtype
    )
    assert (weights_of(result) == linear.model.weights).all()
    assert as_planned(result.run) == as_planned(linear.run) == run
    assert (linear.model.weights == head.weight.detach().double().numpy().T).all()
    assert head.in_features == FEATURES
    if intercept:
        assert (head.bias.detach().double().numpy() == linear.model.intercept).all()
        assert (linear.model.intercept != start[1].double().numpy()).any()
    assert not result.model.training
    scores = result.model(inputs).detach()
    assert scores.dtype == dtype
    by_hand = (features * np.minimum(1.0, 0.9 / lengths)[:, None]) @ linear.model.weights + linear.model.intercept
    assert np.abs(scores.double().numpy() - by_hand).max() < (1e-12 if dtype == torch.float64 else 1e-5)
    decided = {"softmax_regression": scores.argmax(1), "logistic_regression": (scores[:, 0] > 0).long()}.get(kind, scores[:, 0])
    assert decided.double().numpy() == pytest.approx(linear.model.predict(features), abs=1e-12 if dtype == torch.float64 else 1e-5)


def evidences(certificate: Certificate, evidence: str) -> set[str]:
    return {finding.name for finding in certificate.findings if finding.evidence == evidence}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_rests_on_nothing_declared_and_is_about_the_last_iterate(kind: str) -> None:
    result = fitted(head=make_head(kind), run=make_head_run(kind), data=make_records(kind))
    certificate = certify(replace(result.record, run=with_fresh_noise(result.run)), 1e-5)
    assert certificate.theorem == "optimal-shift"
    # Nobody looks at iterates, nor did before: that is not for training to enforce.
    assert evidences(certificate, "declared") == {"release", "public backbone", "records apart", "memory", "start"}
    # A pass costs one step; noise 2 for touches of 2.
    assert certificate.epsilon == pytest.approx(GDP(math.sqrt(3)).epsilon(1e-5), rel=1e-9)
    declared = make_head_run(kind).replace(loss=parse_loss({**result.run.loss.to_document(), "evidence": "declared"}))
    moved = evidences(certify(declared, 1e-5), "declared") - {"release"}
    assert moved
    assert moved <= evidences(certificate, "enforced")
    assert fitted(head=make_head(kind), run=declared, data=make_records(kind)).run == result.run
    assert result.declared == tuple(claim.detail for claim in result.record.declared)
    assert result.checked == "checked"
    assert all(line in str(result) for line in result.declared)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [1, 2, 10, 1000])
def test_the_result_does_not_depend_on_the_physical_size(physical_size: int) -> None:
    expected = weights_of(fitted(physical_size=RECORDS))
    assert weights_of(fitted(physical_size=physical_size)) == pytest.approx(expected, rel=1e-9)


def test_features_that_are_written_over_at_the_next_batch_are_kept_as_they_were() -> None:
    inner, kept, heads = make_backbone(), dict[torch.Size, Tensor](), [make_head() for _ in range(2)]

    def over(inputs: Tensor) -> Tensor:
        features = inner(inputs)
        return kept.setdefault(features.shape, torch.empty_like(features)).copy_(features)

    for head, backbone in zip(heads, (inner, Bare(over)), strict=True):
        fit_head(backbone, head, make_records(), make_head_run(), seed=5, physical_size=4)
    assert torch.equal(heads[0].weight, heads[1].weight)


class Bare(nn.Module):
    """A function of a batch as a backbone."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)[:, :FEATURES]


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x - x.mean(0),
    "maximum": lambda x: x / x.abs().max(),
    "next": lambda x: x.roll(1, dims=0),
    "far": lambda x: x + 0.1 * x.roll(16, dims=0),
    "first": lambda x: x + x[:1],
    "sums": lambda x: x.cumsum(0),
    "backwards": lambda x: x.flip(0),
    "two records": lambda x: torch.cat([x[:7], x[7:8] + x[12:13], x[8:]]) if len(x) > 12 else x,
    "batch norm": nn.BatchNorm1d(INPUTS, track_running_stats=False, affine=False),
}


@pytest.mark.parametrize("mixing", MIXING.values(), ids=MIXING)
def test_a_backbone_in_which_records_meet_is_refused(mixing: Callable[[Tensor], Tensor]) -> None:
    head = make_head()
    with pytest.raises(HypothesisError, match="features of some records change when other records do"):
        fitted(Bare(mixing), head)
    assert torch.equal(head.weight, make_head().weight)


def test_random_features_and_written_buffers_are_refused() -> None:
    with pytest.raises(HypothesisError, match="other features the second time"):
        fitted(Bare(lambda x: nn.functional.dropout(x, 0.5)))

    class Counting(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked += len(input)
            return input[:, :FEATURES]

    with pytest.raises(HypothesisError, match="num_batches_tracked"):
        fitted(Counting(INPUTS).requires_grad_(False))


class Fitting(nn.Module):
    """Keeps the mean of the first batch it sees, in an attribute that is no buffer, and that its copies are without."""

    state: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        self.state = inputs.double().mean() if self.state is None else self.state
        return inputs.double().expand(-1, INPUTS)[:, :FEATURES] - self.state

    def __deepcopy__(self, memo: dict[int, Any]) -> Fitting:
        return Fitting()


@pytest.mark.parametrize("physical_size", [1, 10, 256])
@pytest.mark.parametrize("whole", [False, True])
def test_a_backbone_that_keeps_its_first_batch_is_refused(physical_size: int, whole: bool) -> None:
    inputs = torch.arange(RECORDS)[:, None] if whole else make_records()[0]
    with pytest.raises(HypothesisError, match="other features when it saw others before"):
        fitted(Fitting(), data=(inputs, make_records()[1]), physical_size=physical_size)


def test_a_head_that_is_part_of_the_backbone_is_refused() -> None:
    head = make_head().requires_grad_(False)
    with pytest.raises(InputError, match="shares memory with the backbone"):
        fitted(nn.Sequential(nn.Linear(INPUTS, FEATURES).double().requires_grad_(False), head), head)
