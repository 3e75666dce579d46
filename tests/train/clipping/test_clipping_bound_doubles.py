"""Models of float64: no record moves the sums by more than C, however its terms cancel."""

import pytest
import torch
from test_clipping_bound import Cotangents, added


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "tied", "head", "conv1"])
@pytest.mark.parametrize("cancelling", [2.0, 4.0, 6.0, 7.5, 8.0, 8.5, 9.0])
def test_doubles_that_cancel_beyond_products_of_positions_stay_within_the_bound(kind: str, cancelling: float) -> None:
    """A squared norm from products of positions is right to some eps of the squared lengths: of what is left of 1e8, nothing."""
    wide, half = 64, 1 if kind in ("tied", "head") else 4
    for seed in range(12):
        torch.manual_seed(seed)
        x, g = (torch.randn(1, half, wide, dtype=torch.float64) for _ in range(2))
        left = -g + 10**-cancelling * torch.randn_like(g)
        given = torch.cat([torch.cat([x, x], 1), torch.cat([g, left], 1)], 2)
        given[..., wide:] *= 10 / torch.einsum("btp,btd->pd", given[..., wide:], given[..., :wide]).norm()
        if kind == "head":  # the row looked up against the first of the outer product
            given[:, 0, wide:], given[:, 0, wide] = 0, 1
            given[:, 1, wide:] = -given[:, 0, :wide] * (1 + 10**-cancelling)
        assert float(added(Cotangents(kind, wide).double(), given).norm()) <= 1 + 1e-7
