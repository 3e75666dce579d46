"""Correlated noise: trainings that are killed and taken up again, and several processes over gloo."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_fresh_noise
from interrupted import Killed, Spy, planned_batches, trained
from networks import Loop, fit_network, flat, make_network, make_network_run
from processes import Processes
from shared_work import network, sharded
from torch import Tensor

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.calculus.correlated.sensitivity import slot_sensitivities
from lethe.errors import InputError
from lethe.run.noise import LowerTriangular, strategies
from lethe.run.run import Run
from lethe.train import Checkpoints
from lethe.train.core.generators import OF_STEPS, stream_generator
from lethe.train.core.tensors import local
from lethe.train.network.noise.gaussian import NetworkNoise

STEPS = 12
BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}
PAIR = {"kind": "banded_inverse", "coefficients": [1.0, -0.9]}
INVERSE = {"kind": "banded_inverse", "coefficients": [1.0, -0.6, -0.3]}
KINDS = ("banded", "buffered", "inverse", "matrix")


def run_of(kind: str, folder: Path, **changes: Any) -> Run:
    matrix = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, size=(STEPS, STEPS))) + np.eye(STEPS)
    matrix[6:, 2] = 0.0  # some outputs are let go of before others
    known = {"banded": BANDED, "buffered": BUFFERED, "inverse": INVERSE, "pair": PAIR}
    noise = known.get(kind) or LowerTriangular.saved(matrix, folder / "C.npy")
    return make_network_run("cyclic", noise=noise, noise_multiplier=1.0, steps=STEPS, **changes)


def strategy_of(run: Run) -> np.ndarray[Any, Any]:
    assert run.noise is not None
    return as_matrix(run.noise.strategy(run.total_steps)).copy()


def by_engine(folder: Path, run: Run, spy: Spy | None = None, *, every: int = 3, **options: Any) -> Loop | None:
    """A loop with checkpoints; None: it was killed."""
    with (Spy() if spy is None else spy).watching():
        loop = Loop(run, checkpoints=Checkpoints(folder=folder, every=every), **{"noise_generator": None, **options})
        try:
            loop.whole()
        except Killed:
            loop.engine.close()
            return None
        loop.engine.close()
        return loop


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("kind", "kill"), [("banded", 3), ("buffered", 9), ("inverse", 5), ("pair", 4), ("matrix", 4)])
def test_a_seeded_training_that_lost_no_step_ends_where_the_uninterrupted_one_does(kind: str, kill: int, tmp_path: Path) -> None:
    """Killed before a step is drawn, right after a checkpoint; bit for bit, with Adam's state and an average."""
    run = run_of(kind, tmp_path)
    options: dict[str, Any] = {"seed": 7, "batch_generator": None, "every": 1, "ema": 0.5}

    def one(folder: str, spy: Spy | None = None) -> Any:
        model = make_network()
        return trained(tmp_path / folder, run, spy, model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.1), **options)

    whole = one("whole")
    spy = Spy()
    spy.kill(kill, before=True)
    assert one("killed", spy) is None
    # The journal counts the step that was about to be drawn: it alone is lost where the journal is written before the noise is drawn.
    journal = tmp_path / "killed" / "journal"
    journal.write_text(journal.read_text().replace(f"step {kill}\n", ""))  # as a kill just before that line leaves it
    again = one("killed")
    assert whole is not None
    assert again is not None
    assert torch.equal(flat(whole.model), flat(again.model))
    assert all(torch.equal(value, again.averaged[name]) for name, value in whole.averaged.items())
    assert again.run == whole.run
    assert with_fresh_noise(again.run) == run


