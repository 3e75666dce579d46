"""One record that decides how the sum of all others is rounded."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from lethe.train.clip.clipper import Clipper
from lethe.train.clip.in_float64 import CHAIN
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import CANCELLED
from lethe.train.clip.sum_error import sum_error

NUMBERS = 16  # of trained numbers, which all have the same gradient


def targets_of(records: int, part: int, sign: float) -> Tensor:
    """Each record's gradient, shorter than 1 over all numbers, in float32; after the first ones `part` add half a unit of rounding."""
    top = (1 - 1e-5) / math.sqrt(NUMBERS)
    before = max(part, int(0.6 * records) // part * part) if part < records else int(0.6 * records)
    power = 2.0 ** math.floor(math.log2(0.9 * before * top))
    targets = torch.full((records,), 0.51 * 2.0**-23 * power / part)
    targets[:before] = power / before
    targets[0] = sign * top
    return targets


class Shift(nn.Module):
    """A layer of which only the bias is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, NUMBERS)
        self.layer.weight.requires_grad_(False)

    def forward(self, given: Tensor) -> Tensor:
        return self.layer(given)


KINDS = {
    "product": (lambda: nn.Linear(8, 2, bias=False), torch.ones(8)),
    "positions": (lambda: nn.Linear(8, 2, bias=False), torch.full((32, 8), 1 / 32)),
    "convolution": (lambda: nn.Conv1d(4, 2, 2, bias=False), torch.full((4, 3), 1 / 2)),
    "shift": (Shift, torch.zeros(1)),
    "table": (lambda: nn.Embedding(1, NUMBERS), torch.zeros((), dtype=torch.int64)),
}
"""Models of 16 trained numbers, and an input for which each one's gradient is the record's target."""


def summed(kind: str, targets: Tensor, part: int, **options: object) -> Tensor:
    made, record = KINDS[kind]
    model = made()
    clipper = Clipper(model, lambda batch: model(batch[0]).flatten(1).sum(1) * batch[1], 1.0, **options)  # pyright: ignore
    for some in targets.split(part):
        clipper.add((record.expand(len(some), *record.shape), some))
    return torch.cat([tensor.flatten() for tensor in clipper.take().values()])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [8, 128, 8192])
def test_one_record_decides_on_no_rounding_of_the_others(kind: str, part: int, memory: int | None) -> None:
    """The others bring the sum to a power of two; in float32 sums those after it would be lost or doubled: up to 2.65 C."""
    ends = [summed(kind, targets_of(8192, part, sign), part, isolation="declared", gradient_memory=memory) for sign in (1.0, -1.0)]
    moved = float((ends[0] - ends[1]).sum()) / math.sqrt(NUMBERS) / 2
    assert 0.99 < moved <= 1 + 1e-9


def test_nor_where_records_are_computed_alone() -> None:
    ends = [summed("product", targets_of(1024, 8, sign), 128, isolation="enforced") for sign in (1.0, -1.0)]
    assert 0.99 < float((ends[0] - ends[1]).sum()) / math.sqrt(NUMBERS) / 2 <= 1 + 1e-9


@pytest.mark.parametrize("records", [2, 100, 5000])
def test_no_order_of_additions_is_off_by_more(records: int) -> None:
    """Beside exact sums: rows of equal numbers that all round one way, added one after another."""
    row = 1.0 + 2.0**-52
    total = 0.0
    for _ in range(records):
        total += row
    assert 2 * abs(total - math.fsum([row] * records)) <= sum_error(records, records, processes=1)


@pytest.mark.parametrize("positions", [2, 8])
def test_records_that_cancel_put_the_sum_off_by_no_more_than_is_counted(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many terms of as long lengths as are let through, which all round one way, in one product."""
    monkeypatch.setattr(outer_products, "forming", lambda *_: (False, False))
    records = 3 * CHAIN
    x, g = torch.full((records, positions, 1), 1.0), torch.full((records, positions, 1), 1.0 / 3.0)
    g[:, positions // 2 :] *= -1 + 1 / CANCELLED
    part = OuterProducts(x, g, Memory(0))
    weights = 1 / part.squares().sqrt()
    assert float((part.lengths() * weights).max()) <= CANCELLED * (1 + 1e-9)
    found = float(part.weighted(weights))
    exact = math.fsum((weights[:, None].double() * g[:, :, 0].double()).flatten().tolist())
    assert 2 * abs(found - exact) <= sum_error(records, records, processes=1)
