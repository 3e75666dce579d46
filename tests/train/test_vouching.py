"""What every way to train vouches for and declares, of the weights that it released; convex heads, and backbones that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments, fit_head, fit_linear
from helpers import as_planned, with_fresh_noise
from networks import Loop
from problems import FEATURES, INPUTS, make_backbone, make_head, make_head_run, make_records, weights_of
from problems import HEAD_KINDS as KINDS
from problems import HEAD_RECORDS as RECORDS
from problems import fitted_head as fitted
from torch import Tensor, nn

import lethe
from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck
from lethe.calculus.guarantees import GDP
from lethe.errors import HypothesisError, InputError
from lethe.run.losses import parse_loss
from lethe.train import Callback, fit
from lethe.train.core.training_records import network_record
from lethe.train.data.map_style import MapStyleSource

DELTA = 1e-3
MANY, MOST_WORDS = 40, 15
ROWS = np.random.default_rng(0).normal(size=(MANY, 3)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
USERS = np.arange(MANY) // 2
NETWORK = {"start", "model", "memory", "loss", "constants"}


class Private(Callback):
    private = True


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {"records": MANY, "batches": lethe.batches.Poisson(6), "steps": 2, "step_size": 0.1, "clip_norm": 1.0}
    return lethe.Run(**{**fields, "noise_multiplier": 5.0, "release": "all", **changes})


def last_run(**changes: Any) -> lethe.Run:
    loss = lethe.losses.Softmax(feature_norm=1.0)
    return run_of(**{"batches": lethe.batches.Cyclic(8), "steps": 20, "release": "last", "clip_norm": None, "loss": loss, **changes})


def trained(run: lethe.Run | None = None, data: Any = (ROWS, LABELS), adam: bool = False, **options: Any) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    own = {"optimizer": torch.optim.AdamW(model.parameters())} if adam else {}
    return fit(model, nn.CrossEntropyLoss(reduction="none"), data, run or run_of(), **own, **arguments(options))


def looped(**options: Any) -> Loop:
    run = run_of(**({"unit": "user", "records": MANY // 2} if "users" in options else {}))
    loop = Loop(run, model=nn.Linear(3, 2), data=(ROWS, LABELS), batch_generator=None, noise_generator=None, **options)
    loop.whole()
    return loop


def linear(run: lethe.Run | None = None, **options: Any) -> Any:
    return fit_linear(run or last_run(), ROWS, LABELS, classes=2, **options)


def head() -> Any:
    backbone = nn.Sequential(nn.Linear(3, 4), nn.Tanh()).requires_grad_(False)
    return fit_head(backbone, nn.Linear(4, 2, bias=False), (ROWS, LABELS), last_run())


def by_item(**options: Any) -> Any:
    return trained(data=MapStyleSource(list(zip(torch.tensor(ROWS), torch.tensor(LABELS), strict=True))), **options)


def evidence(certificate: lethe.Certificate) -> dict[str, str]:
    return {finding.name: finding.evidence for finding in certificate.findings}


def names(certificate: lethe.Certificate, kind: str) -> set[str]:
    return {name for name, found in evidence(certificate).items() if found == kind}


def test_fit_seals_the_state_dict(tmp_path: Path) -> None:
    fitted = trained()
    certificate = lethe.certify(fitted, DELTA)
    assert certificate.epsilon == lethe.certify(fitted.run, DELTA).epsilon
    assert evidence(certificate)["fresh noise"] == "enforced"
    torch.save(fitted.model.state_dict(), tmp_path / "model.pt")
    assert lethe.verify(certificate, weights=tmp_path / "model.pt").yes
    with torch.no_grad():
        next(fitted.model.parameters())[0, 0] += 1e-3
    # What was changed after training is not what was sealed, and a certificate that is asked for now does not seal it.
    assert not lethe.verify(lethe.certify(fitted, DELTA), weights=fitted.model.state_dict()).yes


def test_an_engine_seals_the_weights_of_the_moment_it_is_asked() -> None:
    loop = looped()
    engine, record = loop.engine, loop.engine.record()
    assert record.run == engine.recorded_run()
    assert lethe.verify(lethe.certify(record, DELTA), weights=loop.model.state_dict()).yes
    engine.close()
    loop.model.weight.grad = torch.ones(2, 3)  # anybody's, from now on
    loop.optimizer.step()
    with pytest.raises(lethe.InputError, match="it needs a"):
        lethe.certify(engine, DELTA)  # pyright: ignore[reportArgumentType]


def test_fit_linear_enforces_what_features_decide(tmp_path: Path) -> None:
    fitted = linear()
    certificate = lethe.certify(fitted, DELTA)
    found = evidence(certificate)
    assert (found["gradient bound"], found["curvature"], found["release"]) == ("enforced", "enforced", "declared")
    assert "every record's features are projected to norm 1 [by lethe.train]" in certificate.explain()
    np.savez(tmp_path / "w.npz", weights=fitted.model.weights, intercept=fitted.model.intercept)
    assert lethe.verify(certificate, weights=tmp_path / "w.npz").yes
    assert not lethe.verify(certificate, weights={"weights": fitted.model.weights * 2, "intercept": fitted.model.intercept}).yes
    assert evidence(lethe.certify(fitted.run, DELTA))["gradient bound"] == "declared"


def test_the_secrecy_of_batches_is_enforced_where_they_are_drawn_inside() -> None:
    run = last_run(batches=lethe.batches.ShuffledOnce(10))
    assert evidence(lethe.certify(linear(run), DELTA))["secrecy"] == "enforced"
    certificate = lethe.certify(linear(run, batch_generator=torch.Generator().manual_seed(1)), DELTA)
    assert evidence(certificate)["secrecy"] == "declared"
    assert certificate.epsilon == float("inf")


def test_a_budget_filter_that_ran_is_enforced() -> None:
    fitted = trained(run_of(noise_budget=1.0))
    assert evidence(lethe.certify(fitted.run, DELTA, theorems=["budget-filter"]))["budget filter"] == "declared"
    certificate = lethe.certify(fitted, DELTA, theorems=["budget-filter"])
    assert evidence(certificate)["budget filter"] == "enforced"
    recheck(certificate)


def test_a_head_is_sealed_alone_and_with_its_backbone() -> None:
    fitted = head()
    certificate, top = lethe.certify(fitted, DELTA), fitted.model[2]
    numbers = {"weights": top.weight.detach().double().numpy().T, "intercept": np.zeros(2)}
    for weights in (fitted.model.state_dict(), top.state_dict(), numbers):
        assert lethe.verify(certificate, weights=weights).yes
    assert not lethe.verify(certificate, weights=fitted.model[0].state_dict()).yes


def test_a_moving_average_is_sealed_beside_the_model() -> None:
    fitted = trained(ema=0.9)
    certificate, averaged = lethe.certify(fitted, DELTA), dict(fitted.averaged)
    others = {name: found + 1 for name, found in averaged.items()}
    for weights, own in ((fitted.model.state_dict(), True), (averaged, True), (others, False)):
        assert lethe.verify(certificate, weights=weights).yes == own


def test_a_model_without_plain_numbers_is_trained_and_not_sealed() -> None:
    model = nn.Linear(3, 2)
    model.register_buffer("graph", torch.zeros(2, 2).to_sparse())
    record = network_record(run_of(), model, ())
    assert record.released == ()
    with pytest.raises(lethe.InputError, match="certify the run alone"):
        lethe.certify(record, DELTA)


TRAININGS: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "fit": (lambda _: trained(), {"secrecy", *NETWORK}),
    "public callback": (lambda _: trained(callbacks=Callback()), {"secrecy", *NETWORK}),
    "private callback": (lambda _: trained(callbacks=Private()), {"secrecy", "callbacks", *NETWORK}),
    "fit with Adam": (lambda _: trained(adam=True), {"secrecy", "optimiser", "learning rate", *NETWORK}),
    "fit with checkpoints": (lambda path: trained(checkpoints=path / "kept"), {"secrecy", *NETWORK}),
    "fit, unchecked": (lambda _: trained(isolation="declared"), {"secrecy", "checks", *NETWORK}),
    "fit, enforced": (lambda _: trained(isolation="enforced"), {"secrecy", "start", "memory"}),
    "fit by item, enforced": (lambda _: by_item(isolation="enforced"), {"secrecy", "start", "memory", "padding", "data"}),
    "fit by item": (lambda _: by_item(), {"secrecy", "data", *NETWORK}),
    "fit, cyclic": (lambda _: trained(run_of(batches=lethe.batches.Cyclic(6))), NETWORK),
    "fit, last release": (lambda _: trained(run_of(batches=lethe.batches.Cyclic(6), release="last")), NETWORK),
    "users": (
        lambda _: trained(run_of(unit="user", records=MANY // 2), users=USERS),
        {"secrecy", "users", "user of a record", "list of ids", *NETWORK},
    ),
    "loop": (lambda _: looped().engine.record(), {"secrecy", "loop", "replay", "optimiser", "learning rate", *NETWORK}),
    "loop of users": (
        lambda _: looped(users=USERS).engine.record(),
        {"secrecy", "loop", "replay", "order", "optimiser", "learning rate", "users", "user of a record", "list of ids", *NETWORK},
    ),
    "linear model": (lambda _: linear(), {"release"}),
    "linear model, private callback": (lambda _: linear(callbacks=Private()), {"release", "callbacks"}),
    "head": (lambda _: head(), {"release", "public backbone", "records apart", "memory", "start"}),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_declared_are_the_lines_that_apply_each_in_few_words(name: str, tmp_path: Path) -> None:
    train, expected = TRAININGS[name]
    certificate = lethe.certify(train(tmp_path), DELTA)
    declared = [finding.words for finding in certificate.findings if finding.evidence == "declared"]
    assert names(certificate, "declared") == expected
    assert [words for words in declared if len(words.split()) > MOST_WORDS] == []
    assert len({*declared}) == len(declared)


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
    assert 0 < result.diagnostics.projected == (lengths > 0.9).sum() < RECORDS
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_rests_on_nothing_declared_and_is_about_the_last_iterate(kind: str) -> None:
    result = fitted(head=make_head(kind), run=make_head_run(kind), data=make_records(kind))
    certificate = certify(replace(result.record, run=with_fresh_noise(result.run)), 1e-5)
    assert certificate.theorem == "optimal-shift"
    # Nobody looks at iterates, nor did before: that is not for training to enforce.
    assert names(certificate, "declared") == {"release", "public backbone", "records apart", "memory", "start"}
    # A pass costs one step; noise 2 for touches of 2.
    assert certificate.epsilon == pytest.approx(GDP(math.sqrt(3)).epsilon(1e-5), rel=1e-9)
    declared = make_head_run(kind).replace(loss=parse_loss({**result.run.loss.to_document(), "evidence": "declared"}))
    moved = names(certify(declared, 1e-5), "declared") - {"release"}
    assert moved
    assert moved <= names(certificate, "enforced")
    assert fitted(head=make_head(kind), run=declared, data=make_records(kind)).run == result.run
    assert (result.declared, result.checked) == (tuple(claim.detail for claim in result.record.declared), "checked")
    assert all(line in str(result) for line in result.declared)


def test_of_features_neither_the_physical_size_nor_that_they_are_written_over_changes_the_result() -> None:
    inner, kept, heads = make_backbone(), dict[torch.Size, Tensor](), [make_head() for _ in range(2)]

    def over(inputs: Tensor) -> Tensor:
        features = inner(inputs)
        return kept.setdefault(features.shape, torch.empty_like(features)).copy_(features)

    for head, backbone in zip(heads, (inner, Bare(over)), strict=True):
        fit_head(backbone, head, make_records(), make_head_run(), seed=5, physical_size=4)
    assert torch.equal(heads[0].weight, heads[1].weight)
    for physical_size in (1, 2, 10, 1000):
        weights = weights_of(fitted(head=make_head(), physical_size=physical_size))
        np.testing.assert_allclose(weights, heads[0].weight.detach().numpy().T, rtol=1e-9)


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


def test_random_features_written_buffers_and_a_head_of_the_backbone_s_are_refused() -> None:
    with pytest.raises(HypothesisError, match="other features the second time"):
        fitted(Bare(lambda x: nn.functional.dropout(x, 0.5)))

    class Counting(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked += len(input)
            return input[:, :FEATURES]

    with pytest.raises(HypothesisError, match="num_batches_tracked"):
        fitted(Counting(INPUTS).requires_grad_(False))
    top = make_head().requires_grad_(False)
    with pytest.raises(InputError, match="shares memory with the backbone"):
        fitted(nn.Sequential(nn.Linear(INPUTS, FEATURES).double().requires_grad_(False), top), top)


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
