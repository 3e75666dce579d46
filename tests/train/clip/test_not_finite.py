"""Records whose gradient is not finite contribute nothing, and move no other record's; tables of positions; the order of the sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from lethe.train.clip.clipper import Clipper


@pytest.mark.parametrize("isolation", ["checked", "enforced", "declared"])
@pytest.mark.parametrize("positions", [None, 6])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_they_contribute_nothing_and_the_others_as_without_them(isolation: str, positions: int | None, value: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)).double()

    def losses(batch: Tensor) -> Tensor:
        return model(batch).flatten(1).square().mean(1)

    records = torch.randn(5, *([] if positions is None else [positions]), 3, dtype=torch.float64)
    without = Clipper(model, losses, 0.3, isolation=isolation)
    without.add(records[2:])
    expected = without.take()
    records[:2] = value
    clipper = Clipper(model, losses, 0.3, isolation=isolation)
    clipper.add(records)
    found = clipper.take()
    assert max(float(tensor.abs().max()) for tensor in expected.values()) > 1e-3
    assert all(torch.allclose(found[parameter], expected[parameter], rtol=1e-12, atol=1e-15) for parameter in expected)
    assert clipper.ways == without.ways
    records[:] = value
    clipper.add(records)
    assert not any(bool(tensor.any()) for tensor in clipper.take().values())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("counted", [None, [True, True, True, False]])
def test_a_record_whose_loss_alone_is_not_finite_contributes_nothing(value: float, counted: list[bool] | None) -> None:
    model = nn.Linear(3, 1, dtype=torch.float64)
    clipper = Clipper(model, lambda batch: model(batch[0])[:, 0] + batch[1], 0.3, isolation="declared")
    records, offsets = torch.randn(4, 3, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    mask = None if counted is None else torch.tensor(counted)
    clipper.add((records[1:], offsets[1:]), counted=None if mask is None else mask[1:])
    expected = clipper.take()
    offsets[0] = value
    clipper.add((records, offsets), counted=mask)
    found = clipper.take()
    assert all(torch.allclose(found[parameter], expected[parameter], rtol=1e-12, atol=1e-15) for parameter in expected)


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(20, 4), nn.Embedding(6, 4), nn.Linear(4, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.words(tokens) + self.places(torch.arange(tokens.shape[1])[None]))


@pytest.mark.parametrize("records", [5, 6, 7])
def test_a_table_of_as_many_positions_as_records_is_no_other_than_one_of_fewer(records: int) -> None:
    torch.manual_seed(0)
    model = Positions().double()
    clipper = Clipper(model, lambda tokens: model(tokens).square().flatten(1).mean(1), 0.01)
    tokens = torch.randint(20, (records, 6))
    clipper.add(tokens)
    assert clipper.ways == {"fast"}
    found, total = clipper.take(), {parameter: torch.zeros_like(parameter.detach()) for parameter in model.parameters()}
    for record in tokens:
        own = torch.autograd.grad(model(record[None]).square().mean(), list(model.parameters()))
        norm = torch.stack([part.norm() for part in own]).norm()
        for parameter, part in zip(model.parameters(), own, strict=True):
            total[parameter] += part.detach() * min(1.0, 0.01 / float(norm))
    assert all(torch.allclose(found[parameter], tensor, rtol=1e-5, atol=1e-9) for parameter, tensor in total.items())


@pytest.mark.parametrize("isolation", ["checked", "enforced"])
def test_sums_are_in_the_order_of_the_parameters(isolation: str) -> None:
    """Several processes add them up one after another; one of them may have had no record."""
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    clipper = Clipper(model, lambda batch: model(batch).square().mean(1), isolation=isolation)
    for records in (0, 5):
        clipper.add(torch.randn(records, 3))
        assert list(clipper.take()) == list(model.parameters())
