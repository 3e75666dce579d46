"""Sums over records: what float64 may put them off, and one record that decides how the sum of all others is rounded."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress

import pytest
import torch
from torch import Tensor, nn

import lethe
from lethe.errors import InputError
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.groups import METHODS, Group
from lethe.train.clip.in_float64 import CHAIN
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import Memory, OuterProducts
from lethe.train.clip.parts.part import CANCELLED, MaterialisedGradients
from lethe.train.clip.sum_error import largest_batch, margin_of, shorter, sum_error
from lethe.train.clip.sums import ClippedSums

GROUPS = (Group(parameters=("*",), clip_norm=2.0),)
NUMBERS = 16  # of trained numbers, which all have the same gradient


def run_of(records: int, batches: lethe.batches.Poisson | lethe.batches.Full) -> lethe.Run:
    return lethe.Run(
        records=records,
        batches=batches,
        steps=1,
        step_size=1.0,
        clip_norm=2.0,
        noise_multiplier=1.0,
        release="all",
        neighbours="replace_one",
    )


def test_sixty_thousand_records_lose_three_parts_in_a_hundred_thousand() -> None:
    expected = 2 * 2.0**-53 * 60_000 * (1024 * (2 * 1024 + 64) + 2 * 64 + 60_000 + 1024 + 64)
    assert expected <= sum_error(60_000, 64, processes=1) <= expected * (1 + 1e-4)
    assert expected < 3e-5
    (group,) = shorter(GROUPS, margin_of(run_of(60_000, lethe.batches.Full()), 64, processes=1))
    assert 2.0 * (1 - expected * (1 + 1e-4)) <= group.clip_norm <= 2.0 * (1 - expected)
    more = expected + 2 * 2.0**-53 * 60_000 * 3072
    assert more <= sum_error(60_000, 64, processes=4096) <= more * (1 + 1e-4)


def test_sums_are_in_the_order_of_the_model_whichever_way_they_came() -> None:
    """In which noise is drawn: gradients arrive last layer first, and those of some parameters not at all."""
    trained = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    summed = ClippedSums(GROUPS, METHODS["normalise"])
    names = {parameter: str(place) for place, parameter in enumerate(trained)}
    summed.add({trained[place]: MaterialisedGradients(torch.ones(1, 2)) for place in (2, 1)}, names, torch.zeros(1), None)
    assert [id(parameter) for parameter in summed.take(trained)] == [id(parameter) for parameter in trained]


@pytest.mark.parametrize(("fails", "total"), [(False, 0.0), (True, 2.0)])
def test_what_fails_half_way_adds_nothing_and_takes_nothing(fails: bool, total: float) -> None:
    parameter, summed = nn.Parameter(torch.zeros(1)), ClippedSums(GROUPS, METHODS["normalise"])
    summed.add({parameter: MaterialisedGradients(torch.ones(1, 1))}, {parameter: "weight"}, torch.zeros(1), None)
    with suppress(ValueError), summed.all_or_nothing():
        summed.add({parameter: MaterialisedGradients(-torch.ones(1, 1))}, {parameter: "weight"}, torch.zeros(1), None)
        if fails:
            raise ValueError
    assert float(summed.take([parameter])[parameter]) == pytest.approx(total, abs=1e-4)


def test_every_group_is_shortened() -> None:
    groups = (*GROUPS, Group(parameters=("*bias",), clip_norm=3.0))
    assert [group.clip_norm for group in shorter(groups, 0.25)] == [1.5, 2.25]


def test_it_is_said_where_it_is_more_than_a_thousandth_and_refused_where_half_is_lost() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        margin_of(run_of(600_000, lethe.batches.Full()), None, processes=1)
    with pytest.warns(UserWarning, match=r"2000000 gradients in parts of 2000000 may be off by 0\.0037 of the clip norm.*smaller batches"):
        margin_of(run_of(2_000_000, lethe.batches.Full()), None, processes=1)
    with pytest.raises(InputError, match="smaller batches"):
        margin_of(run_of(50_000_000, lethe.batches.Full()), None, processes=1)


def test_random_batches_are_taken_at_a_size_that_they_never_have() -> None:
    assert largest_batch(run_of(10**6, lethe.batches.Poisson(1000))) == math.ceil(1000 + 12 * math.sqrt(1000) + 100)
    assert largest_batch(run_of(50, lethe.batches.Poisson(10))) == 50
    assert largest_batch(run_of(10**6, lethe.batches.Poisson(1000, truncate_at=1200))) == 1200
    assert largest_batch(run_of(70, lethe.batches.Full())) == 70


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


@pytest.mark.slow
@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [8, 128, 8192])
def test_one_record_decides_on_no_rounding_of_the_others(kind: str, part: int, memory: int | None) -> None:
    """The others bring the sum to a power of two; in float32 sums those after it would be lost or doubled: up to 2.65 C."""
    ends = [summed(kind, targets_of(8192, part, sign), part, isolation="declared", gradient_memory=memory) for sign in (1.0, -1.0)]
    moved = float((ends[0] - ends[1]).sum()) / math.sqrt(NUMBERS) / 2
    assert 0.99 < moved <= 1 + 1e-9


@pytest.mark.slow
def test_nor_where_records_are_computed_alone() -> None:
    ends = [summed("product", targets_of(1024, 8, sign), 128, isolation="enforced") for sign in (1.0, -1.0)]
    assert 0.99 < float((ends[0] - ends[1]).sum()) / math.sqrt(NUMBERS) / 2 <= 1 + 1e-9


def test_the_margin_is_left_of_every_record() -> None:
    targets = torch.tensor([5.0, 0.0])
    whole = summed("product", targets, 2, isolation="declared").norm()
    assert float(summed("product", targets, 2, isolation="declared", margin=0.25).norm() / whole) == pytest.approx(0.75, rel=1e-6)


def test_a_batch_that_failed_half_way_leaves_the_sums_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, batch = nn.Linear(4, 3), torch.randn(6, 4)
    clipper = Clipper(model, lambda rows: model(rows).square().sum(1), isolation="declared")
    clipper.add(batch)
    once = {parameter: tensor.clone() for parameter, tensor in clipper.take().items()}

    def fail(*_: object) -> Tensor:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(MaterialisedGradients, "weighted", fail)
        with pytest.raises(MemoryError):
            clipper.add(batch)
    clipper.add(batch)
    assert all(torch.equal(tensor, once[parameter]) for parameter, tensor in clipper.take().items())


def test_sums_of_parameters_that_were_frozen_meanwhile_are_not_lost_silently() -> None:
    model = nn.Linear(4, 3)
    clipper = Clipper(model, lambda rows: model(rows).sum(1), isolation="declared")
    clipper.add(torch.randn(6, 4))
    model.bias.requires_grad_(False)
    assert len(clipper.take()) == 2
    model.bias.requires_grad_(True)
    clipper.add(torch.randn(6, 4))
    model.bias.requires_grad_(False)
    clipper.add(torch.randn(6, 4))
    with pytest.raises(InputError, match="no longer trained"):
        clipper.take()


def test_what_was_added_in_vain_is_no_sum() -> None:
    sums = ClippedSums(GROUPS, METHODS["clip"])
    parameter = nn.Parameter(torch.zeros(1))
    one = {parameter: MaterialisedGradients(torch.ones(1, 1))}
    sums.add(one, {parameter: "p"}, torch.zeros(1), None)

    def failing() -> None:
        with sums.all_or_nothing():
            sums.add({parameter: MaterialisedGradients(torch.full((1, 1), 0.5))}, {parameter: "p"}, torch.zeros(1), None)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    with sums.all_or_nothing():
        sums.add(one, {parameter: "p"}, torch.zeros(1), None)
    assert float(sums.take([parameter])[parameter]) == pytest.approx(2.0, rel=1e-6)
