"""Models with compiled parts are trained as uncompiled ones; and a warning where the size of a batch shows in how gradients are rounded."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from torch import Tensor, nn

from lethe.errors import BatchShapeWarning
from lethe.train import fit
from lethe.train.clip.clipper import Clipper
from lethe.train.data.batches import BatchStream
from lethe.train.data.users import Members
from lethe.train.network.report import warn_of_shapes

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    torch.compiler.reset()


def whole(model: Any, backend: Any) -> Any:
    return torch.compile(model, backend=backend)


def in_place(model: Any, backend: Any) -> Any:
    model.compile(backend=backend)
    return model


def layer(model: Any, backend: Any) -> Any:
    model[0] = torch.compile(model[0], backend=backend)
    return model


def layer_in_place(model: Any, backend: Any) -> Any:
    model[3].compile(backend=backend)
    return model


WAYS = (whole, in_place, layer, layer_in_place)
INDUCTOR = pytest.param("inductor", marks=[pytest.mark.nightly, pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")])
BACKENDS = ("eager", "aot_eager")


def fitted(model: nn.Module, loss: Any = CROSS_ENTROPY) -> Tensor:
    """Where nine noisy steps end."""
    run = make_network_run("shuffled", noise_multiplier=1.0)
    draws = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0)}
    fit(model, loss, make_data(), run, **arguments(draws))
    return flat(model)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", [*BACKENDS, INDUCTOR])
@pytest.mark.parametrize("way", WAYS)
def test_fit_ends_where_the_uncompiled_model_does(way: Callable[..., Any], backend: str) -> None:
    assert torch.equal(fitted(way(make_network(), backend)), fitted(make_network()))


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
