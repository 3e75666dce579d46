"""`fit` against the recursion by hand and the planned noise, compiled or not; proximal groups and moving averages."""

import shutil
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from helpers import DESIGNS, EXACT_SLOT_DESIGNS, as_planned
from how_many import by_night
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import RECORDS, by_hand, fit_network, flat, make_data, make_network, make_network_run
from scipy import stats
from torch import Tensor, nn

from lethe.errors import BatchShapeWarning
from lethe.run.losses import Smooth
from lethe.run.regularisers import L1, L2, Ball, GroupL1
from lethe.run.run import Run
from lethe.train import ProximalGroup
from lethe.train.clip.clipper import Clipper
from lethe.train.core.samplers import draw_batches
from lethe.train.data.batches import BatchStream
from lethe.train.network.report import warn_of_shapes


def batches(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fitted(run: Run, model: nn.Module | None = None, **options: Any) -> torch.Tensor:
    model = make_network() if model is None else model
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
    run = make_network_run(design, step_size=FALLING, release=release, regulariser={"kind": "ridge", "strength": 0.1})
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


AVERAGED = {"design": "cyclic", "passes": 3, "noise_at": "pass_ends", "pass_weights": 1.0, "release": "last"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("changes", "secure", "given_optimizer"),
    [
        (AVERAGED, False, False),
        ({"steps": 3, "release": "last"}, False, False),
        *(({"steps": 3}, secure, given) for secure in (False, True) for given in (False, True)),
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


def test_an_optimiser_gets_the_noisy_mean_gradient() -> None:
    """Of one seed SGD takes the steps that fit takes by itself, which are those by hand."""
    run, model, alone = make_network_run(noise_multiplier=1.0), make_network(), make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    recorded = [fit_network(run, one, optimizer=own, seed=3).run for one, own in ((model, optimizer), (alone, None))]
    torch.testing.assert_close(flat(model), flat(alone), rtol=0, atol=1e-13)
    assert as_planned(recorded[0]) == as_planned(recorded[1]) == run
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_global_generator_is_neither_used_nor_moved_and_no_seed_is_fresh() -> None:
    """Some batches have no record: they get noise, are recorded, and are told of."""
    before, told = torch.get_rng_state(), list[int]()
    empty = make_network_run(batches={"design": "poisson", "size": 1}, steps=12, noise_multiplier=1.0)
    assert 0 in [len(batch) for batch in draw_batches(empty, batches(3)) if isinstance(batch, torch.Tensor)]
    note: Any = lambda step, steps: told.append(step)  # noqa: E731
    assert as_planned(fit_network(empty, batch_generator=batches(3), physical_size=2, progress=note).run) == empty
    assert told == list(range(1, 13))
    run = make_network_run(noise_multiplier=1.0, steps=3)
    options = {"batch_generator": None, "noise_generator": None}
    one, other = fitted(run, **options), fitted(run, **options)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())
    again = [fitted(run, seed=4, **options) for _ in range(2)]
    assert torch.equal(*again)


pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def compiled(way: str, backend: str) -> Any:
    """The network, of which all or one layer is compiled, in a module around it or in place."""
    model: Any = make_network()
    if way == "whole":
        return torch.compile(model, backend=backend)
    if way == "layer":
        model[0] = torch.compile(model[0], backend=backend)
    else:
        (model if way == "in place" else model[3]).compile(backend=backend)
    return model


INDUCTOR = pytest.param("inductor", marks=[pytest.mark.nightly, pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", INDUCTOR])
@pytest.mark.parametrize("way", ["whole", "in place", "layer", "layer in place"])
def test_fit_ends_where_the_uncompiled_model_does(way: str, backend: str) -> None:
    run = make_network_run("shuffled", noise_multiplier=1.0)
    assert torch.equal(fitted(run, compiled(way, backend)), fitted(run))
    torch.compiler.reset()


PLAIN, FROZEN = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2).bfloat16().requires_grad_(False), nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("design", "model", "precision", "device", "size", "pads", "said"),
    [
        ("poisson", PLAIN, torch.bfloat16, "cuda", None, False, True),
        ("poisson", PLAIN, torch.float32, "cuda", None, False, False),
        ("poisson", PLAIN, torch.bfloat16, "cpu", None, False, False),
        ("poisson", PLAIN, torch.bfloat16, "cuda", 8, False, False),
        ("poisson", PLAIN, torch.bfloat16, "cuda", 8, True, True),
        ("shuffled", PLAIN, torch.bfloat16, "cuda", None, False, False),
        ("shuffled", PLAIN, torch.bfloat16, "cuda", None, True, True),
        ("poisson", FROZEN, torch.float32, "cuda", None, False, True),
        ("poisson", nn.Conv1d(2, 2, 1), torch.float32, "cuda", None, False, True),  # in tf32 by default
    ],
)
def test_batches_of_varying_shape_on_a_gpu_are_warned_of_where_numbers_are_coarse(
    design: str, model: nn.Module, precision: torch.dtype, device: str, size: int | None, pads: bool, said: bool
) -> None:
    clipper, run = Clipper(model, lambda batch: batch), make_network_run(design)
    clipper._gradients.precision, stream = precision, BatchStream(run, make_data(), physical_size=size)
    stream.pads = pads
    with pytest.warns(BatchShapeWarning) if said else nullcontext():
        warn_of_shapes(clipper, run, torch.device(device), stream)


FIRST = ProximalGroup(regularisers=(L1(strength=0.04), Ball(radius=0.8)), parameters=("0.weight", "0.bias"))
LAST = ProximalGroup(regularisers=(GroupL1(strength=0.05), L2(strength=0.3)), parameters=("3.weight",))
FALLING = {"schedule": "exponential", "first": 0.8, "ratio": 0.9}


def proximal_by_hand(model: nn.Module, step_size: float) -> None:
    """FIRST and LAST, from the definitions; the layer norm and the last bias are in no group."""
    named = {name: parameter.detach().numpy().copy() for name, parameter in model.named_parameters()}
    soft = {name: np.sign(x) * np.maximum(np.abs(x) - step_size * 0.04, 0) for name, x in named.items() if name.startswith("0.")}
    length = np.sqrt(sum(float((x**2).sum()) for x in soft.values()))
    named |= {name: x * min(1.0, 0.8 / length) for name, x in soft.items()}
    rows = [row * max(0.0, 1 - step_size * 0.05 / np.linalg.norm(row)) for row in named["3.weight"]]
    named["3.weight"] = np.array(rows) / (1 + step_size * 0.3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(named[name]))


@torch.no_grad()
def scale(model: nn.Module, names: list[str], radius: float) -> None:
    """Project these parameters on the ball."""
    parts = [dict(model.named_parameters())[name] for name in names]
    norm = float(torch.cat([part.reshape(-1) for part in parts]).norm())
    for part in parts:
        part.mul_(min(1.0, radius / norm))


@pytest.mark.parametrize("release", ["all", "last"])
def test_the_start_is_projected_on_the_domain(release: str) -> None:
    """Nothing else shows in one step without noise: ridge shrinks after it alone."""
    run = make_network_run("full", steps=1, release=release, loss=Smooth(smoothness=1.0), regulariser=[L2(0.2), Ball(0.6)])
    expected = {}
    for projected in (True, False):
        model = make_network()
        everything = [name for name, _ in model.named_parameters()]
        if projected:
            scale(model, everything, 0.6)
        by_hand(model, make_data(), run.replace(release="all", regulariser=L2(0.2)), torch.Generator())
        scale(model, everything, 0.6)
        expected[projected] = flat(model)
    got = fitted(run)
    assert float((got - expected[True]).abs().max()) < 1e-8  # records are clipped by some 1e-9 less
    assert float((got - expected[False]).abs().max()) > 0.01


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 7])
def test_each_step_ends_with_each_groups_proximal_step(physical_size: int | None) -> None:
    run = make_network_run("full", step_size=FALLING, steps=6)
    model = make_network()
    scale(model, ["0.weight", "0.bias"], 0.8)
    for step_size in run.step_sizes.tolist():
        by_hand(model, make_data(), run.replace(steps=1, step_size=step_size), torch.Generator())
        proximal_by_hand(model, step_size)
    got = fitted(run, proximal_groups=[FIRST, LAST], physical_size=physical_size)
    assert float((got - flat(model)).abs().max()) < 1e-8  # records are clipped by some 1e-9 less
    assert float((got - fitted(run)).abs().max()) > 0.05


@pytest.mark.sampled(4)
@pytest.mark.parametrize("decay", [0.5, 0.999])
@pytest.mark.parametrize("adam", [False, True])
def test_it_is_the_weighted_mean_of_the_iterates(decay: float, adam: bool) -> None:
    model = make_network()
    iterates: list[dict[str, Tensor]] = []

    def note(step: int, steps: int) -> None:
        iterates.append({name: found.detach().clone() for name, found in model.state_dict().items()})

    optimizer = torch.optim.Adam(model.parameters(), lr=0.1) if adam else None
    averaged = fit_network(make_network_run(noise_multiplier=1.0), model, ema=decay, progress=note, optimizer=optimizer).averaged
    assert averaged is not None
    weights = [decay ** (len(iterates) - 1 - place) for place in range(len(iterates))]
    for name, found in averaged.items():
        expected = sum(weight * iterate[name] for weight, iterate in zip(weights, iterates, strict=True)) / sum(weights)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    make_network().load_state_dict(dict(averaged))
