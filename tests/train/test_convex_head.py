"""Convex heads on frozen features: what is trained, that it is enforced, and which backbones and heads are refused."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from networks import one_thread
from torch import Tensor, nn

from lethe.accounting.certify import certify
from lethe.calculus.guarantees import GDP
from lethe.certificates.certificate import Certificate
from lethe.errors import BudgetExceededError, HypothesisError, InputError, LetheError
from lethe.run.losses import parse_loss
from lethe.run.run import Run
from lethe.train import Fitted, fit_head, fit_linear

RECORDS, INPUTS, FEATURES = 37, 6, 5
KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "softmax_regression": ({}, 3),
    "logistic_regression": ({}, 1),
    "least_squares": ({"residual_bound": 0.8}, 1),
}


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


def make_backbone(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        backbone = nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, FEATURES)).to(dtype)
        backbone(torch.randn(50, INPUTS, dtype=dtype) * 2 + 1)  # running statistics of other, public records
    return backbone.requires_grad_(False)


def make_head(kind: str = "softmax_regression", bias: bool = True, dtype: torch.dtype = torch.float64) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Linear(FEATURES, KINDS[kind][1], bias=bias, dtype=dtype)


def make_records(kind: str = "softmax_regression", dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(3)
    classes = {"softmax_regression": 3, "logistic_regression": 2}.get(kind)
    targets = random.normal(size=RECORDS) if classes is None else random.integers(classes, size=RECORDS)
    return torch.tensor(random.normal(size=(RECORDS, INPUTS)), dtype=dtype), torch.tensor(targets)


def make_head_run(kind: str = "softmax_regression", intercept: bool = True, **changes: Any) -> Run:
    loss = {"kind": kind, "feature_norm": 0.9, "intercept": intercept, "evidence": "enforced", **KINDS[kind][0]}
    fields: dict[str, Any] = {
        "records": RECORDS,
        "batches": {"design": "cyclic", "size": 9},
        "passes": 3,
        "step_size": 0.4,
        "noise_multiplier": 2.0,
        "noise_at": "pass_ends",
        "loss": loss,
        "release": "last",
        **changes,
    }
    return Run(**fields)


def fitted(
    backbone: nn.Module | None = None, head: nn.Linear | None = None, run: Run | None = None, **options: Any
) -> Fitted[nn.Sequential]:
    backbone, head = make_backbone() if backbone is None else backbone, make_head() if head is None else head
    run = make_head_run() if run is None else run
    return fit_head(backbone, head, **{"data": make_records(), "run": run, "seed": 5, **options})


def weights_of(result: Fitted[nn.Sequential]) -> np.ndarray:
    return result.model.state_dict()["2.weight"].double().numpy().T


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
    assert result.report.projected == (lengths > 0.9).sum()
    linear = fit_linear(
        run, features, targets.numpy(), classes=3 if kind == "softmax_regression" else None, seed=5, initial=torch.cat(start), dtype=dtype
    )
    assert (weights_of(result) == linear.model.weights).all()
    assert with_fresh_noise(result.run) == with_fresh_noise(linear.run) == run
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_rests_on_nothing_declared_and_is_about_the_last_iterate(kind: str) -> None:
    result = fitted(head=make_head(kind), run=make_head_run(kind), data=make_records(kind))
    certificate = certify(replace(result.record, run=with_fresh_noise(result.run)), 1e-5)
    assert certificate.theorem == "optimal-shift"
    # Nobody looks at iterates, nor did before: that is not for training to enforce.
    assert evidences(certificate, "declared") == {"release", "public backbone", "records apart", "start"}
    assert certificate.epsilon == pytest.approx(
        GDP(math.sqrt(3)).epsilon(1e-5), rel=1e-9
    )  # a pass costs one step; noise 2 for touches of 2
    declared = make_head_run(kind).replace(loss=parse_loss({**result.run.loss.to_document(), "evidence": "declared"}))
    moved = evidences(certify(declared, 1e-5), "declared") - {"release"}
    assert moved
    assert moved <= evidences(certificate, "enforced")
    assert fitted(head=make_head(kind), run=declared, data=make_records(kind)).run == result.run
    assert result.declared == tuple(claim.detail for claim in result.record.declared)
    said = " ".join(result.declared)
    assert "the backbone is public" in said
    assert "keeps records apart in batches other than those that were checked" in said
    assert "the two certificates then add up" in said
    assert "could not be copied" not in said
    assert result.checked == "checked"
    assert repr(result.declared) in repr(result)


def test_a_backbone_in_train_mode_is_put_in_eval_mode_and_its_statistics_stay() -> None:
    training, evaluated = make_backbone().train(), make_backbone().eval()
    before = {name: buffer.clone() for name, buffer in training.named_buffers()}
    first, second = fitted(training), fitted(evaluated)
    assert (weights_of(first) == weights_of(second)).all()
    assert not training.training
    assert all(torch.equal(before[name], buffer) for name, buffer in training.named_buffers())


@pytest.mark.parametrize("physical_size", [1, 2, 10, 1000])
def test_the_result_does_not_depend_on_the_physical_size(physical_size: int) -> None:
    expected = weights_of(fitted(physical_size=RECORDS))
    assert weights_of(fitted(physical_size=physical_size)) == pytest.approx(expected, rel=1e-9)


def test_a_data_set_is_read_in_order_and_by_its_items() -> None:
    class Items(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
        def __len__(self) -> int:
            return RECORDS

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return make_records()[0][index], make_records()[1][index]

    assert (weights_of(fitted(data=Items())) == weights_of(fitted())).all()


def test_noise_policies_and_budgets_are_those_of_fit_linear() -> None:
    run = make_head_run(noise_at="every_step", release="all", noise_budget=1.1, noise_multiplier=None)
    result = fitted(run=run, noise_policy=lambda observed: 2.0)  # 1/2 a step in slots of their own
    assert result.run.total_steps == 8
    assert result.spent == pytest.approx(1.0)
    head = make_head()
    with pytest.raises(BudgetExceededError):
        fitted(head=head, run=run.replace(noise_budget=0.1), noise_policy=lambda observed: 2.0)
    assert torch.equal(head.weight, make_head().weight)


class Bare(nn.Module):
    """A function of a batch as a backbone."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(inputs)[:, :FEATURES]


