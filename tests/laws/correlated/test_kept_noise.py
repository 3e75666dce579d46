"""What correlated noise keeps between its steps, and goes on from: to the last bits, and without what a kill has lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import make_run

import lethe
from lethe.calculus.correlated.matrices import as_matrix
from lethe.errors import HypothesisError, InputError
from lethe.run.noise import LowerTriangular
from lethe.train.core.generators import OF_STEPS, stream_generator
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise

STEPS, SIZE, SEED = 8, 11, 5
CPU = torch.device("cpu")
KINDS = ("banded", "buffered", "matrix")


def run_of(kind: str, folder: Path) -> lethe.Run:
    matrix = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, size=(STEPS, STEPS))) + np.eye(STEPS)
    matrix[5:, 1] = 0.0  # an output that is let go of before others
    toeplitz = {
        "banded": {"kind": "banded_toeplitz", "coefficients": [1.3, 0.6, 0.3]},
        "buffered": {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]},
    }
    noise = toeplitz.get(kind) or LowerTriangular.saved(matrix, folder / "C.npy")
    return make_run(noise=noise, steps=STEPS, clip_norm=1.0, loss={"kind": "unknown"}, release="all", noise_multiplier=1.0)


def drawing(run: lethe.Run, *, part: int = 0) -> CorrelatedNetworkNoise:
    return CorrelatedNetworkNoise(run, NetworkNoise(torch.Generator().manual_seed(1)), torch.float64, seed=SEED, part=part)


def drawn(noise: CorrelatedNetworkNoise, steps: int) -> list[torch.Tensor]:
    """The noise of the next steps, of two tensors, each drawn in a piece of its own."""
    made = []
    for _ in range(steps):
        sums = [torch.zeros(4, dtype=torch.float64), torch.zeros(SIZE - 4, dtype=torch.float64)]
        noise.add_to(sums, 1.0)
        made.append(torch.cat(sums))
    return made


def fresh(step: int, part: int = 0) -> torch.Tensor:
    """What is drawn anew for a step, under the seed."""
    zeros = [torch.zeros(4, dtype=torch.float64), torch.zeros(SIZE - 4, dtype=torch.float64)]
    NetworkNoise(stream_generator(SEED, CPU, OF_STEPS, part, step)).add_to(zeros, 1.0)
    return torch.cat(zeros)


def strategy_of(run: lethe.Run) -> Any:
    assert run.noise is not None
    return as_matrix(run.noise.strategy(STEPS)).copy()


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_to_the_last_bits_from_what_was_kept(kind: str, tmp_path: Path) -> None:
    """What was kept stays as it is while the noise that kept it goes on, and is refused by noise that keeps another number of rows."""
    run = run_of(kind, tmp_path)
    whole = drawn(drawing(run), STEPS)
    for stop in (1, 3, STEPS - 1):
        before, after = drawing(run), drawing(run)
        drawn(before, stop)
        kept = before.state_dict()
        assert [memory.dtype for memory in kept["memory"]] == [torch.float64]
        drawn(before, 1)
        after.load_state_dict(kept)
        assert all(torch.equal(*pair) for pair in zip(drawn(after, STEPS - stop), whole[stop:], strict=True))
        assert after.executed(run.uncorrelated) == run
        with pytest.raises(InputError, match="not what this noise noted"):
            drawing(run).load_state_dict({**kept, "memory": [torch.zeros(9, SIZE, dtype=torch.float64)]})


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_kill_has_lost_is_in_no_later_step(kind: str, tmp_path: Path) -> None:
    """Steps 4 and 5 are lost, and what is executed has zeros below them: C' w = z, each z drawn for one step, and never again."""
    run = run_of(kind, tmp_path)
    before, after = drawing(run), drawing(run)
    made = drawn(before, 3)
    kept = before.state_dict()
    made += drawn(before, 2)
    after.load_state_dict(kept)
    after.forget(2)
    made += drawn(after, STEPS - 5)
    executed = strategy_of(run)
    executed[5:, 3:5] = 0.0
    assert np.allclose(
        executed @ torch.stack(made).numpy(), torch.stack([fresh(step) for step in range(STEPS)]).numpy(), rtol=0, atol=1e-12
    )
    assert after.executed(run.uncorrelated) == run
    with pytest.raises(HypothesisError, match="drawn 5 times in 8 steps"):
        before.executed(run.uncorrelated)


def test_under_a_seed_no_two_steps_and_no_two_parts_draw_the_same(tmp_path: Path) -> None:
    """Else the difference of two sums would have no noise: of what all processes hold, and of each one's shards."""
    run, found = run_of("banded", tmp_path), list[torch.Tensor]()
    for part in (0, 1, 2):
        white = strategy_of(run) @ torch.stack(drawn(drawing(run, part=part), STEPS)).numpy()
        found += [torch.tensor(row) for row in white]
    correlations = np.corrcoef(torch.stack(found).numpy())
    assert np.abs(correlations - np.eye(len(found))).max() < 0.95
