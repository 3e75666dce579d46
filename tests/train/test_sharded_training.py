"""Models in shards (fully_shard) and in DistributedDataParallel, in several processes over gloo, against one process."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from how_many import by_night
from networks import CLASSES, CROSS_ENTROPY, make_network_run
from processes import Processes, all_raised, received
from scipy import stats
from shared_deaths import Killed, journaled, kept, root_dies
from shared_work import (
    collected,
    in_a_loop,
    loudest,
    moved_by,
    network,
    of_noise_alone,
    state_of_a_shard,
    trained,
    written,
    wrong,
)
from torch import Tensor, nn

from lethe.errors import InputError, LetheError
from lethe.train.clip.clipper import Clipper
from lethe.train.distributed.collectives import StoppedElsewhere

pytestmark = pytest.mark.slow  # starting processes takes seconds

SEED = 5  # its Poisson batches of nominal size 1 are now and then empty, single and larger
USERS = {"records": 8, "batches": {"design": "poisson", "size": 3}, "unit": "user", "neighbours": "add_or_remove"}
OWNERS = torch.arange(23) // 3
LARGE = {"batches": {"design": "poisson", "size": 14}, "steps": 4}  # several micro-batches of two records in each process
SMALL = {"batches": {"design": "poisson", "size": 1}, "steps": 12}


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("work", "how", "world", "design", "changes", "make", "options"),
    [
        (trained, "all", 2, "poisson", {}, None, {}),
        (trained, "all", 3, "poisson", SMALL, torch.optim.Adam, {"physical_size": 2}),
        (trained, "all", 1, "poisson", SMALL, torch.optim.Adam, {}),
        (trained, "frozen", 2, "poisson", SMALL, torch.optim.SGD, {}),
        (trained, "some", 3, "poisson", SMALL, None, {}),
        (trained, "all", 2, "poisson", USERS, None, {"users": OWNERS, "records_per_user": 3}),
        (trained, "columns", 2, "shuffled", {}, torch.optim.SGD, {}),
        (trained, "some", 2, "cyclic", {}, None, {}),
        (in_a_loop, "all", 2, "poisson", {}, torch.optim.Adam, {"physical_size": 2}),
        (trained, "some", 2, "poisson", LARGE, torch.optim.Adam, {"physical_size": 2}),
        (in_a_loop, "all", 3, "poisson", LARGE, torch.optim.Adam, {"physical_size": 2}),
        (
            in_a_loop,
            "all",
            2,
            "poisson",
            USERS,
            torch.optim.SGD,
            {"users": OWNERS, "records_per_user": 2, "physical_size": 1},
        ),
        (in_a_loop, "ddp", 3, "poisson", USERS, torch.optim.SGD, {"users": OWNERS}),
        (in_a_loop, "some", 3, "shuffled", {}, torch.optim.SGD, {}),
        (in_a_loop, "ddp", 2, "poisson", SMALL, torch.optim.Adam, {"physical_size": 2}),
    ],
)
def test_they_take_the_steps_of_one_process(
    processes: Processes, work: Any, how: str, world: int, design: str, changes: dict[str, Any], make: Any, options: dict[str, Any]
) -> None:
    run = make_network_run(design, **{"noise_multiplier": 0.0, **changes})
    options = {"seed": SEED, **options}
    parameters, recorded, checked = work(0, how, run, make, options)
    assert checked == "checked"
    for told in processes.run(world, work, how, run, make, options):
        assert isinstance(told, tuple), told
        assert float((told[0] - parameters).abs().max()) < 1e-9
        assert told[1] == recorded
        assert told[2] == "checked" or changes is SMALL  # whose shares are seldom of two records


def test_between_micro_batches_sums_lie_in_shards(processes: Processes) -> None:
    run = make_network_run("full", steps=2)
    told = processes.run(2, collected, run, {"physical_size": 3})
    assert all(isinstance(one, list) for one in told), told
    parts = [one[0][1] for one in told]
    assert sum(parts) == sum(parameter.numel() for parameter in network().parameters())
    for one, own in zip(told, parts, strict=True):
        assert one == [(own, own)] * 6  # four micro-batches of at most three of twelve records, in each of two steps


def test_with_noise_all_record_the_planned_run_and_hold_one_model(processes: Processes) -> None:
    """What lies whole has one noise for all: DistributedDataParallel's is that of one process, bit for bit."""
    run = make_network_run("poisson", noise_multiplier=1.0, steps=3)
    for world, how in ((2, "some"), (3, "all")) if by_night() else ((2, "some"),):
        told = processes.run(world, trained, how, run, None, {})
        assert all(torch.equal(one[0], told[0][0]) and one[1] == run for one in told)
        assert not torch.equal(processes.run(world, trained, how, run, None, {})[0][0], told[0][0])
    alone = in_a_loop(0, "ddp", run, torch.optim.SGD, {"seed": SEED})
    for one in processes.run(2, in_a_loop, "ddp", run, torch.optim.SGD, {"seed": SEED}):
        assert float((one[0] - alone[0]).abs().max()) < 1e-9


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
    shards, (first, *others) = [one.shard[-1] for one in told], [one.whole[-1] for one in told]
    assert [len(shard) for shard in shards] == [84, 84, 83]  # of 251 rows
    weights = torch.cat(shards)
    assert all(torch.equal(one.shards, weights) for one in told)
    assert all(torch.equal(first, other) for other in others)  # whole in all: drawn once
    noise = torch.cat([weights.reshape(-1), first.reshape(-1)]).double()
    variance = sum((0.5 * multiplier * 0.4 / 5) ** 2 for multiplier in (1.0, 2.0, 0.5))
    low, high = stats.chi2.interval(1 - 1e-9, noise.numel())
    assert low < float(noise.square().sum()) / variance < high
    assert high / noise.numel() < 1.0201  # a standard deviation that is 1 % off would show
    assert low / noise.numel() > 0.9801
    for shard in (*shards, first):
        assert stats.kstest(shard.double().reshape(-1).numpy() / np.sqrt(variance), "norm").pvalue > 1e-9
        own_low, own_high = stats.chi2.interval(1 - 1e-9, shard.numel())
        assert own_low < float(shard.double().square().sum()) / variance < own_high
    twice = noise.numel() - noise.unique().numel()
    assert twice == 0 or (secure and twice < 1000)  # on a grid some meet by chance; of equal streams 75000 would
    for one, other in ((0, 1), (0, 2), (1, 2)):
        pair = torch.stack([shards[one][:83].reshape(-1), shards[other][:83].reshape(-1)]).double()
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 6 / np.sqrt(pair.shape[1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("how", "physical_size"), [("all", None), ("whole", 3)])
def test_one_record_moves_the_parameters_by_at_most_the_sensitivity(processes: Processes, how: str, physical_size: int | None) -> None:
    run, options = make_network_run("full", steps=1, step_size=2.0), {"physical_size": physical_size}
    loud, absent = (processes.run(3, moved_by, how, run, scale, options)[0] for scale in (1e9, float("nan")))
    bound = float(run.sensitivities[0])
    assert bound * 0.5 <= float((loud - absent).norm()) <= bound * (1 + 1e-12)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("hybrid", r"mesh of 1x2 processes \(replicate, shard\).*HSDP"),
        ("tensor parallel", "DTensor placed as R"),
        ("one of two", "its mesh is of processes"),
        ("first version", "wrapped in FullyShardedDataParallel.*fully_shard"),
        ("inside", "0: wrapped in DistributedDataParallel"),
        ("subgroup", "over 1 processes, and 2 train together.*model.module"),
        ("policy", "noise_policy: given, and the model is in shards"),
        ("regulariser", "run.regulariser: given, and the model is in shards"),
        ("last", "release: last: given, and the model is in shards"),
        ("average kept", "ema, and checkpoints: given, and the model is in shards"),
        ("same noise", "noise_generator: the same in process 1 and in process 0"),
    ],
)
def test_what_is_refused_is_refused_by_name(processes: Processes, what: str, message: str) -> None:
    for said in all_raised(processes.run(2, wrong, what), InputError):
        assert re.search(message, said.replace("\n", " ")), said


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("frozen", "0.weight is frozen, in shards and was moved"),
        ("gathered", "writes 0.weight|changed by something else than fit's own step, in the forward pass or the loss|keeps what it saw"),
        ("in place", "0.weight .*was changed by something else than fit's own step, in the forward pass or the loss of step 5"),
        ("shard", "0.weight .*was changed by something else"),
        ("gradient", "was written to .grad while the model was whole"),
    ],
)
def test_what_somebody_writes_is_found(processes: Processes, tmp_path: Path, what: str, message: str) -> None:
    said = processes.run(2, written, what, os.fspath(tmp_path))
    assert any(re.search(message, str(one)) for one in said), said
    assert all(isinstance(one, LetheError) for one in said), said


