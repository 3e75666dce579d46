"""Models in shards (fully_shard) and in DistributedDataParallel, in several processes over gloo, against one process."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from helpers import with_fresh_noise
from networks import make_network_run
from processes import Processes, all_raised, received
from shared_work import journaled, kept, root_dies, written, wrong

from lethe.errors import InputError, LetheError
from lethe.train.distributed.collectives import StoppedElsewhere


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
        assert isinstance(stopped, KeyError), stopped
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
