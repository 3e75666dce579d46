"""Models with compiled parts are trained as they are uncompiled, by fit and in a loop of one's own, and stay compiled outside."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from networks import CROSS_ENTROPY, RECORDS, flat, make_data, make_network, make_network_run
from private_loops import Loop
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


@pytest.mark.nightly(by_day="test_fit_ends_where_the_uncompiled_model_does")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_loss_is_asked_as_the_loss_itself(backend: str) -> None:
    assert torch.equal(fitted(make_network(), torch.compile(CROSS_ENTROPY, backend=backend)), fitted(make_network()))


@pytest.mark.nightly(by_day="test_fit_ends_where_the_uncompiled_model_does")
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_loop_that_evaluates_the_compiled_model_ends_there_too(way: Callable[..., Any], backend: str) -> None:
    ends: list[Tensor] = []
    for model in (make_network(), way(make_network(), backend)):
        loop = Loop(make_network_run("shuffled", noise_multiplier=1.0), model=model)
        for batch in loop.loader:
            loop.use(batch)
            with torch.no_grad():
                told = model(make_data()[0])  # compiled, between the steps
            assert told.shape == (RECORDS, 3)
        loop.engine.recorded_run()
        ends.append(flat(model))
    assert torch.equal(*ends)