def spoil(folder: Path) -> None:
    path = folder / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])


def never_begun(journal: Path, step: int) -> None:
    """As if the training had been ended before it wrote this step down."""
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(line for line in lines if line != f"step {step}") + "\n")


def test_another_number_of_processes_goes_on_from_a_checkpoint(processes: Processes, tmp_path: Path) -> None:
    """Ended right after a checkpoint, no step is lost: the result is that of no interruption, with Adam's averages."""
    run, folder = make_network_run("shuffled"), os.fspath(tmp_path / "kept")
    whole, _ = processes.run(2, kept, run, os.fspath(tmp_path / "whole"), None)[0]
    for stopped in processes.run(3, kept, run, folder, 5):
        assert isinstance(stopped, Killed), stopped
    assert sorted(os.listdir(folder)) == ["checkpoint.pt", "journal"]
    never_begun(tmp_path / "kept" / "journal", 5)
    assert all(float((one[0] - whole).abs().max()) < 1e-9 for one in processes.run(2, kept, run, folder, None))
    spoil(tmp_path / "kept")
    again = processes.run(2, kept, run, folder, None)
    assert "damaged" in str(again[0])
    assert all(isinstance(one, LetheError) for one in again), again


@pytest.mark.nightly(by_day="test_nobody_draws_noise_of_a_step_that_is_not_written_down")
def test_a_process_that_dies_leaves_no_release_uncounted(tmp_path: Path) -> None:
    run, folder = make_network_run("shuffled", noise_multiplier=1.0), os.fspath(tmp_path / "kept")
    with Processes(3) as started:
        (result, *_) = started.run(3, kept, run, folder, 5, "die", answering=1)
        assert isinstance(result, StoppedElsewhere), result
    assert journaled(folder) >= 5
    with Processes(2) as started:
        results = started.run(2, kept, run, folder, None)
        assert all(torch.equal(one[0], results[0][0]) and with_fresh_noise(one[1]) == run for one in results), results
        assert journaled(folder) == run.total_steps


