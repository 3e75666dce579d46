"""What is done on a GPU in another way than on a CPU, done here: the same tests hold of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import pytest
import torch
from test_clipping_bound import (
    Cotangents,
    added,
    test_convolutions_to_few_places_that_are_not_kept,
    test_equal_positions_that_all_round_one_way_stay_below_the_bound,
    test_factors_of_any_size_stay_within_the_bound,
    test_one_position_of_any_size_stays_within_the_bound,
    test_positions_that_cancel_move_the_sums_by_no_more_than_the_bound,
    test_records_of_small_and_of_negative_weight_count_where_each_is_formed_alone,
    test_rows_that_cancel_beyond_float64_count_as_zero_and_others_do_not,
    test_squared_norms_at_any_size,
    test_squares_that_vanish_hide_no_norm,
    test_the_same_without_the_careful_way_exceeds_the_bound,
)
from test_clipping_bound_doubles import test_doubles_that_cancel_beyond_products_of_positions_stay_within_the_bound
from test_clipping_outer_products import (
    test_gradients_whose_squares_vanish_are_not_left_out,
    test_norms_and_sums_are_those_of_the_formed_gradients,
    test_positions_that_cancel_hide_no_norm,
    test_records_that_are_not_finite_are_left_out_by_weight_zero,
)
from test_clipping_together import test_parts_measured_together_are_measured_as_each_by_itself
from test_clipping_whole_models import test_float32_agrees_with_float64, test_they_clip_like_single_records
from torch import Tensor

from lethe.train.clipping.checks import steadiness
from lethe.train.clipping.records import lots
from lethe.train.clipping.records.lots import Lot
from lethe.train.clipping.rules import outer_products, parts
from lethe.train.clipping.rules.outer_products import OuterProducts, Shares
from lethe.train.clipping.unfollowed import UnfollowedError
from lethe.train.clipping.workspace import Workspace, at_once
from lethe.train.core import tensors
from lethe.train.core.tensors import has_fast_doubles

# Collected here, where the fixture below holds.
__all__ = [
    "test_convolutions_to_few_places_that_are_not_kept",
    "test_doubles_that_cancel_beyond_products_of_positions_stay_within_the_bound",
    "test_equal_positions_that_all_round_one_way_stay_below_the_bound",
    "test_factors_of_any_size_stay_within_the_bound",
    "test_float32_agrees_with_float64",
    "test_gradients_whose_squares_vanish_are_not_left_out",
    "test_norms_and_sums_are_those_of_the_formed_gradients",
    "test_one_position_of_any_size_stays_within_the_bound",
    "test_parts_measured_together_are_measured_as_each_by_itself",
    "test_positions_that_cancel_hide_no_norm",
    "test_positions_that_cancel_move_the_sums_by_no_more_than_the_bound",
    "test_records_of_small_and_of_negative_weight_count_where_each_is_formed_alone",
    "test_records_that_are_not_finite_are_left_out_by_weight_zero",
    "test_rows_that_cancel_beyond_float64_count_as_zero_and_others_do_not",
    "test_squared_norms_at_any_size",
    "test_squares_that_vanish_hide_no_norm",
    "test_the_same_without_the_careful_way_exceeds_the_bound",
    "test_they_clip_like_single_records",
]


@pytest.fixture(autouse=True, scope="module")
def asked_as_on_a_gpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("lethe.") and hasattr(module, "on_cpu"):
                patch.setattr(module, "on_cpu", lambda tensor: False)
        yield


def test_more_is_formed_at_once() -> None:
    assert at_once(2**20, torch.zeros(1)) == 2**23
    assert at_once(2**25, torch.zeros(1)) == 2**25


@pytest.mark.parametrize("shape", [(3, 1), (3, 1000), (7, 999), (40, 2**8)])
def test_norms_in_pieces_are_those_of_the_whole(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_ANEW_ON_GPU", 2**9)
    for size in (1e-30, 1.0, 1e30):
        given = size * torch.randn(shape, generator=torch.Generator().manual_seed(0))
        assert torch.allclose(parts.squares_of(given), given.double().square().sum(1), rtol=1e-14, atol=0)


def test_tensors_are_compared_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_AT_ONCE", 4)

    def changed(place: int) -> list[Tensor]:
        copies = [one.clone() for one in before]
        copies[place].view(-1)[-1] = float("nan") if copies[place].dtype.is_floating_point else 9
        return copies

    nan = torch.tensor([float("nan"), 0.0])
    before = [torch.zeros(2), torch.ones(3, 3), torch.zeros(()), torch.arange(3), torch.zeros(9, dtype=torch.float64), torch.ones(1), nan]
    assert tensors.same_bits(before, [one.clone() for one in before]) == [True] * 7
    for place in range(6):
        assert tensors.same_bits(changed(place), before) == [other != place for other in range(7)]
    assert tensors.same_bits([torch.tensor(-0.0), torch.zeros(2), torch.zeros(0)], [torch.tensor(0.0), torch.zeros(1), torch.zeros(0)]) == [
        False,
        False,
        True,
    ]
    assert tensors.same_bits([], []) == []
    single = torch.randn(1, 5)[:, 0]  # of one number, with a stride
    assert tensors.same_bits([single], [single.clone()]) == tensors.same_bits([single.clone()], [single]) == [True]


def test_records_that_are_not_formed_by_themselves_are_clipped_by_what_rounding_may_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 equal terms in float32: half an eps of all lengths for each addition (Higham 2002, section 3.1), and one for the products."""
    monkeypatch.setattr(outer_products, "shares_at", lambda like: Shares(math.inf, math.inf))
    part = OuterProducts(torch.ones(1, 300, 8), torch.full((1, 300, 8), 0.7))
    part.settle()
    allowed, slack = (1 + 300 / 2) * torch.finfo(torch.float32).eps * part.lengths(), part.slack()
    assert slack is not None
    assert bool((slack >= allowed).all())
    assert bool((slack < 1e-4 * part.squared_norms().sqrt()).all())
    given = torch.full((1, 300, 16), 0.7)
    given[..., 8:] = 1.0
    found = float(added(Cotangents("linear", 8), given, 0.1, "normalise").norm())
    assert found < 0.1 * (1 - 1e-5)


