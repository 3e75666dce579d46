"""fit_linear with correlated noise, and what is kept of it between steps: recorded as executed, gone on from to the last bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import make_run

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run.noise import LowerTriangular
from lethe.train.core.generators import OF_STEPS, stream_generator
from lethe.train.linear.loop import linear_noise
from lethe.train.network.noise.correlated import CorrelatedNetworkNoise
from lethe.train.network.noise.gaussian import NetworkNoise

BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}


def data(records: int = 100) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    features = random.normal(size=(records, 3))
    return features, (features[:, 0] > 0).astype(int)


def noises(tmp_path: Path) -> list[Any]:
    return [BANDED, BUFFERED, LowerTriangular.saved(binary_tree(6), tmp_path / "tree.npy")]


def test_training_adds_that_noise(tmp_path: Path) -> None:
    """Without signal (features 0) the model is minus the sum of step noises; the same seed, drawn and correlated by hand."""
    for noise in noises(tmp_path):
        run = make_run(noise=noise, steps=6, step_size=[0.5, 0.1, 0.2, 0.5, 0.5, 0.3], release="all")
        fitted = fit_linear(run, np.zeros((100, 3)), np.zeros(100, dtype=int), classes=2, noise_generator=torch.Generator().manual_seed(3))
        generator = torch.Generator().manual_seed(3)
        fresh = np.stack([torch.randn(3, 2, generator=generator, dtype=torch.float64).numpy() for _ in range(6)])
        assert run.noise is not None
        correlated = np.einsum("ts,sdk->tdk", np.linalg.inv(as_matrix(run.noise.strategy(6))), fresh)
        expected = np.einsum("t,tdk->dk", run.uncorrelated.noise_stds, correlated)
        assert fitted.model.weights == pytest.approx(expected, rel=1e-9)


def test_what_was_executed_is_recorded(tmp_path: Path) -> None:
    for noise in noises(tmp_path):
        planned = lethe.plan(make_run(noise=noise, steps=6, noise_multiplier=None, release="all"), epsilon=2.0, delta=1e-5)
        planned = planned.replace(loss=planned.loss.model_copy(update={"evidence": "enforced"}))
        fitted = fit_linear(planned, *data(), classes=2)
        assert fitted.run == planned
        certificate = lethe.certify(fitted, 1e-5)
        assert certificate.epsilon <= 2.0
        assert certificate.theorem == "correlated-noise"
        assert certificate.seal is not None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batches", [{"design": "full"}, {"design": "shuffled_once", "size": 10}, {"design": "balls_in_bins", "size": 10}])
def test_it_trains_in_every_kept_order(batches: dict[str, Any], dtype: str) -> None:
    run = make_run(noise=BANDED, batches=batches, noise_multiplier=0.1, passes=20, regulariser={"kind": "ball", "radius": 5.0})
    fitted = fit_linear(run, *data(), classes=2, dtype=dtype)
    features, targets = data()
    assert (fitted.model.predict(features) == targets).mean() > 0.9
    assert fitted.run.noise == run.noise


def test_noise_that_outgrows_its_draws_is_refused() -> None:
    """C^{-1} of (1, 2) doubles what was there: after 50 steps the fresh draw is beyond the 53 bits of what it is added to."""
    for coefficients in ([1.0, 2.0], [1.0, 2.0] * 20):
        run = make_run(noise={"kind": "banded_toeplitz", "coefficients": coefficients})
        assert lethe.certify(run, 1e-5).epsilon > 0
        with pytest.raises(LetheError, match="drowns in the rounding"):
            fit_linear(run, *data(), classes=2, dtype="float32")
    for coefficients in ([1.0, 1.0], [1.0, 1.3], [1.0, 0.9, 0.8, 0.7]):
        fit_linear(make_run(noise={"kind": "banded_toeplitz", "coefficients": coefficients}), *data(), classes=2)


def test_noise_that_was_drawn_elsewhere_too_has_no_run() -> None:
    run = make_run(noise=BANDED, steps=6)
    drawing, noisy = linear_noise(run, NetworkNoise(torch.Generator().manual_seed(1))), [torch.zeros(2, dtype=torch.float64)]
    for _ in range(5):
        drawing.add_to(noisy, 1.0)
    with pytest.raises(HypothesisError, match="5 times in 6 steps"):
        drawing.executed(run.uncorrelated)
    drawing.add_to(noisy, 1.0)
    assert drawing.executed(run.uncorrelated) == run
    drawing.add_to(noisy, 1.0)
    with pytest.raises(HypothesisError, match="7 times"):
        drawing.executed(run.uncorrelated)


def test_no_noise_is_no_noise() -> None:
    run = make_run(noise=BANDED, noise_multiplier=0.0)
    fitted = fit_linear(run, *data(), classes=2)
    assert fitted.run.noise == run.noise
    assert (fitted.model.weights == fit_linear(run.uncorrelated, *data(), classes=2).model.weights).all()


@pytest.mark.nightly(by_day="test_each_shard_s_noise_has_the_strategy_s_covariance")
def test_an_audit_finds_what_the_noise_gives_away_and_no_more() -> None:
    """A canary alone in full batches: the last iterate is Gaussian, its noise the sum of the correlated noise of 4 steps."""
    pytest.importorskip("joblib")
    from lethe.audit import AuditConfig, TwoWorldGame
    from lethe.audit.statistics.curves import gaussian_epsilon
    from lethe.audit.trainers import audit

    loss = lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=1.0, evidence="enforced")
    run = make_run(records=4, batches={"design": "full"}, steps=4, passes=None, noise=BANDED, noise_multiplier=3.0, loss=loss)
    assert run.noise is not None
    spread = np.linalg.norm(np.ones(4) @ np.linalg.inv(as_matrix(run.noise.strategy(4))))
    truth = gaussian_epsilon(2 * 4 / (3.0 * float(spread)), 1e-5)
    page = audit(run, (np.zeros((4, 3)), np.zeros(4)), AuditConfig(delta=1e-5, game=TwoWorldGame(runs=500)))
    assert page.verdict == "consistent"
    assert page.claim is not None
    assert 0.5 * truth < page.audits[1].epsilon < truth <= page.claim.epsilon * (1 + 1e-9)


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
