"""What people do in loops of their own, and in losses and models, by which records meet: refused, or exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from networks import CROSS_ENTROPY
from private_loops import Loop
from torch import Tensor, nn

import lethe
from lethe.errors import LetheError
from lethe.train import fit

RECORDS, SIZE, CLIP, WIDE = 24, 8, 0.1, 40
FREE = {"records": RECORDS, "batches": lethe.batches.Cyclic(SIZE), "steps": 6, "step_size": 1.0, "clip_norm": CLIP, "noise_multiplier": 0.0}
RUN = lethe.Run(**FREE, release="all", neighbours="zero_out")


def network(width: int = WIDE) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(width, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def numbers(width: int = WIDE) -> tuple[Tensor, Tensor]:
    return torch.randn(RECORDS, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), torch.arange(RECORDS) % 3


def standing(model: nn.Module) -> tuple[torch.optim.Optimizer, list[Tensor]]:
    """An optimiser that leaves the parameters where they are, and the mean gradients that it is given."""
    parameters = list(model.parameters())
    optimizer, given = torch.optim.SGD(parameters, lr=0.0), list[Tensor]()
    optimizer.register_step_pre_hook(
        lambda *_: given.append(torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None]))
    )
    return optimizer, given


def clipped(model: nn.Module, losses: Callable[[Tensor, Tensor], Tensor], rows: Tensor, targets: Tensor) -> Tensor:
    """The sum of the clipped gradients of records alone, by plain autograd."""
    total = torch.zeros(sum(parameter.numel() for parameter in model.parameters()), dtype=torch.float64)
    for row, target in zip(rows.split(1), targets.split(1), strict=True):
        loss = losses(model(row.clone()), target.clone()).sum()
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
        total += gradient * min(1.0, CLIP / float(gradient.norm()))
    return total


def in_a_loop(within: Callable[[Tensor], Tensor], *, rows: Tensor | None = None, run: lethe.Run = RUN, calls: int = 1) -> None:
    """A loop whose function of the batch does something to the records before they go into the model."""
    records = numbers()[0] if rows is None else rows
    model = nn.Sequential(nn.Flatten(), network(records[0].numel()))

    def losses(batch: Any) -> Tensor:
        return CROSS_ENTROPY(torch.stack([model(within(batch[0])) for _ in range(calls)]).sum(0), batch[1])

    loop = Loop(run, model=model, losses=losses, data=(records, numbers()[1]), optimizer=lambda own: torch.optim.SGD(own, lr=0.0))
    assert loop.whole().total_steps == loop.engine.steps == run.total_steps


PICTURES = torch.rand(RECORDS, 4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
BYTES = (torch.arange(1, 1 + RECORDS)[:, None, None, None] * PICTURES * 10).to(torch.uint8)
MIXING: dict[str, tuple[Tensor | None, Callable[[Tensor], Tensor]]] = {
    "mixup": (None, lambda rows: 0.7 * rows + 0.3 * rows[torch.randperm(len(rows))]),
    "another order": (None, lambda rows: rows[torch.randperm(len(rows))]),
    "rolled": (None, lambda rows: rows.roll(1, 0)),
    "cutmix": (None, lambda rows: torch.cat([rows[:, :10], rows.flip(0)[:, 10:30], rows[:, 30:]], dim=1)),
    "centred": (None, lambda rows: rows - rows.mean(0)),
    "standardised": (None, lambda rows: (rows - rows.mean()) / rows.std()),
    "standardised by columns": (None, lambda rows: (rows - rows.mean(0)) / rows.std(0)),
    "over the largest": (None, lambda rows: rows / rows.abs().max()),
    "mixup in another shape": (None, lambda rows: (0.7 * rows + 0.3 * rows.flip(0)).view(len(rows), 4, -1)),
    "mixup of pictures": (PICTURES, lambda rows: (0.7 * rows + 0.3 * rows.flip(0)).movedim(-1, 1)),
    "mixup of bytes": (BYTES, lambda rows: 0.7 * rows.double() + 0.3 * rows.flip(0)),
    "bytes over the largest": (BYTES, lambda rows: rows.movedim(-1, 1).double() / rows.max()),
    "bytes under the largest": (BYTES, lambda rows: (rows.max() - rows).double()),
}
OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled and shifted": lambda rows: 2 * rows + 1,
    "noisy": lambda rows: rows + torch.randn_like(rows),
    "columns turned round": lambda rows: rows.flip(1),
    "erased in part": lambda rows: torch.where(torch.rand_like(rows) > 0.5, rows, 0.0),
    "its own norm": lambda rows: rows / rows.norm(dim=1, keepdim=True),
    "its own deviation": lambda rows: (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True),
    "public numbers": lambda rows: (rows - torch.arange(WIDE)) / 2,
}


@pytest.mark.filterwarnings("ignore:std\\(\\).*degrees of freedom")
@pytest.mark.parametrize("kind", MIXING)
def test_records_that_a_function_of_the_batch_mixes_are_refused(kind: str) -> None:
    torch.manual_seed(0)
    rows, within = MIXING[kind]
    with pytest.raises(LetheError):
        in_a_loop(within, rows=rows)


@pytest.mark.parametrize("kind", OWN)
def test_what_a_loop_makes_of_each_record_by_itself_is_taken(kind: str) -> None:
    in_a_loop(OWN[kind])


def masking(outputs: Tensor, targets: Tensor) -> Tensor:
    targets[targets == 2] = 1
    return CROSS_ENTROPY(outputs, targets)


def doubling(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs[:, 0] - targets.mul_(2)).square()


def masking_by_the_batch(outputs: Tensor, targets: Tensor) -> Tensor:
    targets[targets == targets.max()] = 1
    return CROSS_ENTROPY(outputs, targets)


def test_a_loss_that_writes_into_its_targets_is_exact_or_refused() -> None:
    """What it writes may be written again; what grows each time is not the same batch any more."""
    model, (rows, targets) = network(), numbers()
    optimizer, given = standing(model)
    fit(model, masking, (rows, targets.clone()), RUN, optimizer=optimizer)
    for step, mean in enumerate(given):
        some = slice(SIZE * (step % 3), SIZE * (step % 3 + 1))
        assert float((SIZE * mean - clipped(network(), masking, rows[some], targets[some])).norm()) < 1e-8
    with pytest.raises(LetheError, match="the loss of record"):
        fit(network(), doubling, (rows, targets.double()), RUN)
    with pytest.raises(LetheError, match="depends on the other records"):
        fit(network(), masking_by_the_batch, numbers(), RUN)


class Ragged(nn.Module):
    """Each record becomes one or two rows of a nested tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 5).double(), nn.Linear(5, 3).double()

    def forward(self, rows: Tensor) -> Tensor:
        pieces = [row[None].repeat(1 + int(row[0] > 0), 1) for row in rows]
        hidden = torch.tanh(self.first(torch.nested.as_nested_tensor(pieces, layout=torch.jagged)))
        return self.last(torch.stack([piece.mean(0) for piece in hidden.unbind()]))