def shuffled(inputs: Tensor) -> Tensor:
    return inputs[torch.arange(len(inputs)).flip(0)]


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda x: x - x.mean(0),
    "a little of the mean": lambda x: x + 1e-9 * x.mean(0),
    "maximum": lambda x: x / x.abs().max(),
    "softmax": lambda x: torch.softmax(x, dim=0),
    "next": lambda x: x.roll(1, dims=0),
    "next but one": lambda x: x + 0.1 * x.roll(2, dims=0),
    "far": lambda x: x + 0.1 * x.roll(16, dims=0),
    "first": lambda x: x + x[:1],
    "last": lambda x: x + x[-1:],
    "sums": lambda x: x.cumsum(0),
    "sorted": lambda x: x.sort(dim=0).values,
    "backwards": shuffled,
    "two records": lambda x: torch.cat([x[:7], x[7:8] + x[12:13], x[8:]]) if len(x) > 12 else x,
    "batch norm": nn.BatchNorm1d(INPUTS, track_running_stats=False, affine=False),
}


@pytest.mark.parametrize("mixing", MIXING.values(), ids=MIXING)
def test_a_backbone_in_which_records_meet_is_refused(mixing: Callable[[Tensor], Tensor]) -> None:
    head = make_head()
    with pytest.raises(HypothesisError, match="features of some records change when other records do"):
        fitted(Bare(mixing), head)
    assert torch.equal(head.weight, make_head().weight)


@pytest.mark.parametrize("mixing", ["mean", "next", "sums", "far"])
def test_one_by_one_they_cannot_meet(mixing: str) -> None:
    alone = torch.cat([MIXING[mixing](row) for row in make_records()[0].split(1)])
    expected = weights_of(fitted(Bare(lambda x: x), data=(alone, make_records()[1])))
    assert (weights_of(fitted(Bare(MIXING[mixing]), physical_size=1)) == expected).all()


def test_whole_numbers_that_meet_are_refused() -> None:
    table = nn.Embedding(10, FEATURES).double().requires_grad_(False)
    data = torch.arange(RECORDS) % 10, make_records()[1]
    assert fitted(table, data=data).report.records == RECORDS
    with pytest.raises(HypothesisError, match="features of some records change"):
        fitted(Bare(lambda x: table(x) + table(x).mean(0)), data=data)


def test_random_features_and_written_buffers_are_refused() -> None:
    with pytest.raises(HypothesisError, match="other features the second time"):
        fitted(Bare(lambda x: nn.functional.dropout(x, 0.5)))

    class Counting(nn.BatchNorm1d):
        def forward(self, input: Tensor) -> Tensor:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked += len(input)
            return input[:, :FEATURES]

    with pytest.raises(HypothesisError, match="num_batches_tracked changed while records passed"):
        fitted(Counting(INPUTS).requires_grad_(False))


class Fitting(nn.Module):
    """Keeps something of the first batch it sees, in an attribute that is no buffer; may refuse to be copied."""

    def __init__(self, kept: Callable[[Tensor], Tensor], after: int = 0, copied: bool = True) -> None:
        super().__init__()
        self.kept, self.after, self.copied = kept, after, copied
        self.state: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        self.after -= 1
        if self.state is None and self.after < 0:
            self.state = self.kept(inputs)
        features = inputs.double().expand(-1, INPUTS)[:, :FEATURES]
        return features if self.state is None else features - self.state

    def __deepcopy__(self, memo: dict[int, Any]) -> "Fitting":
        if not self.copied:
            raise TypeError("not to be copied")
        return Fitting(self.kept, self.after)


def mean_of(inputs: Tensor) -> Tensor:
    return inputs.double().mean()


