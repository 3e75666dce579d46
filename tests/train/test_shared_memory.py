"""Trained parameters that lie on the same memory are no two parameters: each step would move them twice."""

from typing import Any

import pytest
import torch
from networks import CLASSES, COLUMNS, CROSS_ENTROPY, make_data, make_network_run
from torch import Tensor, nn

from lethe.errors import InputError
from lethe.train import fit
from lethe.train.core.tensors import sharing_memory


def three() -> nn.Sequential:
    return nn.Sequential(nn.Linear(COLUMNS, COLUMNS), nn.Linear(COLUMNS, COLUMNS), nn.Linear(COLUMNS, CLASSES)).double()


def the_same(model: nn.Sequential) -> None:
    weight: Tensor = model.get_parameter("1.weight")
    weight.data = model.get_parameter("0.weight").data


def a_view(model: nn.Sequential) -> None:
    bias: Tensor = model.get_parameter("1.bias")
    bias.data = model.get_parameter("0.weight").data[2]


def on_itself(model: nn.Sequential) -> None:
    weight: Tensor = model.get_parameter("1.weight")
    weight.data = torch.zeros(2 * COLUMNS, dtype=torch.float64).unfold(0, COLUMNS, 1)[:COLUMNS]


@pytest.mark.parametrize("release", ["all", "last"])
@pytest.mark.parametrize("change", [the_same, a_view, on_itself])
def test_parameters_that_share_numbers_are_refused(change: Any, release: str) -> None:
    model = three()
    change(model)
    with pytest.raises(InputError, match="share numbers in memory"):
        fit(model, CROSS_ENTROPY, make_data(), make_network_run(noise_multiplier=1.0, release=release))


def test_parts_of_one_table_share_nothing() -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    assert sharing_memory({"even": whole[:, ::2], "none": whole[:0]}) == ()
    assert sharing_memory({"row": whole[1], "column": whole[:, 2]}) == ("column", "row")
    assert sharing_memory({"rows": whole[:2], "others": whole[2:], "turned": torch.zeros(3, 2).T}) == ()
    assert sharing_memory({"halves": whole.view(torch.int32), "wholes": whole.view(torch.int64)}) == ("halves", "wholes")
    assert sharing_memory({"repeated": whole[:1].expand(3, 6)}) == ("repeated", "repeated")
    assert sharing_memory({"x": torch.zeros(2, device="meta"), "y": torch.zeros(2, device="meta")}) == ()
