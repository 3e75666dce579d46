"""Parts of several parameters that are measured, and added, at once: to the same numbers as each by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lethe.train.clipping import Clipper
from lethe.train.clipping.records.joined import apart, joined
from lethe.train.clipping.records.lots import Lot
from lethe.train.clipping.rules import measuring
from lethe.train.clipping.rules.outer_products import OuterProducts, Shares
from lethe.train.clipping.rules.parts import Part, Rows
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.clipping.workspace import Workspace
from lethe.train.core.together.weighing import asked_once, scaled, silenced

BATCH = 5


def products(positions: int, width: int, *, cancelling: int | None = None) -> Callable[[], OuterProducts]:
    """Makes the same part again and again; the terms of one record may cancel but for rounding."""
    generator = torch.Generator().manual_seed(positions + width)
    x, g = (torch.randn(BATCH, positions, width, generator=generator) for _ in range(2))
    if cancelling is not None:
        x[cancelling, 1], g[cancelling, 1] = x[cancelling, 0], -g[cancelling, 0] * (1 + 2.0**-22)
        x[cancelling, 2:] = 0
    return lambda: OuterProducts(x.clone(), g.clone())


# Kept, kept with a record for itself, by products of positions, and of another number of positions.
MAKERS = (products(4, 32), products(4, 32, cancelling=1), products(4, 8), products(4, 40), products(6, 8, cancelling=3), products(1, 4))


@pytest.mark.parametrize("share", [0.0, 0.1, float("inf")])
def test_parts_measured_together_are_measured_as_each_by_itself(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.clipping.rules.outer_products.shares_at", lambda like: Shares(share, 0.5))
    alone, beside, lot = [make() for make in MAKERS], [make() for make in MAKERS], Lot()
    weights = torch.rand(BATCH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with Workspace().open():
        for part in alone:
            part.settle()
        for part in beside:
            lot.add(part)
        lot.settle()
        assert any(len(part._measured().exact) for part in beside)
        for one, other in zip(alone, beside, strict=True):
            assert one.whole == other.whole
            assert torch.equal(one.squared_norms(), other.squared_norms())
            assert one._measured().exact.tolist() == other._measured().exact.tolist()
            assert one._measured().held.tolist() == other._measured().held.tolist()
            assert (one.slack() is None) == (other.slack() is None)
            assert one.slack() is None or torch.equal(one.slack(), other.slack())  # pyright: ignore[reportArgumentType]
            assert torch.equal(one.weighted_sum(weights), other.weighted_sum(weights))


def test_what_is_changed_between_forming_and_settling_is_refused() -> None:
    part, lot = products(4, 8, cancelling=1)(), Lot()
    lot.add(part)
    part.inputs.mul_(2)
    lot.settle()
    with pytest.raises(UnfollowedError, match="changed in place within the backward pass"):
        part.weighted_sum(torch.ones(BATCH, dtype=torch.float64))


def test_parts_that_wait_are_settled_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.train.clipping.rules.outer_products.shares_at", lambda like: Shares(0.0, 0.5))
    make = products(4, 8)
    factors = make().inputs.nbytes + make().gradients.nbytes
    monkeypatch.setattr("lethe.train.clipping.workspace._LEAST", 4 * BATCH * 64)  # one of them; the next is in the place of its factors
    assert 2 * factors >= 4 * BATCH * 64
    lot, parts = Lot(), [make() for _ in range(5)]
    with Workspace().open():
        for part in parts:
            lot.add(part)
        lot.settle()
        assert [part._kept is not None for part in parts] == [True] * 5


@pytest.mark.parametrize("elsewhere", [True, False])
def test_it_is_asked_once_whatever_the_number_of_layers(elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    decide = measuring._decide

    def spied(parts: Any) -> None:
        asked.append(len(parts))
        decide(parts)

    monkeypatch.setattr(measuring, "_decide", spied)
    if elsewhere:
        for name in ("rules.parts", "rules.measuring", "rules.outer_products", "records.lots", "records.joined", "workspace"):
            monkeypatch.setattr(f"lethe.train.clipping.{name}.on_cpu", lambda tensor: False)
    for layers in (2, 7):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))
        clipper = Clipper(model, verify=False)
        asked.clear()
        with clipper.recording():
            losses = model(torch.randn(BATCH, 3, 8)).square().mean((1, 2))
        clipper.backward(losses)
        assert asked == ([layers] if elsewhere else [])  # on a CPU a bound clears ordinary records, layer by layer


def test_a_weight_of_0_that_was_not_asked_of_still_silences() -> None:
    bad = torch.tensor([[1.0], [torch.inf]])
    ones, some = torch.ones(2, dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    with asked_once(ones):
        assert silenced(bad, ones) is bad
        assert silenced(bad, some).tolist() == scaled(bad, some).tolist() == [[1.0], [0.0]]
    with asked_once(some):
        assert silenced(bad, some).tolist() == scaled(bad, some).tolist() == [[1.0], [0.0]]
    assert silenced(bad, ones).tolist() == bad.tolist()


def test_small_parameters_beside_each_other_are_as_by_themselves() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3,), (), (2, 2), (5,)]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    rows = [torch.randn(BATCH, *(shape or (1,)), generator=generator) for shape in shapes]
    rows[1][2] = torch.nan
    rows[3] = rows[3].double()
    large = OuterProducts(torch.randn(BATCH, 2, 3, generator=generator), torch.randn(BATCH, 2, 4, generator=generator))
    parameters.append(nn.Parameter(torch.zeros(4, 3)))
    parts: dict[nn.Parameter, Part] = dict(zip(parameters, [*map(Rows, rows), large], strict=True))
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 0.1], dtype=torch.float64)
    owned = joined(parts, parameters)
    assert not parts
    assert sorted(len(own) for own, _ in owned) == [1, 1, 3]  # the float64 one, and the large one, by themselves
    sums: dict[nn.Parameter, Tensor] = {}
    squares = torch.stack([part.squared_norms() for _, part in owned]).sum(0)
    for own, part in owned:
        sums.update(zip(own, apart(own, part.weighted_sum(weights)), strict=True))
    expected = sum(one.double().flatten(1).square().sum(1) for one in [*rows, large.per_record()])
    torch.testing.assert_close(squares, expected, equal_nan=True, rtol=1e-6, atol=0)
    for parameter, one in zip(parameters, rows, strict=False):
        exact = torch.tensordot(weights, one.double().nan_to_num(nan=0.0), dims=1).reshape(parameter.shape)
        assert sums[parameter].shape == parameter.shape
        torch.testing.assert_close(sums[parameter].double(), exact, rtol=1e-6, atol=1e-6)
    assert len({sums[parameter].untyped_storage().data_ptr() for parameter in parameters}) == len(parameters)
