"""Several processes over gloo, whole, in DistributedDataParallel or in shards (fully_shard), against one process with the same seed."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import as_planned
from networks import by_hand, make_data, make_network_run
from processes import Processes
from scipy import stats
from shared_work import in_a_loop, kept, loudest, network, of_noise_alone, trained
from torch import Tensor

from lethe.train import Group

SEED = 5  # its batches of nominal size 1 are now and then empty, single and larger
USERS = {"records": 9, "batches": {"design": "random_allocation", "size": 3}, "unit": "user"}
OF_USERS: dict[str, Any] = {"users": [8, 3, 3, 0, 1, 2, 3, 4, 8, 5, 6, 7, 0, 3, 3, 1, 8, 5, 3, 2, 4, 8, 0], "records_per_user": 2}
LARGE = {"batches": {"design": "poisson", "size": 14}, "steps": 4}  # several micro-batches of two records in each process
SMALL = {"batches": {"design": "random_allocation", "size": 1}, "steps": 12}
CORRELATED = {"noise": {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}, "noise_multiplier": 1.0}
LAST = {"release": "last", "regulariser": {"kind": "ridge", "strength": 0.1}}
AVERAGED = {"release": "last", "passes": 3, "noise_at": "pass_ends", "pass_weights": [0.0, 1.0, 2.0, 1.5]}
ADAPTIVE = {"clip_method": "adaptive", "clip_quantile": 0.3}
GROUPS = {"clip_groups": [Group(parameters=("0.*",), clip_norm=0.24), Group(parameters=("*",), clip_norm=0.32)]}
SGD, ADAM = torch.optim.SGD, torch.optim.Adam
CASES: list[tuple[Any, str, int, str, dict[str, Any], Any, dict[str, Any]]] = [
    (trained, "whole", 2, "shuffled", {}, SGD, {"physical_size": 2}),
    (trained, "whole", 3, "poisson", SMALL, None, {"physical_size": 2}),
    (trained, "whole", 2, "cyclic", LAST, None, {}),
    (trained, "whole", 3, "cyclic", AVERAGED, None, {}),
    (trained, "whole", 2, "shuffled", {"noise_at": "pass_ends", "steps": 8}, ADAM, {}),
    (trained, "whole", 3, "random_allocation", {}, None, GROUPS),
    (trained, "whole", 2, "poisson", ADAPTIVE, SGD, {"physical_size": 2}),
    (trained, "whole", 2, "balls_in_bins", {}, None, {}),
    (trained, "whole", 3, "poisson", USERS, None, OF_USERS),
    (trained, "whole", 2, "cyclic", {}, None, {"views": 2, "physical_size": 2}),
    (in_a_loop, "whole", 2, "shuffled", {}, ADAM, {"physical_size": 2}),
    (in_a_loop, "ddp", 3, "poisson", USERS, SGD, OF_USERS),
    (in_a_loop, "ddp", 2, "poisson", SMALL, ADAM, {"physical_size": 2}),
    (trained, "whole", 2, "cyclic", CORRELATED, ADAM, {}),
    (in_a_loop, "whole", 2, "cyclic", CORRELATED, SGD, {}),
    (trained, "all", 3, "poisson", SMALL, ADAM, {"physical_size": 2}),
    (trained, "all", 1, "poisson", SMALL, ADAM, {}),
    (trained, "frozen", 2, "poisson", SMALL, SGD, {}),
    (trained, "all", 2, "poisson", USERS, None, OF_USERS),
    (trained, "columns", 2, "shuffled", {}, SGD, {}),
    (trained, "some", 2, "poisson", LARGE, ADAM, {"physical_size": 2}),
    (in_a_loop, "all", 3, "poisson", LARGE, ADAM, {"physical_size": 2}),
    (in_a_loop, "all", 2, "poisson", USERS, SGD, {**OF_USERS, "physical_size": 1}),
    (in_a_loop, "some", 3, "shuffled", {}, SGD, {}),
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("noise_multiplier", [0.0, 1.0])
@pytest.mark.parametrize("case", CASES)
def test_processes_take_the_steps_of_one(processes: Processes, case: tuple[Any, ...], noise_multiplier: float) -> None:
    """With noise too where nothing is in shards, whose noise is each process's own."""
    work, how, world, design, changes, make, options = case
    whole = how in ("whole", "ddp")
    run = make_network_run(design, **{"noise_multiplier": noise_multiplier if whole else 0.0, **changes})
    given = (how, run, make, {"seed": SEED, **options})
    parameters, recorded, checked = work(0, *given)
    assert checked == "checked"
    assert (recorded.uncorrelated.noise_stds.tolist(), recorded.noise) == (run.uncorrelated.noise_stds.tolist(), run.noise)
    together = processes.run(world, work, *given)
    for told in together:
        assert isinstance(told, tuple), told
        assert torch.equal(told[0], together[0][0])
        assert float((told[0] - parameters).norm()) <= (1e-12 if whole else 1e-9) * float(parameters.norm())
        assert told[1] == recorded
        assert told[2] == "checked" or changes is SMALL  # whose shares are seldom of two records


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
    weights = [one[0] for one in processes.run(3, of_noise_alone, "whole", run, make, {"secure": secure})]
    require_variance(weights[0], 0.03)  # a standard deviation that is 1.5 % off would show
    assert all(torch.equal(weight, weights[0]) for weight in weights)


