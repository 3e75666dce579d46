"""Correlated noise in several processes over gloo: the noise of one process, or of each one's shards, by the same strategy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from interrupted import Killed
from networks import CROSS_ENTROPY, flat, make_data, make_network, make_network_run, one_thread
from processes import Processes, all_raised
from shared_work import network, sharded
from test_distributed_training import in_a_loop, refuse_difference, trained
from torch import Tensor, nn

from lethe.calculus.correlated.matrices import as_matrix
from lethe.errors import InputError
from lethe.run.noise import LowerTriangular
from lethe.run.run import Run
from lethe.train import Checkpoints, fit
from lethe.train.core.tensors import local

pytestmark = pytest.mark.slow  # starting processes takes seconds

BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    with one_thread():
        yield


def run_of(folder: Path | None = None, **changes: Any) -> Run:
    noise: Any = BANDED
    if folder is not None:
        noise = LowerTriangular.saved(np.tril(np.random.default_rng(0).uniform(0.1, 1.0, size=(9, 9))), folder / "C.npy")
    return make_network_run("cyclic", **{"noise": noise, "noise_multiplier": 1.0, **changes})


def test_two_processes_take_the_steps_of_one(processes: Processes, tmp_path: Path) -> None:
    for run, work, make in (
        (run_of(), trained, None),
        (run_of(tmp_path), trained, torch.optim.Adam),
        (run_of(tmp_path), in_a_loop, torch.optim.SGD),
    ):
        given = (run, torch.float64, make, {"seed": 5}) if work is trained else (run, make, {"seed": 5})
        alone = work(0, *given)
        refuse_difference(processes.run(2, work, *given), alone)
        assert alone[1].noise == run.noise


def test_secure_noise_is_shared_as_well(processes: Processes) -> None:
    first, second = processes.run(2, trained, run_of(), torch.float64, None, {"secure": True})
    assert torch.equal(first[0], second[0])
    assert first[1] == second[1] == run_of()


def test_processes_with_other_strategies_are_refused(processes: Processes) -> None:
    for message in all_raised(processes.run(2, of_its_own_strategy), InputError):
        assert "run" in message


def of_its_own_strategy(rank: int) -> None:
    fit(make_network(), CROSS_ENTROPY, make_data(), run_of(noise={"kind": "banded_toeplitz", "coefficients": [1.0, 0.5 + 0.1 * rank]}))


def in_shards(rank: int, run: Run, secure: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Of a layer in shards and one that is whole, the noise of every step, in this process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(900, 51, bias=False), nn.Linear(51, 7, bias=False)).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    fully_shard(model[0], mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    places: tuple[list[Tensor], list[Tensor]] = ([torch.zeros_like(local(model[0].weight.detach()))], [torch.zeros(7, 51).double()])

    def note(step: int, steps: int) -> None:
        places[0].append(local(model[0].weight.detach()).clone())
        places[1].append(model[1].weight.detach().clone())

    data = (torch.zeros(23, 900, dtype=torch.float64), torch.zeros(23, dtype=torch.long))
    fitted = fit(model, lambda outputs, targets: outputs.sum(1) * 0.0, data, run, verify=False, secure=secure, progress=note)
    assert fitted.run == run
    return places


@pytest.mark.parametrize("secure", [False, True])
def test_each_shard_s_noise_has_the_strategy_s_covariance(processes: Processes, secure: bool) -> None:
    """C times what the steps moved is white in each shard and in what is whole, and the shards' are independent: within 5 deviations."""
    run = run_of(steps=4)
    told = processes.run(2, in_shards, run, secure)
    assert run.noise is not None
    assert run.clip_norm is not None
    white = []
    for places in (told[0][0], told[1][0], told[0][1]):
        steps = -np.diff(np.stack([place.reshape(-1).numpy() for place in places]), axis=0) / (0.5 * run.clip_norm / 5)
        white.append(as_matrix(run.noise.strategy(4)) @ steps)
        assert np.cov(white[-1]) == pytest.approx(np.eye(4), abs=5 * np.sqrt(2 / steps.shape[1]))
    assert all(torch.equal(*pair) for pair in zip(told[0][1], told[1][1], strict=True))  # whole in both: drawn once
    least = min(one.shape[1] for one in white[:2])
    across = white[0][:, :least] @ white[1][:, :least].T / least
    assert across == pytest.approx(np.zeros((4, 4)), abs=5 / np.sqrt(least))


def kept(rank: int, run: Run, folder: str, stop: int | None, shards: bool = False) -> Any:
    """`fit` with checkpoints after each step; it is killed in step `stop`, after its noise."""

    def progress(step: int, steps: int) -> None:
        if step == stop:
            raise Killed

    model = sharded(network()) if shards else make_network()
    try:
        fit(model, CROSS_ENTROPY, make_data(), run, seed=5, checkpoints=Checkpoints(folder=folder, every=1), progress=progress)
    except Killed:
        return "killed"
    return flat(model)


def test_processes_go_on_from_the_noise_that_process_0_kept(processes: Processes, tmp_path: Path) -> None:
    run = run_of()
    whole = processes.run(2, kept, run, str(tmp_path / "whole"), None)
    assert processes.run(2, kept, run, str(tmp_path / "kept"), 5)[0] == "killed"
    lossy = processes.run(2, kept, run, str(tmp_path / "kept"), None)
    assert torch.equal(lossy[0], lossy[1])
    assert not torch.equal(lossy[0], whole[0])  # step 5 was released, and lost
    assert processes.run(2, kept, run, str(tmp_path / "other"), 5)[0] == "killed"
    journal = tmp_path / "other" / "journal"
    journal.write_text(journal.read_text().replace("step 5\n", ""))  # as if it had been killed before
    again = processes.run(2, kept, run, str(tmp_path / "other"), None)
    assert torch.equal(again[0], whole[0])


def test_checkpoints_of_shards_are_refused(processes: Processes, tmp_path: Path) -> None:
    for message in all_raised(processes.run(2, kept, run_of(), str(tmp_path / "kept"), None, True), InputError):
        assert "checkpoints of parameters in shards" in message
