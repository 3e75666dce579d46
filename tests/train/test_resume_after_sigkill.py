"""Processes that are killed at random times, again and again, until the run is through; and who may write to a journal."""

import json
import os
import random
import signal
import time
from collections.abc import Callable
from itertools import product
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


def child(folder: Path, how: str, name: str) -> None:
    """Train to the end, and leave the recorded run; the spy's log is opened for appending alone."""
    torch.set_num_threads(1)
    run, checkpoints = make_kept_run(name), Checkpoints(folder=folder / "kept", every=3)
    log = (folder / "spied").open("ab", buffering=0)
    spy = Spy(lambda step, records: log.write(f"{step} {json.dumps(records)}\n".encode()))
    if how == "fit":
        result = trained(folder / "kept", run, spy, checkpoints=checkpoints)
        assert result is not None
        recorded = result.run
    else:
        with spy.watching():
            recorded = Loop(run, checkpoints=checkpoints, noise_generator=None, physical_size=4, isolation="declared").whole()
    (folder / "recorded.json").write_text(json.dumps(recorded.to_document()))


def killed_until_finished(folder: Path, how: str, name: str, chance: random.Random) -> int:
    """Start it, kill it some time after its log has grown by a few lines, and again; how many were killed, until it ended by itself."""
    log, most, longest = folder / "spied", 25 if by_night() else 3, 1 + len(make_kept_run(name).noisy_steps) // 4
    log.touch()
    for kills in range(most + 1):
        process = forking().Process(target=child, args=(folder, how, name))
        process.start()
        if kills < most:
            line = log.read_bytes().count(b"\n") + chance.randint(1, longest)
            while process.is_alive() and log.read_bytes().count(b"\n") < line:
                time.sleep(0.001)
            time.sleep(chance.uniform(0.0, 0.005))
            process.kill()
        process.join()
        if process.exitcode == 0:
            return kills
        assert process.exitcode == -signal.SIGKILL
    raise AssertionError("it did not end")


DESIGNS = ["cyclic", "shuffled_once", "shuffled", "random_allocation", "poisson", "averaged_shuffled"]
NIGHTLY = [pytest.param(*case, marks=pytest.mark.nightly) for case in (*product(["fit"], DESIGNS), ("loop", "shuffled"))]


@pytest.mark.parametrize(("how", "name"), [("loop", "random_allocation"), *NIGHTLY])
def test_killed_at_random_times(tmp_path: Path, how: str, name: str) -> None:
    """All iterates are released; test_resume.py has kills of every kind, also where the last one is, without their processes."""
    kills = killed_until_finished(tmp_path, how, name, random.Random(len(how + name)))
    assert kills >= 2
    run = make_kept_run(name)
    recorded = lethe.Run.from_document(json.loads((tmp_path / "recorded.json").read_text()))
    assert as_planned(recorded) == run
    lines = [line.partition(" ") for line in (tmp_path / "spied").read_text().splitlines()]
    batches, steps = planned_batches(run), [int(step) for step, _, _ in lines]
    assert all(json.loads(records) == batches[int(step) - 1] for step, _, records in lines)
    assert steps == sorted(set(steps))
    assert set(steps) <= {int(step) + 1 for step in run.noisy_steps}
    assert len(run.noisy_steps) - len(steps) <= kills  # journaled, and killed before the noise was drawn


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
