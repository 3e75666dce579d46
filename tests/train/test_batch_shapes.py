"""A warning where the size of a batch shows in the rounding of every record's gradient."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from networks import make_data, make_network_run
from torch import nn

from lethe.errors import BatchShapeWarning
from lethe.train.clip.clipper import Clipper
from lethe.train.data.batches import BatchStream
from lethe.train.data.users import Members
from lethe.train.network.report import warn_of_shapes


def warned(
    *,
    precision: torch.dtype = torch.bfloat16,
    device: str = "cuda",
    design: str = "poisson",
    size: int | None = None,
    pads: bool = False,
    model: nn.Module | None = None,
    members: Members | None = None,
    **changes: Any,
) -> bool:
    clipper, run = Clipper(model or nn.Linear(2, 2), lambda batch: batch), make_network_run(design, **changes)
    clipper._gradients.precision = precision
    stream = BatchStream(run, make_data(), physical_size=size, members=members)
    stream.pads = pads
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_shapes(clipper, run, torch.device(device), stream)
    assert all(one.category is BatchShapeWarning for one in caught)
    return bool(caught)


FLOAT32 = {"precision": torch.float32}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, True),
        ({"neighbours": "add_or_remove"}, True),
        (FLOAT32, False),
        ({"device": "cpu"}, False),
        ({"size": 8}, False),
        ({"design": "shuffled"}, False),
        ({"design": "shuffled", "pads": True}, True),
        ({"size": 8, "pads": True}, True),
        ({**FLOAT32, "model": nn.Sequential(nn.Linear(2, 2).bfloat16().requires_grad_(False), nn.Linear(2, 2))}, True),
        ({**FLOAT32, "model": nn.Conv1d(2, 2, 1)}, True),  # in tf32 by default
    ],
)
def test_batches_of_varying_shape_on_a_gpu_are_warned_of_where_numbers_are_coarse(changes: dict[str, Any], said: bool) -> None:
    assert warned(**changes) is said