@pytest.mark.sampled(8)
@pytest.mark.parametrize("way", ["fit", "loop"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_executed_after_kills_is_a_strategy_with_fewer_entries(kind: str, way: str, tmp_path: Path) -> None:
    """Each process draws from a generator of its own that the test knows; C' w = z for the C' that theory says, no more sensitive."""
    run, spy, train, done = run_of(kind, tmp_path), Spy(), trained if way == "fit" else by_engine, None
    for process, draws in enumerate((6, 3, 99)):
        spy.kill(draws, before=False)
        done = train(tmp_path / "kept", run, spy, every=4, noise_generator=np.random.default_rng(process))
    assert spy.steps == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]  # each step's noise was drawn once
    assert spy.records == planned_batches(run.uncorrelated)
    # Process 2 goes on from step 4 with 5, 6 lost; process 3 from the checkpoint of step 8, with 9 lost.
    executed = strategy_of(run)
    executed = np.linalg.inv(executed) if kind == "inverse" else executed
    executed[6:, 4:6] = 0.0
    executed[9:, 8] = 0.0
    executed = np.linalg.inv(executed) if kind == "inverse" else executed
    drawn = []
    for process, taken in enumerate((6, 3, 3)):
        source = NetworkNoise(np.random.default_rng(process))
        for _ in range(taken):
            zeros = [torch.zeros_like(parameter) for parameter in make_network().parameters()]
            source.add_to(zeros, 1.0)
            drawn.append(zeros[0].reshape(-1).numpy())
    noises = np.stack([noise.reshape(-1).numpy() for noise in spy.noises]) / (run.noise_multiplier * run.clip_bound)  # type: ignore[operator]
    assert executed @ noises == pytest.approx(np.stack(drawn), abs=1e-9)
    assert (slot_sensitivities(executed, run.steps_per_pass) <= slot_sensitivities(strategy_of(run), run.steps_per_pass)).all()
    assert done is not None
    recorded = done.engine.recorded_run() if isinstance(done, Loop) else done.run
    assert with_fresh_noise(recorded) == run
    assert lethe.certify(with_fresh_noise(recorded), 1e-3).epsilon == lethe.certify(run, 1e-3).epsilon


def test_another_strategy_is_refused(tmp_path: Path) -> None:
    run, spy = run_of("matrix", tmp_path), Spy()
    spy.kill(6, before=True)
    assert trained(tmp_path / "kept", run, spy) is None
    tree = run.replace(noise=LowerTriangular.saved(binary_tree(STEPS), tmp_path / "tree.npy"))
    for other in (run.uncorrelated, run_of("banded", tmp_path), tree):
        for train in (lambda run: trained(tmp_path / "kept", run), lambda run: Loop(run, checkpoints=tmp_path / "kept")):
            with pytest.raises(InputError, match="run: the checkpoint is not of run"):
                train(other)
    (tmp_path / "C.npy").write_bytes((tmp_path / "tree.npy").read_bytes())
    strategies._read.cache_clear()  # another process
    with pytest.raises(InputError, match="has the hash"):
        Run(**run.to_document())


def test_dropping_entries_of_a_strategy_without_negative_ones_never_makes_it_more_sensitive() -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        steps, slots = random.integers(1, 12), random.integers(1, 6)
        matrix = np.tril(random.uniform(size=(steps, steps))) + 0.1 * np.eye(steps)
        fewer = np.where(random.uniform(size=matrix.shape) < 0.5, matrix, 0.0)
        fewer[np.diag_indices(steps)] = np.diagonal(matrix)
        assert (slot_sensitivities(fewer, slots) <= slot_sensitivities(matrix, slots) * (1 + 1e-12)).all()
        # Of an inverse I - L with L >= 0 entries of L are dropped.
        shares = np.tril(matrix, -1) / steps
        whole, less = (np.linalg.inv(np.eye(steps) - one) for one in (shares, np.where(fewer > 0.0, shares, 0.0)))
        assert (less >= -1e-12).all()
        assert (slot_sensitivities(np.maximum(less, 0.0), slots) <= slot_sensitivities(whole, slots) * (1 + 1e-12)).all()


def test_a_strategy_with_negative_entries_does_not_go_on_without_its_noise(tmp_path: Path) -> None:
    """One that is dropped may have kept two participations apart."""
    apart = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [1, 0, -1, 1]])
    forgotten = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])
    assert slot_sensitivities(forgotten, 2)[0] > 1.05 * slot_sensitivities(apart, 2)[0]
    matrix = np.eye(STEPS) - 0.9 * np.eye(STEPS, k=-5)
    run = run_of("matrix", tmp_path).replace(noise=LowerTriangular.saved(matrix, tmp_path / "apart.npy"))
    spy = Spy()
    spy.kill(6, before=False)
    assert trained(tmp_path / "kept", run, spy, every=4) is None
    model = make_network()
    with pytest.raises(InputError, match=r"2 steps were released.*negative entries"):
        trained(tmp_path / "kept", run, model=model, every=4)
    assert torch.equal(flat(model), flat(make_network()))
    # Without lost steps it goes on.
    spy = Spy()
    spy.kill(5, before=True)
    assert trained(tmp_path / "other", run, spy, every=1, optimizer=None) is None
    journal = tmp_path / "other" / "journal"
    journal.write_text(journal.read_text().replace("step 5\n", ""))
    assert trained(tmp_path / "other", run, every=1) is not None


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
    options: dict[str, Any] = {"seed": 5, "checkpoints": Checkpoints(folder=folder, every=2), "progress": note, "isolation": "declared"}
    with suppress(Killed):
        fit_network(run, model, lambda outputs, targets: outputs.sum(1) * 0.0, **options)
    return places


def test_the_noise_of_shards_that_a_kill_lost_is_in_no_later_step(processes: Processes, tmp_path: Path) -> None:
    """C' w = z, number for number, in both shards and in what is whole; C' has no entries for the lost step 3 below its own."""
    run = make_network_run("cyclic", noise=BANDED, noise_multiplier=1.0)
    first, second = (processes.run(2, without_gradient, run, str(tmp_path / "kept"), stop) for stop in (3, None))
    fewer = strategy_of(run)
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
