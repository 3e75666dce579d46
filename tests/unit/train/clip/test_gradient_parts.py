"""Parts of a gradient: what they measure and add, and what is formed while the backward pass lets memory go."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch

from lethe.train.clip import in_float64
from lethe.train.clip.parts import outer_products
from lethe.train.clip.parts.outer_products import Memory, OuterProducts, Several, together
from lethe.train.clip.parts.part import CANCELLED, MaterialisedGradients, ParameterGradients, TokenRows


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
    with patch.object(in_float64, "CHAIN", 4):
        x, g, weights = torch.randn(rows, 2, 3), torch.randn(rows, 2, 2), torch.rand(rows, dtype=torch.float64)
        exact = torch.einsum("b,btp,btd->pd", weights, g.double(), x.double())
        torch.testing.assert_close(in_float64.products_added(weights, g, x), exact)
        tokens = torch.tensor([[0, 2]]).expand(rows, 2)
        found = in_float64.looked_up_added(weights, tokens, g, 3)
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
