"""Convex heads on frozen features: which backbones, heads and data are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from convex_heads import FEATURES, INPUTS, RECORDS, fitted, make_backbone, make_head, make_head_run, make_records, weights_of
from torch import Tensor, nn

from lethe.errors import HypothesisError, InputError, LetheError


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
    assert fitted(table, data=data).diagnostics.records == RECORDS
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

    with pytest.raises(HypothesisError, match="num_batches_tracked"):
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


ONE = {"head": lambda: make_head("logistic_regression")}
REFUSED: tuple[tuple[str, dict[str, Any], type[LetheError], str], ...] = (
    ("run", {"run": "run"}, InputError, "needs a lethe.Run"),
    ("loss", {"run": make_head_run(clip_norm=1.0, loss={"kind": "unknown"})}, InputError, "a loss of a linear model"),
    ("no noise", {"run": make_head_run(noise_multiplier=None)}, InputError, "noise_multiplier: null"),
    ("one output for softmax", ONE, InputError, "has 1 outputs"),
    ("three outputs for logistic", {"run": make_head_run("logistic_regression")}, InputError, "has 3 outputs"),
    ("bias", {"run": make_head_run(intercept=False)}, InputError, "head: has a bias; run.loss.intercept is False"),
    ("no bias", {"head": lambda: make_head(bias=False)}, InputError, "head: has no bias; run.loss.intercept is True"),
    ("no linear head", {"head": nn.Identity}, InputError, "plain torch.nn.Linear"),
    ("overridden", {"head": lambda: Overridden(FEATURES, 3).double()}, InputError, "plain torch.nn.Linear"),
    ("parametrised", {"head": lambda: nn.utils.parametrizations.weight_norm(make_head())}, InputError, "plain torch.nn.Linear"),
    ("hooked", {"head": hooked}, InputError, "plain torch.nn.Linear"),
    ("half", {"head": lambda: make_head(dtype=torch.bfloat16)}, InputError, "needs float64 or float32"),
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
    ("class out of range", {"data": (make_records()[0], make_records()[1] + 1)}, InputError, "a whole number from 0 to 2"),
    ("nan features", {"backbone": Bare(lambda x: torch.where(x > 1, torch.nan, x))}, InputError, "needs a finite number"),
    ("not copied", {"backbone": Fitting(mean_of, copied=False)}, InputError, "cannot be copied"),
    ("size", {"physical_size": 0}, InputError, "physical_size"),
    ("size bool", {"physical_size": True}, InputError, "physical_size"),
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("options", "error", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refusals(options: dict[str, Any], error: type[LetheError], message: str) -> None:
    options = {name: value() if name == "head" else value for name, value in options.items()}
    with pytest.raises(error, match=message):
        fitted(**options)


def test_a_head_that_is_part_of_the_backbone_is_refused() -> None:
    head = make_head().requires_grad_(False)
    with pytest.raises(InputError, match="shares memory with the backbone"):
        fitted(nn.Sequential(nn.Linear(INPUTS, FEATURES).double().requires_grad_(False), head), head)
