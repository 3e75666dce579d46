import math
from itertools import product

import numpy as np
import pytest
import torch
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from lethe.train.clipping import METHODS
from lethe.train.clipping.groups import Group, clip_weights
from lethe.train.clipping.rules import measuring, outer_products
from lethe.train.clipping.rules.outer_products import OuterProducts, Shares
from lethe.train.clipping.rules.parts import lengths_at_most


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    batch=st.integers(0, 5),
    positions=st.integers(1, 6),
    widths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    seed=st.integers(0, 99),
)
def test_norms_and_sums_are_those_of_the_formed_gradients(batch: int, positions: int, widths: tuple[int, int], seed: int) -> None:
    torch.manual_seed(seed)
    inputs = torch.randn(batch, positions, widths[0], dtype=torch.float64)
    gradients = torch.randn(batch, positions, widths[1], dtype=torch.float64)
    formed = torch.einsum("btp,btd->bpd", gradients, inputs)
    part, weights = OuterProducts(inputs, gradients), torch.randn(batch, dtype=torch.float64)
    torch.testing.assert_close(part.squared_norms(), formed.square().sum((1, 2)), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.weighted_sum(weights), torch.einsum("b,bpd->pd", weights, formed), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(part.per_record(), formed, rtol=1e-12, atol=1e-12)


def test_pieces_of_the_batch_make_the_same_norms(monkeypatch) -> None:
    torch.manual_seed(0)
    for positions in (3, 40):  # by products of Grams, and formed
        part = OuterProducts(torch.randn(7, positions, 30), torch.randn(7, positions, 20))
        whole = part.squared_norms()
        with monkeypatch.context() as patch:
            patch.setattr(outer_products, "_HELD", 1300)
            pieces = OuterProducts(part.inputs, part.gradients)
            torch.testing.assert_close(pieces.squared_norms(), whole, rtol=1e-6, atol=0)
            weights = torch.rand(7)
            torch.testing.assert_close(pieces.weighted_sum(weights).float(), part.weighted_sum(weights).float())


def test_positions_that_cancel_hide_no_norm() -> None:
    """Large contributions that cancel but for a remainder: Grams alone lose the remainder, and would let it through unclipped."""
    torch.manual_seed(0)
    large_in, large_out = 100 * torch.randn(20, 1, 64), 100 * torch.randn(20, 1, 64)
    inputs = torch.cat([large_in, large_in, torch.randn(20, 1, 64)], dim=1)
    gradients = torch.cat([large_out, -large_out, torch.randn(20, 1, 64)], dim=1)
    grams = ((inputs @ inputs.mT) * (gradients @ gradients.mT)).sum((1, 2))
    part = OuterProducts(torch.cat([inputs, torch.randn(1, 3, 64)]), torch.cat([gradients, torch.randn(1, 3, 64)]))
    true = torch.einsum("btp,btd->bpd", part.gradients.double(), part.inputs.double()).square().sum((1, 2))
    ratios = grams / true[:20]
    assert ((ratios > 0) & (ratios < 0.9)).any()  # so this test can fail, and not only by a negative square
    # formed: each of 64^2 entries is off by some 1e-7 of 1e4, and is of size 1
    torch.testing.assert_close(part.squared_norms().double(), true, rtol=1e-3, atol=0)


def test_records_that_are_not_finite_are_left_out_by_weight_zero() -> None:
    for widths in ((2, 5), (5, 2)):
        inputs, gradients = torch.ones(2, 3, widths[0]), torch.ones(2, 3, widths[1])
        inputs[1], gradients[1] = torch.nan, torch.inf
        part = OuterProducts(inputs, gradients)
        assert (part.weighted_sum(torch.tensor([2.0, 0.0])) == 6).all()


BRANCHES = {"positions": (math.inf, math.inf), "formed in turn": (math.inf, -1.0), "kept": (-1.0, math.inf)}


def excess(part: OuterProducts) -> float:
    """By how much of C what is added of one record exceeds C = 1."""
    whole = Group(parameters=("*",), clip_norm=1.0)
    weights = clip_weights(part.squared_norms(), whole, METHODS["normalise"], numbers=part.numbers, dtype=torch.float32, slack=part.slack())
    return float(part.weighted_sum(weights).double().norm()) - 1.0


@pytest.fixture(params=BRANCHES)
def branch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_products, "shares_at", lambda like: Shares(*BRANCHES[request.param]))


