"""The quick bound of queries, keys and values, by which attentions that are far from rounding are cleared."""

from __future__ import annotations

import pytest
import torch

from lethe.train.clipping.checks import steadiness


@pytest.mark.parametrize("lain", ["apart", "beside each other", "transposed"])
def test_the_quick_bound_of_vectors_is_no_shorter_than_the_longest(lain: str) -> None:
    """Of equal numbers it is their length; one per cent less would be too short."""
    equal = torch.full((3, 5, 2, 4), -7.0)
    # Queries, keys and values in one tensor, of one head, since of several it adds the squares.
    beside = torch.full((3, 5, 3, 1, 4), -7.0)[:, :, 0].transpose(1, 2)
    given = {"apart": equal, "beside each other": beside, "transposed": equal.mT.contiguous().mT}[lain]
    bound = steadiness._bound_of(given)
    assert bound is not None
    assert float(bound()) == pytest.approx(14.0, rel=1e-6)
    one = torch.zeros_like(given)
    one[1, 0, 0] = 7.0
    sole = steadiness._bound_of(one)
    assert sole is not None
    assert float(sole()) >= 14.0 * (1.0 - 1e-6)
