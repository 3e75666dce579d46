"""Correlated noise as it is drawn: from a cryptographic source, on a grid that costs no privacy; and gone on from to the last bits."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from strategies import BUFFERED, INVERSE, PAIR, correlated_run, noises, strategy_of, without
from torch import nn

import lethe
from lethe.calculus.correlated.sensitivity import column_norms, slot_sensitivities
from lethe.errors import HypothesisError, InputError
from lethe.run.noise import LowerTriangular
from lethe.train import TrainOptions, fit
from lethe.train.core.generators import OF_STEPS, stream_generator
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise
from lethe.train.network.noise.secure import SecureNoise, grid_spacing
from lethe.train.network.noise.training_noise import TrainingNoise
from lethe.train.network.steps import NoisySums

DYADIC = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.5, 0.25]}


def run_of(noise: Any = DYADIC, **changes: Any) -> lethe.Run:
    return correlated_run(noise, **{"steps": 6, "noise_multiplier": 3.0, **changes})


def secure(run: lethe.Run, dimension: int, words: Any) -> CorrelatedNetworkNoise:
    return CorrelatedNetworkNoise(run, SecureNoise(words), torch.float64, dimension=dimension)


class Noting(SecureNoise):
    """It notes the noise that it is asked for, and adds none."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[float] = []

    def add_to(self, tensors: Any, noise_std: float) -> None:
        self.used.append(noise_std)


def test_the_noise_of_all_steps_has_the_strategy_s_covariance(tmp_path: Path) -> None:
    """Of 20 000 coordinates beside sums that are not 0: C times what was added is white, within 5 standard errors."""
    for noise in (DYADIC, *noises(tmp_path)[1:]):
        run, random = run_of(noise), np.random.default_rng(0)
        made = secure(run, 20_000, random.bytes)
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
    run, random = run_of(), np.random.default_rng(0)
    made, noisy = secure(run, 8, random.bytes), []
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
    run, noting, dimension = run_of(noise_multiplier=2.0, **changes), Noting(), 10**9
    CorrelatedNetworkNoise(run, noting, torch.float64, dimension=dimension).add_to([torch.zeros(4, dtype=torch.float64)], 2.0)
    (used,) = noting.used
    for sensitivity in run.touch_factor * run.touch_bound * slot_sensitivities(strategy_of(run), run.steps_per_pass):
        rounded = sensitivity + grid_spacing(used) * np.sqrt(float(dimension) * run.total_steps)
        assert rounded / used <= sensitivity / 2.0
    assert used > 2.0


@pytest.mark.parametrize("design", ["cyclic_poisson", "poisson", "balls_in_bins"])
def test_each_of_two_records_that_replace_one_another_pays_for_the_grid(design: str) -> None:
    """Drawn by itself, a record is G away from the sum without it, and so is its replacement; rounding may move either of them."""
    noting, batches, dimension, moves = Noting(), {"design": design, "size": 30}, 10**9, [1.0]
    if design == "cyclic_poisson":
        run = run_of({**DYADIC, "coefficients": [1.0, 0.5]}, batches={**batches, "groups": 2}, records=120, noise_multiplier=2.0)
        CorrelatedNetworkNoise(run, noting, torch.float64, dimension=dimension).add_to([torch.zeros(4, dtype=torch.float64)], 2.0)
        moves, dimension = column_norms(strategy_of(run)).tolist(), 6 * dimension
    else:
        run = run_of(None, batches=batches, noise_multiplier=2.0)
        NoisySums(run, TrainingNoise(noting, dimension=dimension))(1, {torch.nn.Parameter(torch.zeros(0)): torch.zeros(5)})
    assert run.neighbours == "replace_one"
    (used,) = noting.used
    for moved in moves:
        assert (moved + grid_spacing(used) * np.sqrt(float(dimension))) / used <= moved / 2.0


def test_it_trains_and_is_certified_as_planned(tmp_path: Path) -> None:
    features = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    targets, run = (features[:, 0] > 0).long(), run_of(noise_multiplier=0.1, steps=30, step_size=1.0)
    torch.manual_seed(0)
    model, options = nn.Linear(3, 2), TrainOptions(secure=True, checkpoints=tmp_path / "kept")
    fitted = fit(model, nn.CrossEntropyLoss(reduction="none"), (features, targets), run, options=options)
    assert fitted.run == run
    assert lethe.certify(fitted, 1e-5).epsilon == lethe.certify(run, 1e-5).epsilon
    assert (model(features).argmax(1) == targets).float().mean() > 0.9


def test_a_step_that_was_lost_is_forgotten_by_both_memories() -> None:
    """What comes after is as if the lost steps' sums, which are much larger than the noise, and noise had been 0 for it."""
    run, random = run_of(), np.random.default_rng(0)
    first, second = (secure(run, 50_000, random.bytes) for _ in range(2))
    noises_added = []
    for step in (0, 1, 3, 4, 5):
        if step == 3:
            second.load_state_dict(first.state_dict())
            second.forget(1)
        sums = torch.tensor(1e3 * random.normal(size=50_000))
        noisy = sums.clone()
        (first if step < 2 else second).add_to([noisy], 3.0)
        noises_added.append((noisy - sums).numpy() / 3.0)
    left = np.delete(np.delete(strategy_of(run), 2, axis=0), 2, axis=1)
    assert np.cov(left @ np.array(noises_added)) == pytest.approx(np.eye(5), abs=5 * np.sqrt(2 / 50_000))


def test_a_process_that_holds_no_number_takes_the_steps_too() -> None:
    """Where all parameters lie in shards nothing is whole, and of a small one a process may have no part."""
    run = run_of()
    made, again = (secure(run, 8, np.random.default_rng(seed).bytes) for seed in (0, 1))
    for _ in range(2):
        made.add_to([], 3.0)
    again.load_state_dict(made.state_dict())
    again.forget(1)
    for _ in range(3):
        again.add_to([], 3.0)
    assert again.executed(run.uncorrelated) == run