@pytest.mark.parametrize("written", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_nobody_draws_noise_of_a_step_that_is_not_written_down(tmp_path: Path, written: bool) -> None:
    folder = os.fspath(tmp_path / "kept")
    with Processes(2) as started:
        with pytest.raises(EOFError):
            started.run(2, root_dies, make_network_run("shuffled", noise_multiplier=1.0), folder, 4, written)
        assert isinstance(received(started._pipes[1]), StoppedElsewhere)
    assert journaled(folder) == 3 + written
    assert [len(Path(f"{folder}-drawn{rank}").read_text().split()) for rank in range(2)] == [3, 3]


def test_the_digest_of_shards_is_refused(processes: Processes) -> None:
    for said in all_raised(processes.run(2, state_of_a_shard), InputError):
        assert "is a DTensor, of which this process holds a shard" in said


def test_the_grid_of_secure_noise_counts_the_numbers_of_all_processes() -> None:
    """A shard has few; what rounding to the grid may add to a change of all of them grows with their number."""
    from lethe.train.network.noise.secure import SecureNoise, grid_noise_std
    from lethe.train.network.noise.training_noise import TrainingNoise
    from lethe.train.network.steps import NoisySums

    asked: list[float] = []

    class Noted(SecureNoise):
        def add_to(self, tensors: Any, noise_std: float) -> None:
            asked.append(noise_std)

    run = make_network_run(noise_multiplier=1.0)
    noise = TrainingNoise(Noted(), shards=Noted(), parts=[True, False], dimension=10**12)
    NoisySums(run, noise)(1, [torch.zeros(5), torch.zeros(3)])
    assert set(asked) == {grid_noise_std(0.4, run.touch_factor * run.record_bound, 10**12)}
    assert asked[0] > 1.003 * 0.4


class Tagger(nn.Module):
    """An embedding, attention, a recurrent layer and a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.recurrent = nn.GRU(16, 12, batch_first=True)
        self.scale = nn.Parameter(torch.ones(12))
        self.head = nn.Linear(12, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.recurrent(self.block(self.embedding(tokens)))[0].mean(1) * self.scale)


def test_layers_in_bfloat16_keep_to_the_clip_norm() -> None:
    """What a policy of precision makes of gathered parameters: sums are float64, and no record's is longer than C."""
    torch.manual_seed(0)
    model, tokens, targets = Tagger().bfloat16(), torch.randint(20, (6, 9)), torch.randint(CLASSES, (6,))
    for record in range(6):
        losses = lambda batch: CROSS_ENTROPY(100 * model(batch[0]).float(), batch[1])  # noqa: E731
        clipper = Clipper(model, losses, clip_norm=1e-3, isolation="declared")
        clipper.add((tokens, targets), counted=torch.arange(6) == record)
        sums = clipper.take().values()
        assert all(total.dtype == torch.float64 for total in sums)
        assert 0.99e-3 < float(torch.cat([total.double().reshape(-1) for total in sums]).norm()) <= 1e-3
