"""Parameters that get noise to no use are told of in the first step that shows it; what merely has a gradient of 0 is not."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import make_network_run
from torch import Tensor, nn

import lethe
from lethe.errors import UnusedParameterWarning
from lethe.train import PrivacyEngine, TrainOptions, fit
from lethe.train.network.report import EARLY

RECORDS = 8
RUN = make_network_run(records=RECORDS, batches=lethe.batches.Shuffled(4), steps=4, noise_multiplier=1.0, neighbours="replace_one")
DATA = torch.randn(RECORDS, 3, generator=torch.Generator().manual_seed(0)), torch.arange(RECORDS) % 2
UNREACHED, UNMOVED = "no record's loss depends on it", "the step left it as it was"
Train = Callable[..., Any]


class Adapted(nn.Module):
    """A frozen layer, with a product of two matrices of rank 1 beside it, of which one begins at 0, and with a branch that may be used."""

    def __init__(self, *, used: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base, self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 1, bias=False), nn.Linear(1, 2, bias=False)
        self.branch, self.used = nn.Linear(3, 2), used
        self.base.requires_grad_(False)
        nn.init.zeros_(self.b.weight)

    def forward(self, given: Tensor) -> Tensor:
        added = self.branch(given) if self.used else 0.0
        return self.base(given) + self.b(self.a(given)) + added


def by_fit(model: nn.Module, optimizer: torch.optim.Optimizer, run: Any = RUN, **options: Any) -> None:
    fit(model, nn.CrossEntropyLoss(reduction="none"), DATA, run, optimizer=optimizer, options=TrainOptions(**options))


def by_engine(model: nn.Module, optimizer: torch.optim.Optimizer, run: Any = RUN, **options: Any) -> None:
    loss = nn.CrossEntropyLoss(reduction="none")
    engine = PrivacyEngine(model, optimizer, lambda batch: loss(model(batch[0]), batch[1]), DATA, run, options=TrainOptions(**options))
    for batch in engine.batches():
        engine.backward(batch)
        optimizer.step()
        optimizer.zero_grad()
    engine.recorded_run()


BOTH = pytest.mark.parametrize("train", [by_fit, by_engine])


def adam(model: nn.Module, lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=lr)


@BOTH
@pytest.mark.parametrize("isolation", ["checked", "declared"])
def test_a_branch_that_no_loss_depends_on(train: Train, isolation: str) -> None:
    model = Adapted(used=False)
    with pytest.warns(UnusedParameterWarning, match=rf"branch.weight \(and 1 more of 4\) gets noise.*{UNREACHED}") as told:
        train(model, adam(model), isolation=isolation)
    assert len(told) == 1


@BOTH
@pytest.mark.parametrize("isolation", ["checked", "declared", "enforced"])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_gradient_of_0_says_nothing(train: Train, isolation: str, noise: float) -> None:
    """Warnings are errors here: of LoRA's A, of a learning rate that begins at 0, and of steps without noise."""
    model = Adapted()
    optimizer = adam(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 4)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters() if parameter.requires_grad}
    train(model, optimizer, RUN.replace(noise_multiplier=noise), isolation=isolation)
    assert all(not torch.equal(parameter, before[name]) for name, parameter in model.named_parameters() if name in before)


@BOTH
@pytest.mark.parametrize("begin", [0.0, 0.01])
def test_what_the_optimiser_does_not_move(train: Train, begin: float) -> None:
    """In the manner of Opacus' issue 820: epsilon is counted, and the weights are those of the start."""
    model = Adapted()
    optimizer = adam(model, begin)
    start = model.b.weight.detach().clone()

    def put_back(*_: Any) -> None:
        optimizer.param_groups[0]["lr"] = 0.01
        with torch.no_grad():
            model.b.weight.copy_(start)

    optimizer.register_step_post_hook(put_back)
    with pytest.warns(UnusedParameterWarning, match=f"private: b.weight gets noise.*{UNMOVED}") as told:
        train(model, optimizer)
    assert len(told) == 1
    assert torch.equal(model.b.weight, start)


class Experts(nn.Module):
    """Three, each for the records whose first number rounds to its own."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(3, 2) for _ in range(3)])

    def forward(self, given: Tensor) -> Tensor:
        scores = given.new_zeros(len(given), 2)
        for number, expert in enumerate(self.experts):
            rows = (given[:, 0] == number).nonzero()[:, 0]
            scores = scores.index_add(0, rows, expert(given[rows])) if len(rows) else scores
        return scores


@BOTH
@pytest.mark.parametrize("steps", [4, EARLY])
def test_an_expert_has_ten_steps_for_a_record_to_come(train: Train, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch has the first record of expert 1, and no batch one of expert 2."""
    given = torch.ones(RECORDS, 3) * torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])[:, None]
    monkeypatch.setitem(globals(), "DATA", (given, DATA[1]))
    model, run = Experts(), RUN.replace(batches=lethe.batches.Cyclic(4), steps=steps)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train(model, adam(model), run)
    unused = [str(one.message) for one in told if one.category is UnusedParameterWarning]
    assert [message.split(":")[1][:27] for message in unused] == [" experts.2.weight (and 1 mo"] * (steps == EARLY)
