"""Processes that are killed at random times, again and again, until the run is through; and who may write to a journal."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from itertools import groupby
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import forking
from helpers import as_planned
from how_many import by_night
from interrupted import Spy, make_kept_run, planned_batches, trained
from networks import Loop

import lethe
from lethe.errors import InputError
from lethe.train import Checkpoints
from lethe.train.checkpoints.journal import Journal


def child(folder: Path, how: str, name: str, release: str, every: int) -> None:
    """Train to the end, and leave the recorded run; the spy's log is opened for appending alone."""
    torch.set_num_threads(1)
    run = make_kept_run(name, release, noise_multiplier=1.0)
    log = (folder / "spied").open("ab", buffering=0)
    spy = Spy(lambda step, records: log.write(f"{step} {json.dumps(records)}\n".encode()))
    log.write(b"process\n")
    if how == "fit":
        result = trained(folder / "kept", run, spy, every=every)
        assert result is not None
        recorded = result.run
    else:
        with spy.watching():
            options: dict[str, Any] = {"noise_generator": None, "physical_size": 4, "isolation": "declared"}
            recorded = Loop(run, checkpoints=Checkpoints(folder=folder / "kept", every=every), **options).whole()
    (folder / "recorded.json").write_text(json.dumps(recorded.to_document()))


CASES = [
    ("fit", "cyclic", "all"),
    ("fit", "shuffled_once", "all"),
    ("fit", "shuffled", "all"),
    ("fit", "random_allocation", "all"),
    ("loop", "random_allocation", "all"),
    ("loop", "shuffled", "all"),
    ("fit", "averaged_shuffled", "all"),
    ("fit", "pass_ends", "last"),
    ("fit", "averaged", "last"),
    ("fit", "poisson", "last"),
]
# By day a loop that draws a new secret allocation in each pass; test_resume.py has kills of every kind without their processes.
BY_DAY = [case if case == ("loop", "random_allocation", "all") else pytest.param(*case, marks=pytest.mark.nightly) for case in CASES]


def killed_until_finished(folder: Path, words: tuple[str, str, str, int], chance: random.Random) -> int:
    """Start it, kill it some time after its log has grown by a few lines, and again; how many were killed, until it ended by itself."""
    log, most = folder / "spied", 25 if by_night() else 3
    folder.mkdir()
    log.touch()
    for kills in range(most + 1):
        process = forking().Process(target=child, args=(folder, *words))
        process.start()
        if kills < most:
            line = log.read_bytes().count(b"\n") + chance.randint(1, 6)
            while process.is_alive() and log.read_bytes().count(b"\n") < line:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.005))
            process.kill()
        process.join()
        if process.exitcode == 0:
            return kills
        assert process.exitcode == -signal.SIGKILL
    raise AssertionError("it did not end")


@pytest.mark.parametrize(("how", "name", "release"), BY_DAY)
def test_killed_at_random_times(tmp_path: Path, how: str, name: str, release: str) -> None:
    folder = tmp_path / "killed"
    kills = killed_until_finished(folder, (how, name, release, 3), random.Random(len(how + name + release)))
    assert kills >= 2
    run = make_kept_run(name, release)
    recorded = lethe.Run.from_document(json.loads((folder / "recorded.json").read_text()))
    assert as_planned(recorded) == run
    processes = [list(lines) for new, lines in groupby((folder / "spied").read_text().splitlines(), "process".__eq__) if not new]
    released = [(int(step), json.loads(records)) for lines in processes for step, _, records in (line.partition(" ") for line in lines)]
    batches = planned_batches(run)
    assert all(records == batches[step - 1] for step, records in released)
    steps = [step for step, _ in released]
    noisy = [int(step) + 1 for step in run.noisy_steps]
    assert set(steps) <= set(noisy)
    if release == "all":
        assert steps == sorted(set(steps))
        assert len(noisy) - len(steps) <= kills  # journaled, and killed before the noise was drawn
    else:
        assert sorted(set(steps)) == noisy
        assert steps[-1] == noisy[-1]
        starts = [int(lines[0].partition(" ")[0]) for lines in processes if lines]
        ends = [int(lines[-1].partition(" ")[0]) for lines in processes if lines]
        assert all(start in noisy[: noisy.index(end) + 2] for start, end in zip(starts[1:], ends, strict=False))
        for lines in filter(None, processes):
            own = [int(line.partition(" ")[0]) for line in lines]
            assert own == noisy[noisy.index(own[0]) :][: len(own)]


def begun(path: Path, *steps: int) -> Journal:
    journal = Journal(path)
    journal.start(None)
    for step in steps:
        journal.release(step)
    return journal


def held(path: Path, pipe: Connection) -> None:
    """Open it, say where it is, and keep it until told to end."""
    journal = Journal(path)
    pipe.send(journal.step)
    pipe.recv()
    journal.close()


def killed_with_a_worker(path: Path, pipe: Connection) -> None:
    """Open it, start a process that lives on, say which, and die at once."""
    journal = Journal(path)
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.write(writing, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(reading, 1)
    assert journal.step == 1
    pipe.send(worker)
    os.kill(os.getpid(), signal.SIGKILL)


def holding(work: Callable[[Path, Connection], None], path: Path) -> tuple[Any, Any]:
    """A process that does so, and the end of its pipe."""
    mine, theirs = forking().Pipe()
    process = forking().Process(target=work, args=(path, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, mine


def test_one_at_a_time_in_one_process_and_in_several(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = begun(path, 1)
    with pytest.raises(InputError, match="is locked"):
        Journal(path)
    journal.close()
    process, pipe = holding(held, path)
    assert pipe.recv() == 1
    with pytest.raises(InputError, match="is locked"):
        Journal(path)
    pipe.send("end")
    process.join(60)
    assert process.exitcode == 0
    Journal(path).close()


def test_a_forgotten_journal_unlocks_and_a_forked_worker_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    begun(path, 1)  # dropped at once
    killed, pipe = holding(killed_with_a_worker, path)
    worker = pipe.recv()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    try:
        os.kill(worker, 0)  # it outlives the training
        Journal(path).close()
    finally:
        os.kill(worker, 9)
