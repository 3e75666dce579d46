"""Correlated noise from a cryptographic source: noise of the strategy's covariance, on a grid that costs no privacy."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import make_run
from torch import nn

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.calculus.correlated.sensitivity import column_norms, slot_sensitivities
from lethe.run.noise import LowerTriangular
from lethe.train import TrainOptions, fit
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.secure import SecureNoise, grid_spacing
from lethe.train.network.noise.training_noise import TrainingNoise
from lethe.train.network.steps import NoisySums

BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5, 0.25]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}


def run_of(noise: Any, **changes: Any) -> lethe.Run:
    fields = {
        "clip_norm": 1.0,
        "loss": {"kind": "unknown"},
        "release": "all",
        "neighbours": "replace_one",
        "steps": 6,
        "noise_multiplier": 3.0,
    }
    return make_run(noise=noise, **{**fields, **changes})


def drawing(run: lethe.Run, dimension: int, words: Any) -> CorrelatedNetworkNoise:
    return CorrelatedNetworkNoise(run, SecureNoise(words), torch.float64, dimension=dimension)


def strategy_of(run: lethe.Run) -> Any:
    assert run.noise is not None
    return as_matrix(run.noise.strategy(run.total_steps))


def test_the_noise_of_all_steps_has_the_strategy_s_covariance(tmp_path: Path) -> None:
    """Of 20 000 coordinates beside sums that are not 0: C times what was added is white, within 5 standard errors."""
    for noise in (BANDED, BUFFERED, LowerTriangular.saved(binary_tree(6), tmp_path / "tree.npy")):
        run, random = run_of(noise), np.random.default_rng(0)
        made = drawing(run, 20_000, random.bytes)
        added = []
        for _ in range(6):
            sums = torch.tensor(random.normal(size=20_000))
            noisy = sums.clone()
            made.add_to([noisy[:5_000].view(50, 100), noisy[5_000:]], 3.0)
            added.append((noisy - sums).numpy() / 3.0)
        assert np.cov(strategy_of(run) @ np.array(added)) == pytest.approx(np.eye(6), abs=5 * np.sqrt(2 / 20_000))
        assert made.executed(run.uncorrelated) == run


def test_everything_is_a_function_of_numbers_on_the_grid() -> None:
    """With dyadic coefficients C times the noisy sums is exact, and lies on the grid: the low bits tell nothing of the sums."""
    run, random = run_of(BANDED), np.random.default_rng(0)
    made, noisy = drawing(run, 8, random.bytes), []
    for _ in range(6):
        sums = torch.tensor(random.normal(size=8))
        made.add_to([sums], 3.0)
        noisy.append([Fraction(float(one)) for one in sums])
    spacing = Fraction(grid_spacing(3.0))
    for step, row in enumerate(strategy_of(run)):
        for place in range(8):
            value = sum(Fraction(float(row[earlier])) * noisy[earlier][place] for earlier in range(step + 1))
            assert abs(value / spacing - round(value / spacing)) < Fraction(1, 2**15)  # rounding of the substitution, in doubles


@pytest.mark.parametrize("changes", [{}, {"batches": {"design": "shuffled_once", "size": 30}}, {"neighbours": "zero_out"}])
def test_the_grid_costs_nothing_in_any_slot(changes: dict[str, Any]) -> None:
    """The noise that is drawn, against the sensitivity of sums that are rounded in every step; just above a power of two the grid is
    as coarse as it can be, and no slot but the least sensitive one will do."""
    run = run_of(BANDED, noise_multiplier=2.0, **changes)
    used: list[float] = []

    class Noting(SecureNoise):
        def add_to(self, tensors: Any, noise_std: float) -> None:
            used.append(noise_std)
            super().add_to(tensors, noise_std)

    dimension = 10**9
    made = CorrelatedNetworkNoise(run, Noting(np.random.default_rng(0).bytes), torch.float64, dimension=dimension)
    made.add_to([torch.zeros(4, dtype=torch.float64)], 2.0)
    bound = run.touch_factor * run.touch_bound
    for sensitivity in bound * slot_sensitivities(strategy_of(run), run.steps_per_pass):
        rounded = sensitivity + grid_spacing(used[0]) * np.sqrt(float(dimension) * run.total_steps)
        assert rounded / used[0] <= sensitivity / 2.0
    assert used[0] > 2.0


@pytest.mark.parametrize("design", ["cyclic_poisson", "poisson", "balls_in_bins"])
def test_each_of_two_records_that_replace_one_another_pays_for_the_grid(design: str) -> None:
    """Drawn by itself, a record is G away from the sum without it, and so is its replacement; rounding may move either of them."""
    used: list[float] = []

    class Noting(SecureNoise):
        def add_to(self, tensors: Any, noise_std: float) -> None:
            used.append(noise_std)

    batches, dimension, moves = {"design": design, "size": 30}, 10**9, [1.0]
    if design == "cyclic_poisson":
        run = run_of({**BANDED, "coefficients": [1.0, 0.5]}, batches={**batches, "groups": 2}, records=120, noise_multiplier=2.0)
        moves, dimension = column_norms(strategy_of(run)).tolist(), 6 * dimension
        made = CorrelatedNetworkNoise(run, Noting(), torch.float64, dimension=10**9)
        made.add_to([torch.zeros(4, dtype=torch.float64)], 2.0)
    else:
        run = run_of(None, batches=batches, noise_multiplier=2.0)
        NoisySums(run, TrainingNoise(Noting(), dimension=dimension))(1, [torch.zeros(5)])
    assert run.neighbours == "replace_one"
    for moved in moves:
        assert (moved + grid_spacing(used[0]) * np.sqrt(float(dimension))) / used[0] <= moved / 2.0


def test_it_trains_and_is_certified_as_planned(tmp_path: Path) -> None:
    features = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    targets, run = (features[:, 0] > 0).long(), run_of(BANDED, noise_multiplier=0.1, steps=30, step_size=1.0)
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    fitted = fit(
        model,
        nn.CrossEntropyLoss(reduction="none"),
        (features, targets),
        run,
        options=TrainOptions(secure=True, checkpoints=tmp_path / "kept"),
    )
    assert fitted.run == run
    assert lethe.certify(fitted, 1e-5).epsilon == lethe.certify(run, 1e-5).epsilon
    assert (model(features).argmax(1) == targets).float().mean() > 0.9


def test_a_step_that_was_lost_is_forgotten_by_both_memories() -> None:
    """What comes after is as if the lost steps' sums, which are much larger than the noise, and noise had been 0 for it."""
    run, random = run_of(BANDED), np.random.default_rng(0)
    first, second = (drawing(run, 50_000, random.bytes) for _ in range(2))
    sums, noises = [torch.tensor(1e3 * random.normal(size=50_000)) for _ in range(6)], []
    for step in range(2):
        noisy = sums[step].clone()
        first.add_to([noisy], 3.0)
        noises.append((noisy - sums[step]).numpy() / 3.0)
    second.load_state_dict(first.state_dict())
    second.forget(1)
    for step in range(3, 6):
        noisy = sums[step].clone()
        second.add_to([noisy], 3.0)
        noises.append((noisy - sums[step]).numpy() / 3.0)
    left = np.delete(np.delete(strategy_of(run), 2, axis=0), 2, axis=1)
    assert np.cov(left @ np.array(noises)) == pytest.approx(np.eye(5), abs=5 * np.sqrt(2 / 50_000))


def test_a_process_that_holds_no_number_takes_the_steps_too() -> None:
    """Where all parameters lie in shards nothing is whole, and of a small one a process may have no part."""
    run = run_of(BANDED)
    made = drawing(run, 8, np.random.default_rng(0).bytes)
    for _ in range(2):
        made.add_to([], 3.0)
    again = drawing(run, 8, np.random.default_rng(1).bytes)
    again.load_state_dict(made.state_dict())
    again.forget(1)
    for _ in range(3):
        again.add_to([], 3.0)
    assert again.executed(run.uncorrelated) == run