@pytest.mark.sampled(30)
@pytest.mark.slow
@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize(
    ("positions", "widths"),
    [*product((384, 768, 4096), [(1, 1), (1, 8), (64, 1)]), (384, (256, 8)), (768, (16, 300))],  # wide ones are slow at length
)
def test_many_equal_terms_stay_below_the_bound(positions: int, widths: tuple[int, int]) -> None:
    for size in torch.linspace(0.51, 1.49, 7 if positions > 1000 else 21).tolist():
        inputs, gradients = torch.full((1, positions, widths[0]), size), torch.ones(1, positions, widths[1])
        assert excess(OuterProducts(inputs, gradients)) <= 0


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("branch")
@pytest.mark.parametrize("widths", [(4, 4), (1, 4)])
@pytest.mark.parametrize("rest", [0.0, 0.05, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("positions", [128, 384, 1024])
def test_small_terms_that_a_large_one_rounds_up_before_it_cancels(positions: int, rest: float, widths: tuple[int, int]) -> None:
    inputs, gradients = torch.zeros(1, positions, widths[0]), torch.ones(1, positions, widths[1])
    last = min(positions, 384)
    inputs[0, 0], inputs[0, 1 : last - 2] = 1.0, 0.51 * 2.0**-23
    if rest:
        inputs[0, last - 2], inputs[0, last - 1] = -1.0, rest
    assert excess(OuterProducts(inputs, gradients)) <= 0


def test_narrow_sums_are_as_right_as_wide_ones_however_many_terms_there_are() -> None:
    for widths in ((1, 1), (1, 8), (64, 1)):
        inputs, gradients = torch.full((8, 4100, widths[0]), 0.7), torch.ones(8, 4100, widths[1])
        told = OuterProducts(inputs, gradients).weighted_sum(torch.ones(8)).double()
        exact = 8 * 4100 * inputs[0, 0, 0].double()
        assert float((told / exact - 1).abs().max()) <= 50 * 2.0**-23


def silent(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """Five records of 40 positions, of which two have a gradient in some record."""
    torch.manual_seed(0)
    inputs, gradients = torch.randn(5, 40, 6, dtype=dtype), torch.zeros(5, 40, 4, dtype=dtype)
    gradients[:, 7], gradients[2, 31] = torch.randn(5, 4, dtype=dtype), 1.0
    return inputs, gradients


def test_positions_without_a_gradient_are_let_go_of() -> None:
    inputs, gradients = silent()
    part, formed = OuterProducts(inputs, gradients), torch.einsum("btp,btd->bpd", gradients, inputs)
    torch.testing.assert_close(part.squared_norms().float(), formed.square().sum((1, 2)))
    torch.testing.assert_close(part.weighted_sum(torch.arange(5.0)).float(), torch.einsum("b,bpd->pd", torch.arange(5.0), formed))
    assert part.inputs.shape[1] == 3  # the first is always kept
    nothing = OuterProducts(inputs, torch.zeros_like(gradients))
    assert not nothing.squared_norms().any()
    assert not nothing.weighted_sum(torch.ones(5)).any()


@pytest.mark.parametrize("value", [-1e-3, 1e-3, math.nan])
def test_one_number_of_a_gradient_is_heard(value: float) -> None:
    inputs, gradients = silent()
    gradients[4, 33, 2] = value
    part = OuterProducts(inputs, gradients)
    part.squared_norms()
    assert part.inputs.shape[1] == 4


def test_without_inputs_there_is_nothing_to_leave_out() -> None:
    _, gradients = silent()
    part = OuterProducts(torch.zeros(5, 40, 0), gradients)
    assert not part.squared_norms().any()
    assert part.weighted_sum(torch.ones(5)).shape == (4, 0)


@pytest.mark.parametrize("heard", [(0,), (20,), (39,), (0, 39), (0, 18, 38)])
def test_they_are_whichever_positions_have_one(heard: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs, gradients = torch.randn(5, 40, 6), torch.zeros(5, 40, 4)
    gradients[3, heard] = torch.randn(len(heard), 4)  # of one record alone
    part = OuterProducts(inputs, gradients)
    torch.testing.assert_close(part.squared_norms().float(), torch.einsum("btp,btd->bpd", gradients, inputs).square().sum((1, 2)))
    assert part.inputs.shape[1] == len({0, *heard})


def terms(kind: str, size: float, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Of three records in 32 positions; the second one is of a kind."""
    generator = torch.Generator().manual_seed(0)
    x, g = (torch.randn(3, 32, 24, generator=generator, dtype=torch.float64) for _ in range(2))
    if kind == "cancels":  # what is left is so many times smaller than the terms
        x[1, 16:], g[1, 16:] = x[1, :16], -g[1, :16] * (1 + 1 / size)
    elif kind == "large inputs":
        x[1], g[1] = x[1] * size, g[1] / size
    elif kind == "small":
        g[1] /= size
    elif kind == "all":
        g[1] = size
    elif kind == "padding":  # has an input of that size
        x[1, 5], g[1] = size, 0
    return x.to(dtype), g.to(dtype)


CANCELLING = [("cancels", 10.0**power) for power in (1, 1.5, 2, 2.25, 2.5, 2.75, 3, 4, 6, 9, 12, math.inf)]
OTHERS = {"small": (1.0, 1e6, 1e25, 1e38), "large inputs": (1e14, 1e16), "all": (math.inf, math.nan), "padding": (1.0, 1e16, math.inf)}


@pytest.mark.parametrize(("kind", "size"), [*CANCELLING, *((kind, size) for kind, sizes in OTHERS.items() for size in sizes)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_a_quick_bound_clears_of_doubt_is_not_in_doubt(
    kind: str, size: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outer_products, "shares_at", lambda like: Shares(0.0, 0.5))
    quick, asked = (OuterProducts(*terms(kind, size, dtype)) for _ in range(2))
    found = quick._measured()
    monkeypatch.setattr(OuterProducts, "_at_most", lambda self: None)
    expected = asked._measured()
    assert quick._kept is not None
    assert found.exact.tolist() == expected.exact.tolist()
    assert torch.equal(found.squares.nan_to_num(nan=-1.0), expected.squares.nan_to_num(nan=-1.0))
    weights = torch.tensor([0.5, 0.25, 2.0], dtype=torch.float64).where(found.squares.isfinite(), 0.0)
    assert torch.equal(quick.weighted_sum(weights), asked.weighted_sum(weights))
    if kind == "cancels" and dtype == torch.float32:
        assert size in (10.0**1.5, 100.0) or found.exact.tolist() == [1] * (size > 100)
    # Ordinary records, and padding, are not asked one by one.
    assert (quick._lengths is None) or size not in (1.0, 10.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_bound_clears_up_to_where_a_record_would_be_in_doubt(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    part = OuterProducts(torch.ones(2, 3, 4, dtype=dtype), torch.ones(2, 3, 4, dtype=dtype))
    part.gradients[1] = 0
    border = float(measuring.lost(torch.tensor(1.0).double(), dtype)) / measuring.SHARE_FORMED

    def clears(norms: list[float], lengths: list[float], longest: float = 1.0) -> bool:
        monkeypatch.setattr(part, "_at_most", lambda: (np.array(lengths), longest))
        return part._beyond_doubt(np.array(norms))

    assert clears([1.01 * border, 2 * border], [1.0, 1.0])
    assert not clears([0.99 * border, 2 * border], [1.0, 1.0])
    assert not clears([2 * border, 0.99 * border], [1.0, 1.0])  # without terms, and yet with a norm
    assert clears([2 * border, 0.0], [1.0, 1.0])  # padding
    assert not clears([0.0, 2 * border], [1.0, 1.0])  # terms that cancel
    for lost in (math.nan, math.inf):
        assert not clears([2 * border, 2 * border], [1.0, lost])
        assert not clears([2 * border, lost], [1.0, lost], longest=lost)
    assert clears([2 * border, 2 * border], [1.0, 1.0], longest=0.99 * measuring.ROOM[dtype])
    assert not clears([2 * border, 2 * border], [1.0, 1.0], longest=1.01 * measuring.ROOM[dtype])


@pytest.mark.parametrize("positions", [1, 7, 24, 128])
@pytest.mark.parametrize("size", [1.0, 1.0000001, 1e-12, 3e-20, 1e-23, 1e12])
def test_the_bound_is_no_shorter_than_the_lengths(positions: int, size: float) -> None:
    """Equal numbers all round one way, and squares may vanish."""
    x, g = torch.full((2, positions, 700), size), torch.full((2, positions, 3), 1.0000001)
    exact = [factor.double().norm(dim=2) for factor in (x, g)]
    found = lengths_at_most(x, g)
    assert found is not None
    assert (torch.from_numpy(found[0]) >= torch.linalg.vecdot(*exact)).all()
    assert found[1] >= max(float(one.max()) for one in exact)
    if size > 1e-9:
        torch.testing.assert_close(torch.from_numpy(found[0]), torch.linalg.vecdot(*exact), rtol=0.03, atol=0)


def test_a_record_that_is_not_finite_counts_alike_whatever_positions_the_others_use() -> None:
    for company in (slice(0, 1), slice(0, 5)):
        inputs, gradients = silent()
        inputs[0, 20] = torch.inf  # times a gradient of 0
        part = OuterProducts(inputs[company], gradients[company])
        assert part.squared_norms().isfinite().tolist() == [False, True, True, True, True][company]


def test_gradients_whose_squares_vanish_are_not_left_out() -> None:
    for dtype, small in ((torch.float32, 1e-30), (torch.float64, 1e-200)):
        inputs, gradients = silent(dtype)
        gradients[3, 25] = small
        part = OuterProducts(inputs, gradients)
        part.squared_norms()
        assert (part.gradients == small).any()


def test_records_of_weight_zero_are_not_formed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_products, "shares_at", lambda like: Shares(math.inf, 0.5))
    asked: list[int] = []
    raw = OuterProducts._raw
    monkeypatch.setattr(
        OuterProducts, "_raw", lambda self, rows, *args, **more: (asked.extend(rows.tolist()), raw(self, rows, *args, **more))[1]
    )
    torch.manual_seed(0)
    inputs, gradients = torch.randn(5, 64, 6), torch.randn(5, 64, 4)
    part, weights = OuterProducts(inputs, gradients), torch.tensor([0.0, 2.0, 0.0, 0.0, 1.0])
    torch.testing.assert_close(part.weighted_sum(weights).float(), torch.einsum("b,btp,btd->pd", weights, gradients, inputs))
    assert asked == [1, 4]
    assert not part.weighted_sum(torch.zeros(5)).any()
