"""Group normalisation in the place of batch normalisation."""

import pytest
import torch
from torch import nn

from lethe.train import fix_batch_norm


@pytest.mark.parametrize(
    ("layer", "shape", "groups"),
    [
        (nn.BatchNorm1d(32), (5, 32), 4),
        (nn.BatchNorm1d(6), (5, 6), 1),
        (nn.BatchNorm2d(64), (5, 64, 3, 3), 32),
        (nn.BatchNorm2d(6), (5, 6, 3, 3), 3),
        (nn.BatchNorm2d(7), (5, 7, 3, 3), 1),
        (nn.BatchNorm3d(1, affine=False), (5, 1, 2, 2, 2), 1),
    ],
)
def test_records_no_longer_meet(layer: nn.Module, shape: tuple[int, ...], groups: int) -> None:
    model = nn.Sequential(nn.Identity(), nn.Sequential(layer)).train()
    fixed = fix_batch_norm(model)
    assert fixed is model
    norm = model[1][0]
    assert isinstance(norm, nn.GroupNorm)
    assert norm.num_groups == groups
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    whole = model(rows)
    assert torch.allclose(torch.cat([model(row[None]) for row in rows]), whole, atol=1e-5)
    assert whole.std() > 0.5  # no group of one number alone, which would become 0
    assert [id(parameter) for parameter in model.parameters()] == [id(parameter) for parameter in layer.parameters()]


def test_a_model_that_is_one_comes_back_as_another() -> None:
    assert isinstance(fix_batch_norm(nn.BatchNorm1d(16)), nn.GroupNorm)
    linear = nn.Linear(2, 2)
    assert fix_batch_norm(linear) is linear
