"""Parts of a gradient, squared norms, weights and sums over records: what rounding and vanishing take from them is counted."""

import math
import warnings
from unittest.mock import patch

import pytest
import torch
from helpers import make_run
from torch import Tensor, nn

import lethe
from lethe.errors import InputError
from lethe.train.clip import float64_sums, groups, sums
from lethe.train.clip.clipper import Clipper
from lethe.train.clip.float64_sums import squares_of
from lethe.train.clip.groups import METHODS, Group
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import Memory, OuterProducts, Several, together
from lethe.train.clip.parts.part import CANCELLED, MaterialisedGradients, ParameterGradients, TokenRows
from lethe.train.clip.sum_error import largest_batch, margin_of, shorter, sum_error


@pytest.mark.parametrize("width", [1, 8, 255, 256, 300, 511, 512, 1024, 5000, 2**16])
def test_squared_norms_are_right_to_a_few_roundings(width: int) -> None:
    """Of any size; of equal numbers, whose squares all round one way; beside rows of zeros; and of half precision."""
    torch.manual_seed(0)
    random, sizes = torch.randn(3, width), torch.linspace(0.5, 1.5, 301 if width < 2**16 else 31)
    equal = sizes[:, None].repeat(1, width)
    for rows in (equal, equal.T.contiguous().T):
        torch.testing.assert_close(squares_of(rows), width * sizes.double().square(), rtol=22 * 2.0**-23, atol=0)
    few = torch.zeros(6, width)
    few[1, width // 3], few[4, -1], few[5] = 1e-30, 1e30, 1e-25
    for rows in (few, *(random * size for size in (0.0, 1e-40, 1e-22, 1e-13, 1.0, 1e16, 1e30))):
        for at_once in (1, 2**18):
            with patch("lethe.train.clip.float64_sums._AT_ONCE", at_once):
                torch.testing.assert_close(squares_of(rows), rows.double().square().sum(1), rtol=22 * 2.0**-23, atol=0)
    for kind in (torch.bfloat16, torch.float16):
        rows = random.to(kind)
        torch.testing.assert_close(MaterialisedGradients(rows).squares(), rows.double().square().sum(1), rtol=22 * 2.0**-23, atol=0)


F32, F64 = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("kinds", "sizes", "room"),
    [
        ((F32, F64), (1, 1), 32 * 2.0**-23),
        ((F64, F32), (1, 1), 32 * 2.0**-23),
        ((F64, F64), (10**6, 1), (10**6 + 65) / 2 * 2.0**-52),
        ((F64, F64), (1, 10**6), (10**6 + 65) / 2 * 2.0**-52),
    ],
)
def test_a_group_is_given_the_room_of_its_coarsest_gradients_and_of_all_its_numbers(
    kinds: tuple[torch.dtype, ...], sizes: tuple[int, ...], room: float
) -> None:
    parameters = {
        nn.Parameter(torch.zeros(size).double()): MaterialisedGradients(torch.eye(1, size, dtype=kind))
        for kind, size in zip(kinds, sizes, strict=True)
    }
    summed = sums.ClippedSums(groups.as_groups(1.0), METHODS["normalise"])
    summed.add(parameters, {parameter: str(place) for place, parameter in enumerate(parameters)}, torch.zeros(1), None)
    for total in summed.sums.values():
        assert 1 - float(total[0]) * math.sqrt(2) == pytest.approx(room, rel=1e-3)


@pytest.mark.parametrize("width", [3, 2**17, 2**18 + 5])
def test_records_are_never_added_in_less_than_float64(width: int) -> None:
    rows, weights = torch.ones(2, width), torch.tensor([1.0, 2.0**-40], dtype=torch.float64)
    assert bool((float64_sums.weighed(weights, rows) == 1 + 2.0**-40).all())
    exact = float64_sums.products_added(weights, rows[:, None, :3], rows[:, None, :4])
    assert bool((exact == 1 + 2.0**-40).all())


def test_what_may_have_vanished_counts_as_there_and_rounding_alone_is_not_brought_to_the_norm() -> None:
    """Each of n numbers below the smallest normal one may be missing from what was measured."""
    group, tiny = groups.as_groups(1.0)[0], torch.finfo(torch.float32).tiny

    def weights(*squared: float, whole: Tensor | None = None) -> list[float]:
        found = sums.clip_weights(torch.tensor(squared).double(), group, METHODS["normalise"], numbers=9, dtype=torch.float32, whole=whole)
        return found.tolist()

    assert max(weights(0.0, 1e-70)) <= 1 / math.sqrt(4 * 9 * tiny) * (1 + 1e-6)
    small, large = weights(1e-14, 1e-2, whole=torch.ones(2).double())
    assert small * 1e-7 < 1e-3
    assert large * 0.1 == pytest.approx(1.0, rel=1e-5)


GROUPS = (Group(parameters=("*",), clip_norm=2.0),)


def run_of(records: int, batches: lethe.batches.Poisson | lethe.batches.Full) -> lethe.Run:
    return make_run(records=records, batches=batches, steps=1, clip_norm=2.0, noise_multiplier=1.0, release="all")