def test_what_was_formed_in_turn_is_clipped_for_both_times_that_it_is_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_products, "shares_at", lambda like: Shares(math.inf, 0.0))
    alone, beside, lot = OuterProducts(*factors(0)), [OuterProducts(*factors(seed)) for seed in range(3)], Lot()
    alone.settle()
    for part in beside:
        lot.add(part)
    lot.settle()
    for part in (alone, *beside):
        slack = part.slack()
        assert slack is not None
        assert bool((slack >= (1 + 2 * 40 / 2) * torch.finfo(torch.float32).eps * part.lengths() * (1 - 1e-9)).all())


def factors(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 40, 6, generator=generator), torch.randn(3, 40, 7, generator=generator)


@pytest.mark.parametrize("at_once", [1, 200, 2**25])
def test_lengths_of_several_attentions_are_those_of_each(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadiness, "_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 2, 5, 4), (3, 2, 7, 4), (3, 2, 5, 4), (6, 5, 4), (3, 2, 5, 4)]
    tensors = [torch.randn(shape, generator=generator) * (place + 1) for place, shape in enumerate(shapes)]
    told = steadiness._longest(tensors)
    for tensor, lengths in zip(tensors, told, strict=True):
        expected = tensor.double().norm(dim=-1).flatten(1).amax(1)
        torch.testing.assert_close(lengths, expected, rtol=1e-6, atol=0)


def test_parts_that_wait_for_each_other_hold_no_more_than_a_lot_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5 parts whose gradients are kept, 2 at a time; those that are not kept wait for the end."""

    def make(width: int) -> OuterProducts:
        return OuterProducts(torch.randn(3, 20, width), torch.randn(3, 20, width))

    kept, others, lot = [make(8) for _ in range(5)], [make(200) for _ in range(3)], Lot()
    monkeypatch.setattr(lots, "_HELD_ON_GPU", 4 * 2 * 3 * 20 * 8)
    with Workspace().open():
        for part in [*kept, *others]:
            lot.add(part)
        assert [part.decided for part in kept] == [True, True, True, True, False]
        assert not any(part.decided for part in others)
        lot.settle()
        assert all(part.decided and (part._kept is not None) == (part in kept) for part in [*kept, *others])


def test_a_factor_that_is_written_to_before_it_is_measured_is_refused() -> None:
    part, lot = OuterProducts(torch.randn(3, 4, 5), torch.randn(3, 4, 5)), Lot()
    lot.add(part)
    part.gradients.mul_(2)
    with pytest.raises(UnfollowedError, match="changed in place within the backward pass"):
        lot.settle()


@pytest.mark.parametrize(("capability", "fast"), [((9, 0), True), ((8, 0), True), ((8, 9), False), ((7, 5), False), ((12, 0), False)])
def test_products_of_positions_are_taken_where_float64_is_fast(
    capability: tuple[int, int], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    has_fast_doubles.cache_clear()
    assert has_fast_doubles(torch.device("cuda", 0)) == fast
    assert has_fast_doubles(torch.device("cpu"))
    has_fast_doubles.cache_clear()
