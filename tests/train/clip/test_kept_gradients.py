"""Gradients of records that are formed while the backward pass is under way, in the memory that it lets go of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from lethe.train.clip.clipper import Clipper
from lethe.train.clip.fast import Recording
from lethe.train.clip.groups import Group
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import Memory, OuterProducts, Several, together
from lethe.train.clip.parts.part import MaterialisedGradients, ParameterGradients, TokenRows

RECORDS, POSITIONS, WIDTH, OUTPUTS = 5, 12, 32, 24
FACTORS = 8 * RECORDS * POSITIONS * (WIDTH + OUTPUTS)  # bytes, in float64
FORMED = 8 * RECORDS * WIDTH * OUTPUTS


def products(memory: Memory, positions: int = POSITIONS) -> OuterProducts:
    torch.manual_seed(0)
    inputs, gradients = torch.randn(RECORDS, positions, WIDTH), torch.randn(RECORDS, positions, OUTPUTS)
    return OuterProducts(inputs.double(), gradients.double(), memory)


def the_same(one: ParameterGradients, other: ParameterGradients) -> None:
    weights = torch.rand(RECORDS, dtype=torch.float64)
    torch.testing.assert_close(one.squares(), other.squares(), rtol=1e-12, atol=0)
    torch.testing.assert_close(one.weighted(weights).flatten(), other.weighted(weights).flatten(), rtol=1e-12, atol=1e-12)


def test_what_is_formed_is_the_same_and_frees_its_factors() -> None:
    memory = Memory(1)
    settled = products(memory).settled()
    assert isinstance(settled, MaterialisedGradients)
    assert memory.left == 1 + 2 * FACTORS - FORMED
    the_same(settled, products(Memory(0)))


@pytest.mark.parametrize(("positions", "limit"), [(POSITIONS, 0), (2, FORMED - FACTORS // 3 - 1)])
def test_nothing_is_formed_beyond_the_limit(positions: int, limit: int) -> None:
    part = products(Memory(limit), positions)
    assert part.settled() is part
    assert part.memory.left == limit
    assert isinstance(products(Memory(limit + 1), positions).settled(), MaterialisedGradients)


def test_a_record_that_is_dropped_is_measured_anew() -> None:
    settled = products(Memory(1)).settled()
    settled.drop(torch.arange(RECORDS) == 2)
    assert [bool(square) for square in settled.squares()] == [True, True, False, True, True]


def looked_up() -> TokenRows:
    torch.manual_seed(1)
    return TokenRows(torch.randint(OUTPUTS, (RECORDS, 4)), torch.randn(RECORDS, 4, WIDTH, dtype=torch.float64), OUTPUTS)


@pytest.mark.parametrize("turned", [False, True])
def test_a_tied_table_is_formed_where_there_is_memory(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_products, "FORMED", 0)

    def both(limit: int) -> ParameterGradients:
        calls: list[ParameterGradients] = [products(Memory(limit)), looked_up()]
        return together(calls[::-1] if turned else calls, WIDTH * OUTPUTS, Memory(limit))

    formed, factored = both(1), both(0)
    assert isinstance(formed, MaterialisedGradients)
    assert isinstance(factored, Several)
    the_same(formed, factored)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, given: Tensor) -> Tensor:
        return self.twice(torch.tanh(self.twice(torch.tanh(self.once(given)))))


def test_a_layer_that_is_called_twice_is_formed_of_both_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Twice().double()
    came: dict[nn.Parameter, list[type[ParameterGradients]]] = {}
    taken = Recording._taken

    def seen(self: Recording, parameters: Sequence[nn.Parameter]) -> dict[nn.Parameter, ParameterGradients]:
        came.update({parameter: [type(part) for part in parts] for parameter, parts in self.parts.items()})
        return taken(self, parameters)

    monkeypatch.setattr(Recording, "_taken", seen)
    given = torch.randn(RECORDS, POSITIONS, WIDTH, dtype=torch.float64)
    clipper = Clipper(model, lambda batch: model(batch).square().sum((1, 2)), (Group(parameters=("*",), clip_norm=1e9),))
    clipper.add(given)
    assert came[model.once.weight] == [MaterialisedGradients]
    assert came[model.twice.weight] == [OuterProducts] * 2
    sums = clipper.take()
    model(given).square().sum().backward()
    for parameter in model.parameters():
        torch.testing.assert_close(sums[parameter], parameter.grad, rtol=1e-10, atol=1e-10)
