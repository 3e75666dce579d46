"""lethe.correlate: the strategy that suits a run, of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run

import lethe
from lethe.calculus.correlated.matrices import prefix_sums, sgd_workload, square_root
from lethe.calculus.correlated.sensitivity import mean_squared_error, noise_squares
from lethe.errors import InputError


def error_of(run: lethe.Run, workload: Any) -> float:
    """Of its iterates' noise, a coordinate, in units of the clip norm squared."""
    strategy = square_root(run.total_steps, 1) if run.noise is None else run.noise.strategy(run.total_steps)
    return run.uncorrelated.noise_multipliers[0] ** 2 * noise_squares(strategy, workload)


@pytest.mark.slow
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once"])
def test_at_the_same_epsilon_it_moves_the_iterates_less(design: str, tmp_path: Path) -> None:
    run = make_run(batches={"design": design, "size": 10}, release="all", noise_multiplier=None)
    kinds: dict[str, dict[str, Any]] = {
        "banded_toeplitz": {},
        "buffered_toeplitz": {"buffers": 2},
        "dense": {"path": tmp_path / "dense.npy", "bands": 12},
    }
    independent = error_of(lethe.plan(run, epsilon=1.0, delta=1e-5), prefix_sums(50))
    for kind, options in kinds.items():
        planned = lethe.plan(lethe.correlate(run, kind, **options), epsilon=1.0, delta=1e-5)  # pyright: ignore[reportArgumentType]
        assert error_of(planned, prefix_sums(50)) < 0.35 * independent


def test_the_workload_is_the_run_s(tmp_path: Path) -> None:
    """Step sizes that shrink, and momentum, have strategies of their own, better for them than the one of plain sums."""
    run = make_run(steps=20, step_size={"schedule": "exponential", "first": 0.5, "ratio": 0.7}, release="all")
    own = lethe.correlate(run, "dense", path=tmp_path / "own.npy").noise
    plain = lethe.correlate(run.replace(step_size=0.5), "dense", path=tmp_path / "plain.npy").noise
    workload = sgd_workload(run.step_sizes)
    assert own is not None
    assert plain is not None
    assert mean_squared_error(own.strategy(20), workload, 10) < 0.9 * mean_squared_error(plain.strategy(20), workload, 10)
    heavy = sgd_workload(np.ones(50), momentum=0.9)
    with_momentum, without = (lethe.correlate(make_run(), momentum=momentum).noise for momentum in (0.9, 0.0))
    assert with_momentum is not None
    assert without is not None
    assert mean_squared_error(with_momentum.strategy(50), heavy, 10) < mean_squared_error(without.strategy(50), heavy, 10)


def test_full_batches_gain_nothing() -> None:
    run = make_run(batches={"design": "full"}, release="all")
    planned = lethe.plan(lethe.correlate(run), epsilon=1.0, delta=1e-5)
    assert planned.noise_multiplier == pytest.approx(lethe.plan(run, epsilon=1.0, delta=1e-5).noise_multiplier, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({}, {"strategy": "tree"}, "strategy"),
        ({}, {"strategy": "dense"}, "path"),
        ({}, {"path": "C.npy"}, "path"),
        ({}, {"bands": 51}, "bands"),
        ({}, {"bands": 0}, "bands"),
        ({}, {"strategy": "buffered_toeplitz", "buffers": 11}, "buffers"),
        ({}, {"momentum": 1.0}, "momentum"),
        ({"step_size": [0.5] * 49 + [0.4]}, {}, "step_size"),
        ({"batches": {"design": "poisson", "size": 10}}, {}, "poisson"),
        ({"noise_at": "pass_ends"}, {}, "noise_at"),
        ({"passes": 500}, {"strategy": "dense", "path": "C.npy"}, "4096"),
    ],
)
def test_what_it_cannot_do_is_refused(changes: dict[str, Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        lethe.correlate(make_run(**changes), **options)
    assert not Path("C.npy").exists()


def _file(run: lethe.Run) -> Path:
    assert isinstance(run.noise, lethe.noise.LowerTriangular)
    return Path(run.noise.file)


@pytest.mark.slow
def test_a_folder_keeps_what_was_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found again without a search, by all that was asked for; a file that was cut short or is for other steps is refused."""
    run = make_run(steps=20, release="all")
    first = lethe.correlate(run, "dense", path=tmp_path)
    others = [
        lethe.correlate(run.replace(steps=21), "dense", path=tmp_path),
        lethe.correlate(run, "dense", path=tmp_path, bands=3),
        lethe.correlate(run, "dense", path=tmp_path, momentum=0.5),
        lethe.correlate(run, "dense", path=tmp_path, influence=lethe.schedules.Influence(rate=0.9)),
        lethe.correlate(run.replace(batches={"design": "cyclic", "size": 20}), "dense", path=tmp_path),
    ]
    assert len(list(tmp_path.iterdir())) == 6
    assert len({_file(one) for one in [first, *others]}) == 6
    monkeypatch.setattr("lethe.noise_allocation.correlate.dense", None)
    assert lethe.correlate(run, "dense", path=tmp_path) == first
    kept = _file(first)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-8])
    with pytest.raises(InputError, match="cannot be read"):
        lethe.correlate(run, "dense", path=tmp_path)
    kept.write_bytes(_file(others[0]).read_bytes())
    with pytest.raises(InputError, match="21 steps"):
        lethe.correlate(run, "dense", path=tmp_path)
