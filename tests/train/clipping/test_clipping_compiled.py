"""Compiled parts in branches that are taken late, and record by record: exact, and compiled only where the clipper is not looking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from per_record import TOLERANCES, clipped_sums, gradients_of_records, norms_of, squares
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train.checks.padding import AloneCheck
from lethe.train.clipping import Clipper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),  # the compiler looks at it
]

COLUMNS = 4


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    torch.compiler.reset()


def counting(compiled: list[int]) -> Callable[..., Any]:
    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(1)
        return graph.forward

    return backend


class Late(nn.Module):
    """Its second layer is called in batches only whose first number is large, and may mix their records."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(COLUMNS, COLUMNS).double(), nn.Linear(COLUMNS, 3).double()
        self.mixes, self.late = mixes, False

    def forward(self, given: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(given))
        if not self.late:
            return hidden
        return self.second(hidden - hidden.mean(0).detach() if self.mixes else hidden.relu())


@pytest.mark.nightly(by_day="test_padded_batches_are_compared_while_nothing_is_compiled")
@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize("compiles", [True, False])
def test_a_branch_that_is_taken_late_is_checked_while_nothing_is_compiled(mixes: bool, compiles: bool) -> None:
    torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    compiled: list[int] = []
    model = Late(mixes)
    if compiles:
        for name in ("first", "second"):
            setattr(model, name, torch.compile(getattr(model, name), backend=counting(compiled)))
    clipper = Clipper(model, clip_norm=1.0)
    for late in (False, False, True):
        model.late = late
        batch = torch.randn(6, COLUMNS, dtype=torch.float64)
        with pytest.raises(InputError, match="other records") if mixes and late else nullcontext():
            with clipper.recording():
                output = model(batch)
            clipper.backward(squares(output))
            told = clipper.take()
            with torch.compiler.set_stance("force_eager"):
                expected = clipped_sums(gradients_of_records(model, batch), 1.0)
            for parameter, sums in told.items():
                assert float((sums - expected[parameter]).abs().max()) < TOLERANCES[torch.float64]
    assert not compiled


class Flat(nn.Module):
    """Its parameter is read in the middle of a product of records, which no rule follows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside = nn.Linear(COLUMNS, 3).double()
        self.scale = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, given: Tensor) -> Tensor:
        return torch.stack([row * self.scale for row in self.inside(given).unbind(0)])


def test_padded_batches_are_compared_while_nothing_is_compiled() -> None:
    torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    compiled: list[int] = []
    model = torch.compile(nn.Linear(COLUMNS, 3).double(), backend=counting(compiled))
    batch = torch.randn(2, COLUMNS, dtype=torch.float64)
    check = AloneCheck(model)
    check.require(lambda: squares(model(batch)), {row: lambda row=row: squares(model(batch[row : row + 1])) for row in (0, 1)})
    assert check.missing is None
    with pytest.raises(InputError, match="depends on how far its batch is padded"):
        check.require(lambda: squares(model(batch)), {row: lambda row=row: squares(model(2 * batch[row : row + 1])) for row in (0, 1)})
    assert not compiled
    model(batch)
    assert compiled


def test_record_by_record_a_compiled_model_is_exact() -> None:
    model, compiled = Flat(), list[int]()
    model.compile(backend=counting(compiled))
    batch = torch.randn(6, COLUMNS, dtype=torch.float64)
    clipper = Clipper(model, clip_norm=1.0, way="record by record")
    for row in batch:
        with clipper.recording():
            output = model(row[None])
        clipper.backward(squares(output))
    assert not compiled
    with torch.compiler.set_stance("force_eager"):
        gradients = gradients_of_records(model, batch)
    assert float(norms_of(gradients).max()) > 1
    for parameter, sums in clipper.take().items():
        assert float((sums - clipped_sums(gradients, 1.0)[parameter]).abs().max()) < TOLERANCES[torch.float64]
    model(batch)
    assert compiled


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verify", [True, False])
def test_losses_that_were_compiled_outside_of_the_recording_are_refused(verify: bool) -> None:
    """A count of the batch, for one, would not be seen in them."""
    model, batch = nn.Linear(COLUMNS, 3).double(), torch.randn(6, COLUMNS, dtype=torch.float64)
    loss = torch.compile(squares, backend="aot_eager")
    clipper = Clipper(model, verify=verify)
    with clipper.recording():
        output = model(batch)
    with pytest.raises(InputError, match="ran compiled"):
        clipper.backward(loss(output))
    with clipper.recording():
        losses = loss(model(batch))
    clipper.backward(losses)
    expected = clipped_sums(gradients_of_records(model, batch), 1.0)
    for parameter, sums in clipper.take().items():
        assert float((sums - expected[parameter]).abs().max()) < TOLERANCES[torch.float64]