class Adapting(nn.Module):
    """Takes a gradient step on the loss of its batch before it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network(4)

    def forward(self, rows: Tensor) -> Tensor:
        named = dict(self.inner.named_parameters())
        gradients = torch.autograd.grad(self.inner(rows).square().mean(), list(named.values()), create_graph=True)
        moved = {name: parameter - 0.5 * gradient for (name, parameter), gradient in zip(named.items(), gradients, strict=True)}
        return torch.func.functional_call(self.inner, moved, (rows,))


@pytest.mark.filterwarnings("ignore::lethe.errors.RecordByRecordWarning")
@pytest.mark.parametrize(("make", "way"), [(Ragged, "alone"), (Adapting, "vmap")])
def test_models_of_whole_batches_are_trained_record_by_record(make: Callable[[], nn.Module], way: str) -> None:
    """Nested tensors; and a step on the loss of the batch within the model, which becomes one on the loss of each record."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
    rows, targets = numbers(4)
    optimizer, given = standing(model)
    fitted = fit(model, CROSS_ENTROPY, (rows, targets), RUN.replace(steps=1), optimizer=optimizer)
    assert fitted.diagnostics.gradients == way
    expected = clipped(model, CROSS_ENTROPY, rows[:SIZE], targets[:SIZE])
    assert float((SIZE * given[0] - expected).norm()) < 1e-8


class Slow(torch.optim.SGD):
    """Goes half of the way back after every second step; its step calls that of its class."""

    def step(self, closure: Any = None) -> Any:
        told = super().step(closure)
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        self.taken = getattr(self, "taken", 0) + 1
        with torch.no_grad():
            for parameter, slow in zip(own, self.__dict__.setdefault("slow", [one.detach().clone() for one in own]), strict=True):
                if self.taken % 2 == 0:
                    parameter.copy_(slow.lerp_(parameter, 0.5))
        return told


def test_an_optimiser_whose_step_calls_that_of_its_class_takes_one_step() -> None:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # whose step has hooks of its own from now on
    loop = Loop(optimizer=lambda parameters: Slow(parameters, lr=0.1))
    assert loop.whole().total_steps == loop.engine.steps == loop.run.total_steps


class Spoilt(torch.optim.SGD):
    """Puts other gradients in before the step of its class."""

    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        return super().step(closure)


class Failing(torch.optim.SGD):
    """Fails in the middle of its step."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        raise OSError("no space left")


def test_gradients_that_come_in_the_middle_of_a_step_or_after_one_that_failed_are_refused() -> None:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    with pytest.raises(LetheError, match=r"its \.grad is not the noisy gradient"):
        Loop(optimizer=lambda parameters: Spoilt(parameters, lr=0.1)).whole()
    loop = Loop(optimizer=lambda parameters: Failing(parameters, lr=0.1))
    with pytest.raises(OSError, match="no space"):
        loop.whole()
    for parameter in loop.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(LetheError, match=r"its \.grad is not the noisy gradient|no private gradient"):
        loop.optimizer.step()