@pytest.mark.parametrize("physical_size", [1, 10, 256])
@pytest.mark.parametrize("whole", [False, True])
def test_a_backbone_that_keeps_its_first_batch_is_refused(physical_size: int, whole: bool) -> None:
    inputs = torch.arange(RECORDS)[:, None] if whole else make_records()[0]
    with pytest.raises(HypothesisError, match="other features when it saw others before"):
        fitted(Fitting(mean_of), data=(inputs, make_records()[1]), physical_size=physical_size)


def test_one_that_keeps_a_later_batch_is_refused_too() -> None:
    """After some twenty calls, which is beyond the checks of the first batch: its first records go through it once more at the end."""
    with pytest.raises(HypothesisError, match="other features the second time"):
        fitted(Fitting(mean_of, after=RECORDS), physical_size=1)


def test_what_could_not_be_looked_at_is_declared() -> None:
    backbone = Fitting(lambda inputs: 0.0, copied=False)
    assert "could not be copied: whether its first batch stays in it was not looked at" in " ".join(fitted(backbone).declared)


class Overridden(nn.Linear):
    """Not a plain linear layer."""


def undefined() -> nn.Linear:
    head = make_head()
    nn.init.constant_(head.weight, float("nan"))
    return head


def _doubled(module: nn.Module, inputs: Any, outputs: Tensor) -> Tensor:
    return outputs * 2


def hooked() -> nn.Linear:
    head = make_head()
    head.register_forward_hook(_doubled)
    return head


def made_in_inference_mode() -> nn.Linear:
    with torch.inference_mode():
        return make_head()


ONE = {"head": lambda: make_head("logistic_regression")}
REFUSED: tuple[tuple[str, dict[str, Any], type[LetheError], str], ...] = (
    ("run", {"run": "run"}, InputError, "needs a lethe.Run"),
    ("loss", {"run": make_head_run(clip_norm=1.0, loss={"kind": "unknown"})}, InputError, "softmax_regression"),
    ("no noise", {"run": make_head_run(noise_multiplier=None)}, InputError, "noise_multiplier: null"),
    ("one output for softmax", ONE, InputError, "has 1 outputs"),
    ("three outputs for logistic", {"run": make_head_run("logistic_regression")}, InputError, "has 3 outputs"),
    ("bias", {"run": make_head_run(intercept=False)}, InputError, "head: has a bias; run.loss.intercept is False"),
    ("no bias", {"head": lambda: make_head(bias=False)}, InputError, "head: has no bias; run.loss.intercept is True"),
    ("no linear head", {"head": nn.Identity}, InputError, "plain torch.nn.Linear"),
    ("overridden", {"head": lambda: Overridden(FEATURES, 3).double()}, InputError, "plain torch.nn.Linear"),
    ("parametrised", {"head": lambda: nn.utils.parametrizations.weight_norm(make_head())}, InputError, "plain torch.nn.Linear"),
    ("hooked", {"head": hooked}, InputError, "plain torch.nn.Linear"),
    ("inference", {"head": made_in_inference_mode}, InputError, "made in inference mode"),
    ("half", {"head": lambda: make_head(dtype=torch.bfloat16)}, InputError, "needs float32 or float64"),
    ("nan", {"head": undefined}, InputError, "needs a finite number"),
    ("width", {"head": lambda: nn.Linear(FEATURES + 1, 3).double()}, InputError, "one vector of 6 real numbers"),
    ("pictures", {"backbone": Bare(lambda x: x[:, :, None])}, InputError, "one vector of 5 real numbers"),
    ("tuple", {"backbone": nn.LSTM(INPUTS, FEATURES).double().requires_grad_(False)}, InputError, "gave tuple"),
    ("no module", {"backbone": lambda x: x}, InputError, "needs a torch.nn.Module"),
    ("trained backbone", {"backbone": make_backbone().requires_grad_(True)}, InputError, "backbone is not trained"),
    ("elsewhere", {"backbone": nn.Linear(INPUTS, FEATURES, device="meta").requires_grad_(False)}, InputError, "one device"),
    ("more records", {"run": make_head_run(records=RECORDS + 1)}, InputError, "the run says 38; the data have 37"),
    ("one tensor", {"data": make_records()[:1]}, InputError, "records of 1 tensors"),
    ("three tensors", {"data": (*make_records(), make_records()[1])}, InputError, "records of 3 tensors"),
    ("class out of range", {"data": (make_records()[0], make_records()[1] + 1)}, InputError, "class number 0..2"),
    ("nan features", {"backbone": Bare(lambda x: torch.where(x > 1, torch.nan, x))}, InputError, "needs a finite number"),
    ("size", {"physical_size": 0}, InputError, "physical_size"),
    ("size bool", {"physical_size": True}, InputError, "physical_size"),
)


@pytest.mark.parametrize(("options", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals(options: dict[str, Any], error: type[LetheError], message: str) -> None:
    options = {name: value() if name == "head" else value for name, value in options.items()}
    with pytest.raises(error, match=message):
        fitted(**options)


def test_a_head_that_is_part_of_the_backbone_is_refused() -> None:
    head = make_head().requires_grad_(False)
    with pytest.raises(InputError, match="shares memory with the backbone"):
        fitted(nn.Sequential(nn.Linear(INPUTS, FEATURES).double().requires_grad_(False), head), head)
