"""`fit` against the recursion by hand and the planned noise; compiled models end where uncompiled ones do."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from doors import arguments
from helpers import DESIGNS, EXACT_SLOT_DESIGNS, as_planned
from how_many import by_night
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import CROSS_ENTROPY, RECORDS, by_hand, fit_network, flat, make_data, make_network, make_network_run
from scipy import stats
from torch import Tensor, nn

from lethe.errors import BatchShapeWarning
from lethe.run.run import Run
from lethe.train import Group, fit
from lethe.train.clip.clipper import Clipper
from lethe.train.core.samplers import draw_batches
from lethe.train.data.batches import BatchStream
from lethe.train.data.users import Members
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.report import warn_of_shapes
from lethe_experiments.hong.debiased_momentum import DebiasedMomentum


def batches(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fitted(run: Run, **options: Any) -> torch.Tensor:
    model = make_network()
    fit_network(run, model, **{"batch_generator": batches(3), "noise_generator": np.random.default_rng(0), **options})
    return flat(model)


@settings(max_examples=14 if by_night() else 4)
@given(
    design=st.sampled_from(DESIGNS),
    physical_size=st.sampled_from([None, 1, 2, 3, 5, 8, 30]),
    release=st.sampled_from(["last", "all"]),
    seed=st.integers(0, 1000),
)
def test_it_is_the_recursion_by_hand(design: str, physical_size: int | None, release: str, seed: int) -> None:
    sizes = {"schedule": "exponential", "first": 0.8, "ratio": 0.9}
    run = make_network_run(design, step_size=sizes, release=release, regulariser={"kind": "ridge", "strength": 0.1})
    expected = by_hand(make_network(), make_data(), run, batches(seed))
    got = fitted(run, batch_generator=batches(seed), physical_size=physical_size)
    assert float((got - expected).abs().max()) < 1e-8  # records are clipped by some 1e-9 less, see `sum_error`
    assert float((expected - flat(make_network())).norm()) > 0.05  # there was something to compute


@pytest.mark.sampled(6)
@pytest.mark.parametrize("design", EXACT_SLOT_DESIGNS)
@pytest.mark.parametrize("physical_size", [None, 2])
def test_pass_averages_are_those_by_hand(design: str, physical_size: int | None) -> None:
    changes: dict[str, Any] = {"release": "last", "passes": 3, "noise_at": "pass_ends", "pass_weights": [0.0, 1.0, 2.0, 1.5]}
    run = make_network_run(design, regulariser={"kind": "ridge", "strength": 0.1}, **changes)
    expected = by_hand(make_network(), make_data(), run, batches(3))
    assert float((fitted(run, physical_size=physical_size) - expected).abs().max()) < 1e-8
    plain = by_hand(make_network(), make_data(), run.replace(pass_weights=None), batches(3))
    assert float((plain - expected).norm()) > 1e-3


def test_empty_batches_get_noise_and_are_recorded() -> None:
    run = make_network_run(batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0)
    drawn = [len(batch) for batch in draw_batches(run, batches(3)) if isinstance(batch, torch.Tensor)]
    assert 0 in drawn
    for physical_size in (None, 2):
        finished: list[int] = []

        def note(step: int, steps: int, finished: list[int] = finished) -> None:
            finished.append(step)

        options = {"batch_generator": batches(3), "physical_size": physical_size, "progress": note}
        recorded = fit_network(run, **options)
        assert as_planned(recorded.run) == run
        assert finished == list(range(1, 13))


FIXED = {"batches": {"design": "cyclic", "size": 5}}
POISSON = {"steps": 3, "batches": {"design": "poisson", "size": 5}}
AVERAGED = {**FIXED, "passes": 3, "noise_at": "pass_ends", "pass_weights": 1.0, "release": "last"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("changes", "secure", "given_optimizer"),
    [
        (AVERAGED, False, False),
        ({**POISSON, "release": "last"}, False, False),
        *(({**POISSON, "release": "all"}, secure, given) for secure in (False, True) for given in (False, True)),
    ],
)
@pytest.mark.filterwarnings("ignore:private. no record contributed")
def test_the_noise_of_a_run_is_the_planned_noise(changes: dict[str, Any], secure: bool, given_optimizer: bool) -> None:
    """A layer of zeros whose gradient vanishes: it ends at the sum of the noises; at pass ends they are not averaged away."""
    model = nn.Linear(400, 250, bias=False)
    nn.init.zeros_(model.weight)
    run = make_network_run(noise_multiplier=[1.0, 2.0, 0.5], **changes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5) if given_optimizer else None
    data = torch.zeros(RECORDS, 400), torch.zeros(RECORDS, dtype=torch.long)
    recorded = fit_network(run, model, data=data, optimizer=optimizer, secure=secure)
    variance = sum((0.5 * multiplier * 0.4 / 5) ** 2 for multiplier in (1.0, 2.0, 0.5))
    low, high = stats.chi2.interval(1 - 1e-9, model.weight.numel())
    assert low < float(model.weight.detach().double().square().sum()) / variance < high
    assert high / model.weight.numel() < 1.03
    assert as_planned(recorded.run) == run


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, DebiasedMomentum, torch.optim.SGD])
def test_an_optimiser_gets_the_noisy_mean_gradient(make: Callable[..., torch.optim.Optimizer]) -> None:
    run = make_network_run(noise_multiplier=1.0)
    model, twin = make_network(), make_network()
    optimizer, twins = make(model.parameters(), lr=0.05), make(twin.parameters(), lr=0.05)
    recorded = fit_network(run, model, optimizer=optimizer, batch_generator=batches(3), noise_generator=np.random.default_rng(0))
    noise = NetworkNoise(np.random.default_rng(0))
    features, targets = make_data()
    for batch in draw_batches(run, batches(3)):
        sums = [torch.zeros_like(parameter) for parameter in twin.parameters()]
        for row in torch.arange(RECORDS)[batch].tolist():
            losses = CROSS_ENTROPY(twin(features[row : row + 1]), targets[row : row + 1])
            parts = torch.autograd.grad(losses.sum(), list(twin.parameters()))
            factor = min(1.0, 0.4 / float(torch.cat([part.reshape(-1) for part in parts]).norm()))
            sums = [total + factor * part for total, part in zip(sums, parts, strict=True)]
        noise.add_to(sums, 0.4)
        for parameter, total in zip(twin.parameters(), sums, strict=True):
            parameter.grad = total / 5
        twins.step()
    assert float((flat(model) - flat(twin)).abs().max()) < 1e-8
    assert as_planned(recorded.run) == run
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("method", ["clip", "normalise", "automatic"])
@pytest.mark.parametrize(
    ("groups", "physical_size"), [(None, 3), ((Group(parameters=("0.*",), clip_norm=0.24), Group(parameters=("*",), clip_norm=0.32)), None)]
)
def test_one_record_moves_the_parameters_by_at_most_the_sensitivity(method: str, groups: Any, physical_size: int | None) -> None:
    """One full step with a record that is made as loud as can be, against the same step without it."""
    run = make_network_run("full", steps=1, step_size=2.0)
    features, targets = make_data()

    def moved(rows: torch.Tensor) -> torch.Tensor:
        model = make_network()
        fit_network(run, model, data=(rows, targets), method=method, clip_groups=groups, physical_size=physical_size)
        return flat(model)

    reached = []
    for scale in (0.0, 1.0, 1e9, float("inf"), float("nan")):
        rows = features.clone()
        rows[7] = scale * torch.tensor([1.0, -2.0, 0.5, 3.0])
        reached.append(moved(rows))
    absent = reached[-1]  # a record of NaN contributes nothing
    largest = max(float((one - absent).norm()) for one in reached)
    bound = float(run.sensitivities[0])
    assert bound == pytest.approx(2.0 * 0.4 / RECORDS)
    assert largest <= bound * (1 + 1e-12)
    assert largest >= 0.5 * bound


def test_the_global_generator_is_neither_used_nor_moved_and_no_seed_is_fresh() -> None:
    before = torch.get_rng_state()
    run = make_network_run(noise_multiplier=1.0, steps=3)
    options = {"batch_generator": None, "noise_generator": None}
    one, other = fitted(run, **options), fitted(run, **options)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())
    again = [fitted(run, seed=4, **options) for _ in range(2)]
    assert torch.equal(*again)


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


def compiled_end(model: nn.Module, loss: Any = CROSS_ENTROPY) -> Tensor:
    """Where nine noisy steps end."""
    run = make_network_run("shuffled", noise_multiplier=1.0)
    draws = {"batch_generator": torch.Generator().manual_seed(3), "noise_generator": np.random.default_rng(0)}
    fit(model, loss, make_data(), run, **arguments(draws))
    return flat(model)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", [*BACKENDS, INDUCTOR])
@pytest.mark.parametrize("way", WAYS)
def test_fit_ends_where_the_uncompiled_model_does(way: Callable[..., Any], backend: str) -> None:
    assert torch.equal(compiled_end(way(make_network(), backend)), compiled_end(make_network()))


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
