"""Correlated noise in several processes over gloo: the noise of one process, or of each one's shards, by the same strategy."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from how_many import by_night
from interrupted import Killed
from networks import make_data, make_network_run
from processes import Processes
from shared_work import in_a_loop, network, of_noise_alone, sharded, trained
from torch import Tensor

from lethe.calculus.correlated.matrices import as_matrix
from lethe.run.noise import LowerTriangular
from lethe.run.run import Run
from lethe.train import Checkpoints, TrainOptions, fit
from lethe.train.core.generators import OF_STEPS, stream_generator
from lethe.train.core.tensors import local
from lethe.train.network.noise.gaussian import NetworkNoise

BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}


def run_of(folder: Path | None = None, **changes: Any) -> Run:
    noise: Any = BANDED
    if folder is not None:
        noise = LowerTriangular.saved(np.tril(np.random.default_rng(0).uniform(0.1, 1.0, size=(9, 9))), folder / "C.npy")
    return make_network_run("cyclic", **{"noise": noise, "noise_multiplier": 1.0, **changes})


def test_two_processes_take_the_steps_of_one(processes: Processes, tmp_path: Path) -> None:
    cases: list[tuple[Run, Any, Any]] = [
        (run_of(), trained, None),
        (run_of(tmp_path), trained, torch.optim.Adam),
        (run_of(tmp_path), in_a_loop, torch.optim.SGD),
    ]
    for run, work, make in cases if by_night() else cases[::2]:
        given = ("whole", run, make, {"seed": 5})
        alone = work(0, *given)
        for told in processes.run(2, work, *given):
            assert float((told[0] - alone[0]).norm()) <= 1e-12 * float(alone[0].norm())
            assert told[1] == alone[1]
        assert alone[1].noise == run.noise


@pytest.mark.parametrize("secure", [False, True])
def test_each_shard_s_noise_has_the_strategy_s_covariance(processes: Processes, secure: bool) -> None:
    """C times what the steps moved is white in each shard and in what is whole, the shards' independent: within 6 deviations."""
    run = run_of(steps=4)
    told = processes.run(2, of_noise_alone, "some", run, None, {"secure": secure})
    assert told[0].run == told[1].run == run
    assert run.noise is not None
    assert run.clip_norm is not None
    white = []
    for places in (told[0].shard, told[1].shard, told[0].whole):
        steps = -np.diff(np.stack([place.reshape(-1).numpy() for place in places]), axis=0) / (0.5 * run.clip_norm / 5)
        white.append(as_matrix(run.noise.strategy(4)) @ steps)
        assert np.cov(white[-1]) == pytest.approx(np.eye(4), abs=6 * np.sqrt(2 / steps.shape[1]))
    assert all(torch.equal(*pair) for pair in zip(told[0].whole, told[1].whole, strict=True))  # whole in both: drawn once
    least = min(one.shape[1] for one in white[:2])
    across = white[0][:, :least] @ white[1][:, :least].T / least
    assert across == pytest.approx(np.zeros((4, 4)), abs=6 / np.sqrt(least))


def without_gradient(rank: int, run: Run, folder: str, stop: int | None) -> list[tuple[Tensor, Tensor]]:
    """What lies in this process's shards, and what is whole, at the start and after each step; killed in step `stop`, after its noise."""
    model = sharded(network(), "some")
    places: list[tuple[Tensor, Tensor]] = []

    def note(step: int, steps: int) -> None:
        parameters = [local(parameter.detach()) for parameter in model.parameters()]
        parts = (parameters[4:6], parameters[:4] + parameters[6:])
        in_shards, whole = (torch.cat([one.reshape(-1) for one in part]) for part in parts)
        places.append((in_shards, whole))
        if step == stop:
            raise Killed

    note(0, 0)
    with suppress(Killed):
        kept_as = Checkpoints(folder=folder, every=2)
        fit(
            model,
            lambda outputs, targets: outputs.sum(1) * 0.0,
            make_data(),
            run,
            options=TrainOptions(seed=5, checkpoints=kept_as, progress=note, isolation="declared"),
        )
    return places


def test_the_noise_of_shards_that_a_kill_lost_is_in_no_later_step(processes: Processes, tmp_path: Path) -> None:
    """C' w = z, number for number, in both shards and in what is whole; C' has no entries for the lost step 3 below its own."""
    run = run_of()
    first, second = (processes.run(2, without_gradient, run, str(tmp_path / "kept"), stop) for stop in (3, None))
    assert run.noise is not None
    fewer = as_matrix(run.noise.strategy(run.total_steps)).copy()
    fewer[3:, 2] = 0.0
    scale = float(run.step_sizes[0]) * float(run.uncorrelated.noise_multipliers[0]) * run.clip_bound / run.batch_size
    whole = [tuple(parameter.shape) for parameter in network().parameters()]
    in_shards = [(2, 5), (2,)]  # of 4 rows in 2 processes
    del whole[4:6]
    for rank, kind, part, shapes in ((0, 0, 1, in_shards), (1, 0, 2, in_shards), (0, 1, 0, whole), (1, 1, 0, whole)):
        before, after = [place[kind] for place in first[rank]], [place[kind] for place in second[rank]]
        assert (len(before), len(after)) == (4, 7)
        # Step 4 goes on from the checkpoint after step 2.
        moves = [*np.diff(torch.stack(before), axis=0), (after[1] - before[2]).numpy(), *np.diff(torch.stack(after[1:]), axis=0)]
        drawn = []
        for step in range(run.total_steps):
            fresh = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
            NetworkNoise(stream_generator(5, torch.device("cpu"), OF_STEPS, part, step)).add_to(fresh, 1.0)
            drawn.append(torch.cat([one.reshape(-1) for one in fresh]).numpy())
        assert fewer @ (-np.array(moves) / scale) == pytest.approx(np.array(drawn), abs=1e-9)
