"""How far float64 may put a sum off: clipped to so much less, and told of where it matters."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import lethe
from lethe.errors import InputError
from lethe.train.clipping import Group
from lethe.train.clipping.contributions import _LayerPart
from lethe.train.clipping.records.sum_error import _TERMS, _TERMS_ON_GPU, largest_batch, margin_of, shorter, sum_error
from lethe.train.clipping.rules.measuring import _SHARE_SHRUNK, _SHARE_SHRUNK_ON_GPU
from lethe.train.clipping.rules.outer_products import OuterProducts
from lethe.train.core.together.weighing import FORMED_FOR_SUM, weighed

CPU = torch.device("cpu")
GROUPS = (Group(parameters=("*",), clip_norm=2.0),)


def run_of(records: int, batches: lethe.Poisson | lethe.Full) -> lethe.Run:
    return lethe.Run(records=records, batches=batches, steps=1, step_size=1.0, clip_norm=2.0, noise_multiplier=1.0, release="all")


def test_sixty_thousand_records_lose_a_part_in_a_million() -> None:
    expected = 2 * 2.0**-53 * 60_000 * (67 + 60_000 + 1024 + 64)
    assert expected <= sum_error(60_000, 64, processes=1, device=CPU) <= expected * (1 + 1e-5)
    assert expected < 1e-6
    (group,) = shorter(GROUPS, margin_of(run_of(60_000, lethe.Full()), 64, processes=1, device=CPU))
    assert group.clip_norm == pytest.approx(2.0 * (1 - expected), rel=1e-11)
    assert group.clip_norm <= 2.0 * (1 - expected)


def test_every_group_is_shortened() -> None:
    groups = (*GROUPS, Group(parameters=("*bias",), clip_norm=3.0))
    assert [group.clip_norm for group in shorter(groups, 0.25)] == [1.5, 2.25]


def test_parts_of_one_size_are_counted() -> None:
    expected = 2 * 2.0**-53 * 60_000 * (67 * 1000 + 60 + 1024 + 64)
    assert expected <= sum_error(60_000, 1000, processes=1, device=CPU) <= expected * (1 + 1e-5)
    expected = 2 * 2.0**-53 * 60_000 * (67 * 1000 + 60 + 4096 + 64)
    assert expected <= sum_error(60_000, 1000, processes=4096, device=CPU) <= expected * (1 + 1e-5)


@pytest.mark.parametrize("part", [1, 8, 64, 1000, 60_000])
def test_smaller_parts_than_planned_are_within_the_bound(part: int) -> None:
    """A model that no rule can follow is trained record by record, whatever physical_size is."""
    planned = sum_error(60_000, part, processes=1, device=CPU)
    for smaller in (size for size in (1, 2, 8, 64, 300, 999, 1000) if size <= part):
        assert planned >= 2.0**-52 * 60_000 * (67 * smaller + 60_000 / smaller + 1024 + 64)


def test_it_is_told_where_it_is_more_than_a_thousandth_and_refused_where_half_is_lost() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        margin_of(run_of(200_000, lethe.Full()), None, processes=1, device=CPU)
    with pytest.warns(UserWarning, match=r"1000000 gradients in parts of 1000000 may be off by 0\.015 of the clip norm.*physical_size"):
        margin_of(run_of(1_000_000, lethe.Full()), None, processes=1, device=CPU)
    with pytest.raises(InputError, match="give physical_size"):
        margin_of(run_of(10_000_000, lethe.Full()), None, processes=1, device=CPU)


def test_random_batches_are_taken_at_a_size_that_they_never_have() -> None:
    assert largest_batch(run_of(10**6, lethe.Poisson(size=1000))) == math.ceil(1000 + 12 * math.sqrt(1000) + 100)
    assert largest_batch(run_of(50, lethe.Poisson(size=10))) == 50
    assert largest_batch(run_of(10**6, lethe.Poisson(size=1000, truncate_at=1200))) == 1200
    assert largest_batch(run_of(70, lethe.Full())) == 70


@pytest.mark.parametrize("records", [2, 100, 5000])
def test_no_order_of_additions_is_off_by_more(records: int) -> None:
    """Beside exact sums: rows of equal numbers that all round one way, added one after another."""
    row = 1.0 + 2.0**-52
    total = 0.0
    for _ in range(records):
        total += row
    exact = math.fsum([row] * records)
    assert 2 * abs(total - exact) <= sum_error(records, records, processes=1, device=CPU)


@pytest.mark.parametrize(("shrunk", "terms", "additions"), [(_SHARE_SHRUNK, _TERMS, 0.5), (_SHARE_SHRUNK_ON_GPU, _TERMS_ON_GPU, 0.0)])
def test_records_that_stay_in_a_product_have_no_longer_terms_than_are_counted(shrunk: float, terms: int, additions: float) -> None:
    """T times the lengths of the terms, of a record whose slack is just small enough; on a GPU T/2 roundings, on a CPU (T + 1)/2."""
    for positions in range(2, FORMED_FOR_SUM):
        lengths = shrunk / (2.0**-23 * (1.0 + positions / 2.0 + additions))
        assert positions * lengths <= terms


def test_positions_of_doubles_are_formed_record_by_record() -> None:
    """They may cancel further than is counted for a product over all records."""
    random = torch.Generator().manual_seed(0)
    part = OuterProducts(*(torch.randn(40, 2, 64, dtype=torch.float64, generator=random) for _ in range(2)))
    weights = torch.rand(40, dtype=torch.float64, generator=random)
    found, formed = part.weighted_sum(weights), OuterProducts(part.inputs, part.gradients).per_record()
    assert part._kept is None
    assert torch.equal(found, weighed(weights, formed))


class Coarse:
    """A rule that adds records up in float32."""

    rows = torch.tensor([1.0, *[2.0**-24] * 16])

    def weighted_sums(self, weights: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"weight": sum((weight * row for weight, row in zip(weights.float(), self.rows, strict=True)), torch.zeros(()))}


def test_a_rule_that_adds_in_float32_is_asked_record_by_record() -> None:
    weights = torch.ones(17, dtype=torch.float64)
    assert float(Coarse().weighted_sums(weights)["weight"]) == 1.0
    found = _LayerPart(Coarse(), "weight").weighted_sum(weights)  # pyright: ignore[reportArgumentType]
    assert float(found) == 1.0 + 2.0**-20