# --- what is kept between steps ---

STEPS, SIZE, SEED = 8, 11, 5
KINDS = ("banded", "buffered", "inverse", "pair", "matrix")


def kept_run(kind: str, folder: Path) -> lethe.Run:
    if kind == "matrix":
        matrix = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, size=(STEPS, STEPS))) + np.eye(STEPS)
        matrix[5:, 1] = 0.0  # an output that is let go of before others
        noise: Any = LowerTriangular.saved(matrix, folder / "C.npy")
    else:
        banded = {"kind": "banded_toeplitz", "coefficients": [1.3, 0.6, 0.3]}
        noise = {"banded": banded, "buffered": BUFFERED, "inverse": INVERSE, "pair": PAIR}[kind]
    return correlated_run(noise, steps=STEPS, noise_multiplier=1.0)


def drawing(run: lethe.Run, *, part: int = 0) -> CorrelatedNetworkNoise:
    return CorrelatedNetworkNoise(run, NetworkNoise(torch.Generator().manual_seed(1)), torch.float64, seed=SEED, part=part)


def drawn(noise: Any, steps: int) -> list[torch.Tensor]:
    """The noise of the next steps, of two tensors, each drawn in a piece of its own."""
    made = torch.zeros(steps, SIZE, dtype=torch.float64)
    for row in made:
        noise.add_to([row[:4], row[4:]], 1.0)
    return list(made)


def fresh(step: int) -> torch.Tensor:
    """What is drawn anew for a step, under the seed."""
    return drawn(NetworkNoise(stream_generator(SEED, torch.device("cpu"), OF_STEPS, 0, step)), 1)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_to_the_last_bits_from_what_was_kept(kind: str, tmp_path: Path) -> None:
    """What was kept stays as it is while the noise that kept it goes on, and is refused by noise that keeps another number of rows."""
    run = kept_run(kind, tmp_path)
    whole = drawn(drawing(run), STEPS)
    for stop in (1, 3, STEPS - 1):
        before, after = drawing(run), drawing(run)
        drawn(before, stop)
        kept = before.state_dict()
        assert [memory.dtype for memory in kept["memory"]] == [torch.int64 if kind == "pair" else torch.float64]
        drawn(before, 1)
        after.load_state_dict(kept)
        assert all(torch.equal(*pair) for pair in zip(drawn(after, STEPS - stop), whole[stop:], strict=True))
        assert after.executed(run.uncorrelated) == run
        with pytest.raises(InputError, match="not what this noise noted"):
            drawing(run).load_state_dict({**kept, "memory": [torch.zeros(9, SIZE, dtype=torch.float64)]})


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kill_has_lost_is_in_no_later_step(kind: str, tmp_path: Path) -> None:
    """Steps 4 and 5 are lost, and what is executed has zeros below them: C' w = z, each z drawn for one step, and never again."""
    run = kept_run(kind, tmp_path)
    before, after = drawing(run), drawing(run)
    made = drawn(before, 3)
    kept = before.state_dict()
    made += drawn(before, 2)
    after.load_state_dict(kept)
    after.forget(2)
    made += drawn(after, STEPS - 5)
    anew = torch.stack([fresh(step) for step in range(STEPS)]).numpy()
    assert np.allclose(without(run, slice(3, 5)) @ torch.stack(made).numpy(), anew, rtol=0, atol=1e-12)
    assert after.executed(run.uncorrelated) == run
    with pytest.raises(HypothesisError, match="drawn 5 times in 8 steps"):
        before.executed(run.uncorrelated)


@pytest.mark.parametrize("generator", [np.random.default_rng, lambda seed: torch.Generator().manual_seed(seed)])
def test_a_draw_that_is_made_again_is_the_one_that_was_made(generator: Any) -> None:
    """Across a checkpoint too, whose process is gone: C w is white; a lost draw is not taken back. Nothing is kept but a key."""
    run, size = correlated_run(PAIR, steps=6, noise_multiplier=1.0), 200_000
    before, after = (CorrelatedNetworkNoise(run, NetworkNoise(generator(seed)), torch.float64) for seed in (0, 1))
    made = []
    for step in range(6):
        if step == 2:
            after.load_state_dict(before.state_dict())
        if step == 4:
            after.forget(1)  # step 4 is drawn anew, as 5
        zeros = [torch.zeros(size // 2, dtype=torch.float64), torch.zeros(100, size // 200)]
        (before if step < 2 else after).add_to(zeros, 1.0)
        made.append(torch.cat([one.reshape(-1).double() for one in zeros]).numpy())
    memory = after.state_dict()["memory"]
    assert [(one.dtype, one.shape) for one in memory] == [(torch.int64, (1, 4))]
    inverse = 1.2 * np.eye(6) - 0.9 * np.eye(6, k=-1)
    inverse[4, 3] = 0.0
    assert np.cov(np.array(made)) == pytest.approx(inverse @ inverse.T, abs=5 * 2.25 * np.sqrt(2 / size))


def test_under_a_seed_no_two_steps_and_no_two_parts_draw_the_same(tmp_path: Path) -> None:
    """Else the difference of two sums would have no noise: of what all processes hold, and of each one's shards."""
    run, found = kept_run("banded", tmp_path), list[torch.Tensor]()
    for part in (0, 1, 2):
        white = strategy_of(run) @ torch.stack(drawn(drawing(run, part=part), STEPS)).numpy()
        found += [torch.tensor(row) for row in white]
    correlations = np.corrcoef(torch.stack(found).numpy())
    assert np.abs(correlations - np.eye(len(found))).max() < 0.95
