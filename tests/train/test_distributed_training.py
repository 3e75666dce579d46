"""Several processes over gloo against one process with the same seed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import as_planned
from networks import by_hand, make_data, make_network_run
from processes import Processes
from scipy import stats
from shared_deaths import Killed, kept
from shared_work import Told, in_a_loop, network, of_noise_alone, trained
from torch import Tensor

from lethe.run.run import Run
from lethe.train import Group
from lethe.train.distributed.workers import Workers

pytestmark = pytest.mark.slow  # starting processes takes seconds

SEED = 5  # its Poisson batches of nominal size 1 are now and then empty, single and larger


def refuse_difference(together: list[Any], alone: Told, tolerance: float = 1e-12) -> None:
    """All processes end at the same numbers, bit for bit, and at those of one process up to rounding."""
    parameters, run, _ = alone
    for result in together:
        assert isinstance(result, tuple), result
        assert torch.equal(result[0], together[0][0])
        assert float((result[0] - parameters).norm()) <= tolerance * float(parameters.norm())
        assert result[1] == run


IDS = [8, 3, 3, 0, 1, 2, 3, 4, 8, 5, 6, 7, 0, 3, 3, 1, 8, 5, 3, 2, 4, 8, 0]
USERS: dict[str, Any] = {"unit": "user", "records": 9, "batches": {"design": "poisson", "size": 3}}

CASES: tuple[tuple[str, str, dict[str, Any], Any, dict[str, Any]], ...] = (
    ("shuffled, physical size", "shuffled", {}, None, {"physical_size": 2}),
    ("poisson, physical size", "poisson", {}, None, {"physical_size": 1}),
    ("small poisson batches in pieces", "poisson", {"batches": {"design": "poisson", "size": 1}, "steps": 15}, None, {"physical_size": 2}),
    ("last", "cyclic", {"release": "last", "regulariser": {"kind": "ridge", "strength": 0.1}}, None, {}),
    ("plain SGD", "shuffled", {}, torch.optim.SGD, {"physical_size": 3}),
    (
        "last, averages",
        "cyclic",
        {"release": "last", "passes": 3, "noise_at": "pass_ends", "pass_weights": [0.0, 1.0, 2.0, 1.5]},
        None,
        {},
    ),
    ("noise at pass ends", "shuffled", {"noise_at": "pass_ends", "steps": 8}, torch.optim.Adam, {}),
    ("Adam", "poisson", {}, torch.optim.Adam, {"physical_size": 4}),
    (
        "groups",
        "poisson",
        {},
        None,
        {"clip_groups": [Group(parameters=("0.*",), clip_norm=0.24), Group(parameters=("*",), clip_norm=0.32)]},
    ),
    ("balls in bins", "balls_in_bins", {}, None, {}),
    ("users", "poisson", USERS, None, {"users": IDS, "records_per_user": 2}),
    ("users, one at a time", "shuffled", USERS | {"batches": {"design": "shuffled", "size": 3}}, None, {"users": IDS, "physical_size": 1}),
    ("views", "cyclic", {}, None, {"views": 2, "physical_size": 2}),
)


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("world", "design", "changes", "make", "options"),
    [(2 + place % 2, *case[1:]) for place, case in enumerate(CASES)],
    ids=[case[0] for case in CASES],
)
def test_processes_together_take_the_steps_of_one(
    processes: Processes, world: int, design: str, changes: dict[str, Any], make: Any, options: dict[str, Any]
) -> None:
    run = make_network_run(design, **{"noise_multiplier": 1.0, **changes})
    options = {"seed": SEED, **options}
    alone = trained(0, "whole", run, make, options)
    refuse_difference(processes.run(world, trained, "whole", run, make, options), alone)
    assert alone[1].noise_stds.tolist() == run.noise_stds.tolist()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("physical_size", [None, 3])
def test_it_is_the_recursion_by_hand(processes: Processes, physical_size: int | None) -> None:
    """An oracle that shares nothing with the engine: a record dropped, or clipped in parts, would show."""
    run = make_network_run("without_replacement", noise_multiplier=0.0)
    options = {"batch_generator": torch.Generator().manual_seed(3).get_state(), "physical_size": physical_size}
    expected = by_hand(network(), make_data(), run, torch.Generator().manual_seed(3))
    for got, recorded, _ in processes.run(3, trained_from_state, run, options):
        assert float((got - expected).abs().max()) < 1e-9
        assert as_planned(recorded) == run


def trained_from_state(rank: int, run: Run, options: dict[str, Any]) -> Told:
    """Every process has a generator of its own; process 0's state counts."""
    generator = torch.Generator().manual_seed(100 + rank)
    if rank == 0:
        generator.set_state(options["batch_generator"])
    return trained(rank, "whole", run, None, {**options, "batch_generator": generator})