VARIANCE = sum((0.5 * multiplier * 0.4 / 5) ** 2 for multiplier in (1.0, 2.0, 0.5))


def require_variance(noise: Tensor, most: float) -> None:
    """Of all three steps, where at most this share more or less would show."""
    low, high = stats.chi2.interval(1 - 1e-9, noise.numel())
    assert low < float(noise.double().square().sum()) / VARIANCE < high
    assert 1 - most < low / noise.numel() < high / noise.numel() < 1 + most


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("release", "noise_multiplier"), [("last", 0.0), ("all", 1.0)])
def test_processes_together_go_on_from_a_checkpoint(processes: Processes, tmp_path: Path, release: str, noise_multiplier: float) -> None:
    run = make_network_run("shuffled", release=release, noise_multiplier=noise_multiplier)
    given = (run, os.fspath(tmp_path / "kept")), (torch.optim.SGD if release == "all" else None, "whole")
    assert all(isinstance(one, KeyError) for one in processes.run(2, kept, *given[0], 5, *given[1]))
    results = processes.run(2, kept, *given[0], None, *given[1])
    assert torch.equal(results[0][0], results[1][0])
    assert all(recorded.seeded and as_planned(recorded) == run for _, recorded in results)
    if release == "last":  # the steps after the checkpoint are taken again
        expected = by_hand(network(), make_data(), run, torch.Generator().manual_seed(3))
        assert float((results[0][0] - expected).abs().max()) < 1e-9


@pytest.mark.nightly(by_day="test_layers_in_bfloat16_keep_to_the_clip_norm")
def test_a_policy_of_precision_is_kept(processes: Processes) -> None:
    """Layers compute in bfloat16, on float32 shards; one process and two agree to the rounding of bfloat16."""
    run = make_network_run("shuffled", steps=4)
    told = [processes.run(world, trained, "bf16", run, None, {"seed": SEED}, torch.float32)[0] for world in (1, 2)]
    assert not any(isinstance(one, Exception) for one in told), told
    exact = trained(0, "bf16", run, None, {"seed": SEED}, torch.float32)[0]
    start = torch.cat([parameter.detach().reshape(-1) for parameter in network(torch.float32).parameters()])
    assert all(one[0].dtype == torch.float32 for one in told)
    assert float((told[0][0] - told[1][0]).norm()) < 1e-2 * float((exact - start).norm())
    assert 1e-6 < float((told[0][0] - exact).norm()) < 0.05 * float((exact - start).norm())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", ["ddp", "sharded"])
def test_no_unclipped_gradient_is_ever_exchanged(processes: Processes, how: str) -> None:
    for sizes, reduced in processes.run(2, loudest, how, True):
        # 23 records of norm 0.4, parameters, and what the processes tell each other, such as numbers of bytes.
        assert max(sizes.values()) < 1e5, sizes
        assert any(("reduce_" if how == "ddp" else "reduce_scatter") in name for name in sizes)
        assert not reduced
    for sizes, reduced in processes.run(2, loudest, how, False):  # this would be seen
        assert reduced if how == "ddp" else max(sizes.values()) > 1e6


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("make", "secure"), [(None, False), (torch.optim.SGD, True)])
def test_the_shards_noises_together_are_one_gaussian(processes: Processes, make: Any, secure: bool) -> None:
    run = make_network_run(noise_multiplier=[1.0, 2.0, 0.5], steps=3)
    told = processes.run(3, of_noise_alone, "some", run, make, {"secure": secure})
    shards, (first, *others), gathered = zip(*told, strict=True)
    assert [len(shard) for shard in shards] == [84, 84, 83]  # of 251 rows
    weights = torch.cat(shards)
    assert all(torch.equal(one, weights) for one in gathered)
    assert all(torch.equal(first, other) for other in others)  # whole in all: drawn once
    noise = torch.cat([weights.reshape(-1), first.reshape(-1)]).double()
    require_variance(noise, 0.0201)  # a standard deviation that is 1 % off would show
    for shard in (*shards, first):
        assert stats.kstest(shard.double().reshape(-1).numpy() / np.sqrt(VARIANCE), "norm").pvalue > 1e-9
        require_variance(shard, 0.3)
    twice = noise.numel() - noise.unique().numel()
    assert twice == 0 or (secure and twice < 1000)  # on a grid some meet by chance; of equal streams 75000 would
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pair = torch.stack([shards[one][:83].reshape(-1), shards[other][:83].reshape(-1)]).double()
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 6 / np.sqrt(pair.shape[1])
