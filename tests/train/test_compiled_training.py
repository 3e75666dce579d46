"""Models with compiled parts are trained as they are uncompiled, by fit and in a loop of one's own, and stay compiled outside."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run
from torch import Tensor, nn

from lethe.train import fit

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


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
INDUCTOR = pytest.param("inductor", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler"))
BACKENDS = ("eager", "aot_eager")


def fitted(model: nn.Module, loss: Any = CROSS_ENTROPY) -> Tensor:
    """Where nine noisy steps end."""
    run = make_network_run("shuffled", noise_multiplier=1.0)
    draws = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0)}
    fit(model, loss, make_data(), run, **arguments(draws))
    return flat(model)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("backend", [*BACKENDS, INDUCTOR])
@pytest.mark.parametrize("way", WAYS)
def test_fit_ends_where_the_uncompiled_model_does(way: Callable[..., Any], backend: str) -> None:
    assert torch.equal(fitted(way(make_network(), backend)), fitted(make_network()))