def test_sixty_thousand_records_lose_three_parts_in_a_hundred_thousand() -> None:
    expected = 2 * 2.0**-53 * 60_000 * (1024 * (2 * 1024 + 64) + 2 * 64 + 60_000 + 1024 + 64)
    assert expected <= sum_error(60_000, 64, processes=1) <= expected * (1 + 1e-4)
    assert expected < 3e-5
    groups = (*GROUPS, Group(parameters=("*bias",), clip_norm=3.0))
    for group, other in zip(shorter(groups, margin_of(run_of(60_000, lethe.batches.Full()), 64, processes=1)), groups, strict=True):
        assert other.clip_norm * (1 - expected * (1 + 1e-4)) <= group.clip_norm <= other.clip_norm * (1 - expected)
    more = expected + 2 * 2.0**-53 * 60_000 * 3072
    assert more <= sum_error(60_000, 64, processes=4096) <= more * (1 + 1e-4)


def test_it_is_said_where_it_is_more_than_a_thousandth_and_refused_where_half_is_lost() -> None:
    assert largest_batch(run_of(10**6, lethe.batches.Poisson(1000))) == math.ceil(1000 + 12 * math.sqrt(1000) + 100)
    assert largest_batch(run_of(50, lethe.batches.Poisson(10))) == 50
    assert largest_batch(run_of(10**6, lethe.batches.Poisson(1000, truncate_at=1200))) == 1200
    assert largest_batch(run_of(70, lethe.batches.Full())) == 70
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        margin_of(run_of(600_000, lethe.batches.Full()), None, processes=1)
    with pytest.warns(UserWarning, match=r"2000000 gradients in parts of 2000000 may be off by 0\.0037 of the clip norm.*smaller batches"):
        margin_of(run_of(2_000_000, lethe.batches.Full()), None, processes=1)
    with pytest.raises(InputError, match="smaller batches"):
        margin_of(run_of(50_000_000, lethe.batches.Full()), None, processes=1)


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


def test_terms_that_cancel_count_as_a_share_of_their_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_products, "forming", lambda *_: (False, False))
    x, g = torch.ones(1, 2, 1), torch.tensor([[[1.0], [-1.0 + 2.0**-20]]])
    outer, looked_up = OuterProducts(x[:, :1], g[:, :1], Memory(0)), TokenRows(torch.zeros(1, 1, dtype=torch.int64), g[:, 1:], 1)
    for part in (OuterProducts(x, g, Memory(0)), Several([outer, looked_up])):
        assert float(part.squares().sqrt()) == pytest.approx(2 / CANCELLED, rel=1e-5)
    g[0, 1] = 0.5
    assert float(OuterProducts(x, g, Memory(0)).squares().sqrt()) == pytest.approx(1.5, rel=1e-12)


@pytest.mark.parametrize("rows", [3, 5, 17, 50])
def test_long_sums_are_taken_in_pieces(rows: int) -> None:
    torch.manual_seed(0)
    with patch.object(float64_sums, "CHAIN", 4):
        x, g, weights = torch.randn(rows, 2, 3), torch.randn(rows, 2, 2), torch.rand(rows, dtype=torch.float64)
        exact = torch.einsum("b,btp,btd->pd", weights, g.double(), x.double())
        torch.testing.assert_close(float64_sums.products_added(weights, g, x), exact)
        tokens = torch.tensor([[0, 2]]).expand(rows, 2)
        found = float64_sums.looked_up_added(weights, tokens, g, 3)
        torch.testing.assert_close(found[[0, 2]], torch.einsum("b,btp->tp", weights, g.double()))
        assert float(found[1].abs().max()) == 0


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


def test_what_is_formed_is_the_same_and_frees_its_factors_and_nothing_is_formed_beyond_the_limit() -> None:
    memory = Memory(1)
    settled = products(memory).settled()
    assert isinstance(settled, MaterialisedGradients)
    assert memory.left == 1 + 2 * FACTORS - FORMED
    the_same(settled, products(Memory(0)))
    for positions, limit in ((POSITIONS, 0), (2, FORMED - FACTORS // 3 - 1)):
        part = products(Memory(limit), positions)
        assert part.settled() is part
        assert part.memory.left == limit
        assert isinstance(products(Memory(limit + 1), positions).settled(), MaterialisedGradients)


@pytest.mark.parametrize("turned", [False, True])
def test_a_tied_table_is_formed_where_there_is_memory(turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer_products, "FORMED", 0)

    def both(limit: int) -> ParameterGradients:
        parts: list[ParameterGradients] = [products(Memory(limit))]
        parts.append(TokenRows(torch.randint(OUTPUTS, (RECORDS, 4)), torch.randn(RECORDS, 4, WIDTH, dtype=F64), OUTPUTS))
        return together(parts[::-1] if turned else parts, WIDTH * OUTPUTS, Memory(limit))

    formed, factored = both(1), both(0)
    assert isinstance(formed, MaterialisedGradients)
    assert isinstance(factored, Several)
    the_same(formed, factored)