@pytest.mark.nightly(by_day="test_processes_together_take_the_steps_of_one")
@pytest.mark.parametrize(("design", "physical_size", "make"), [("poisson", 2, torch.optim.SGD), ("shuffled", 2, torch.optim.Adam)])
def test_a_loop_of_one_s_own_is_the_same(processes: Processes, design: str, physical_size: int | None, make: Callable[..., Any]) -> None:
    changes = {"batches": {"design": "poisson", "size": 2}} if design == "poisson" else {}
    run = make_network_run(design, noise_multiplier=1.0, **changes)
    options = {"seed": SEED, "physical_size": physical_size}
    alone = in_a_loop(0, "whole", run, make, options)
    refuse_difference(processes.run(2, in_a_loop, "whole", run, make, options), alone)
    refuse_difference([alone], trained(0, "whole", run, make, options))


def test_secure_noise_and_fresh_entropy_are_the_same_in_all(processes: Processes) -> None:
    run = make_network_run(noise_multiplier=[1.0, 0.0, 2.0], steps=3)
    for secure in (True, False):
        results = processes.run(2, trained, "whole", run, None, {"secure": secure})
        assert all(torch.equal(result[0], results[0][0]) for result in results)
        again = processes.run(2, trained, "whole", run, None, {"secure": secure})
        assert not torch.equal(again[0][0], results[0][0])
        assert all(result[1] == run for result in results)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("release", "make", "secure"), [("last", None, False), ("all", None, False), ("all", torch.optim.SGD, False), ("all", None, True)]
)
def test_noise_is_added_once(processes: Processes, release: str, make: Any, secure: bool) -> None:
    """Once a process would be three times the variance; once and divided among them a third."""
    run = make_network_run(noise_multiplier=[1.0, 2.0, 0.5], steps=3, release=release)
    weights = [one.shard[-1] for one in processes.run(3, of_noise_alone, "whole", run, make, {"secure": secure})]
    variance = sum((0.5 * multiplier * 0.4 / 5) ** 2 for multiplier in (1.0, 2.0, 0.5))
    low, high = stats.chi2.interval(1 - 1e-9, weights[0].numel())
    for weight in weights:
        assert low < float(weight.double().square().sum()) / variance < high
        assert torch.equal(weight, weights[0])
    assert high / weights[0].numel() < 1.03  # a standard deviation that is 1.5 % off would show


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("release", "noise_multiplier"), [("last", 0.0), ("all", 1.0)])
def test_processes_together_go_on_from_a_checkpoint(processes: Processes, tmp_path: Path, release: str, noise_multiplier: float) -> None:
    run = make_network_run("shuffled", release=release, noise_multiplier=noise_multiplier)
    given = (run, os.fspath(tmp_path / "kept")), ("raise", torch.optim.SGD if release == "all" else None, "whole")
    assert all(isinstance(one, Killed) for one in processes.run(2, kept, *given[0], 5, *given[1]))
    results = processes.run(2, kept, *given[0], None, *given[1])
    assert torch.equal(results[0][0], results[1][0])
    assert all(recorded.seeded and as_planned(recorded) == run for _, recorded in results)
    if release == "last":  # the steps after the checkpoint are taken again
        expected = by_hand(network(), make_data(), run, torch.Generator().manual_seed(3))
        assert float((results[0][0] - expected).abs().max()) < 1e-9


def exchanged(rank: int) -> tuple[list[Tensor], list[Tensor]]:
    """Tensors of both types, of no, few and many numbers, contiguous and not, added up; and others taken from process 0."""
    tensors = tensors_of(rank)
    Workers.current().add_up(tensors, parameters=[torch.ones(3)])
    theirs = tensors_of(rank)
    Workers.current().from_root(theirs)
    return tensors, theirs


def tensors_of(rank: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rank)
    shapes = ((), (0, 3), (7,), (2, 3), (1100, 1000), (5, 4), (3,))
    dtypes = (torch.float32, torch.float64, torch.float64, torch.float32, torch.float32, torch.float64, torch.float64)
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return [tensor.t().contiguous().t() if tensor.dim() == 2 and len(tensor) == 5 else tensor for tensor in drawn]


def test_process_0_alone_has_the_sums_and_all_have_what_it_makes_of_them(processes: Processes) -> None:
    results = processes.run(3, exchanged)
    sums = [sum(parts) for parts in zip(*(tensors_of(rank) for rank in range(3)), strict=True)]
    for got, expected in zip(results[0][0], sums, strict=True):
        assert torch.allclose(got, expected, rtol=0, atol=8 * torch.finfo(got.dtype).eps)  # of three terms below 6, in another order
    for added, _ in results[1:]:
        assert not any(bool(tensor.any()) for tensor in added)
    for _, theirs in results:
        assert all(torch.equal(got, expected) for got, expected in zip(theirs, tensors_of(0), strict=True))
