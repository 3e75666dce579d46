"""fit_linear with correlated noise: what is drawn has the covariance that is certified, and is recorded as it was executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from doors import fit_linear
from helpers import make_run, with_fresh_noise

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.errors import HypothesisError, InputError, LetheError
from lethe.run.noise import LowerTriangular
from lethe.train.linear.loop import linear_noise
from lethe.train.network.noise.gaussian import NetworkNoise

BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}


def data(records: int = 100) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    features = random.normal(size=(records, 3))
    return features, (features[:, 0] > 0).astype(int)


def noises(tmp_path: Path) -> list[Any]:
    return [BANDED, BUFFERED, LowerTriangular.saved(binary_tree(6), tmp_path / "tree.npy")]


def test_the_noise_of_all_steps_has_the_strategy_s_covariance(tmp_path: Path) -> None:
    """40 000 coordinates of 6 steps: the empirical covariance of noise / tau is C^{-1} C^{-T}, within 5 standard errors."""
    for noise in noises(tmp_path):
        run = make_run(noise=noise, steps=6, step_size=[0.5, 0.1, 0.2, 0.5, 0.5, 0.3])
        drawing = linear_noise(run, NetworkNoise(torch.Generator().manual_seed(1)))
        stds = run.uncorrelated.noise_stds
        drawn = np.zeros((6, 40_000))
        for row, std in zip(drawn, stds, strict=True):
            drawing.add_to([torch.from_numpy(row)], float(std))
            row /= std
        assert run.noise is not None
        inverse = np.linalg.inv(as_matrix(run.noise.strategy(6)))
        wanted, found = inverse @ inverse.T, drawn @ drawn.T / 40_000
        errors = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / 40_000)
        assert (np.abs(found - wanted) < 5 * errors).all()
        # Undone by C, it is white: what the guarantee supposes.
        white = as_matrix(run.noise.strategy(6)) @ drawn
        assert np.cov(white) == pytest.approx(np.eye(6), abs=5 * np.sqrt(2 / 40_000))
        assert drawing.executed(run.uncorrelated) == run


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


def test_a_seed_repeats_it_and_is_told() -> None:
    run = make_run(noise=BANDED)
    first, again, other = (fit_linear(run, *data(), classes=2, seed=seed) for seed in (1, 1, 2))
    assert (first.model.weights == again.model.weights).all()
    assert not (first.model.weights == other.model.weights).any()
    assert first.run.seeded
    assert with_fresh_noise(first.run).noise == run.noise
    fresh = [fit_linear(run, *data(), classes=2).model.weights for _ in range(2)]
    assert not (fresh[0] == fresh[1]).any()


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batches", [{"design": "full"}, {"design": "shuffled_once", "size": 10}, {"design": "balls_in_bins", "size": 10}])
def test_it_trains_in_every_kept_order(batches: dict[str, Any], dtype: str) -> None:
    run = make_run(noise=BANDED, batches=batches, noise_multiplier=0.1, passes=20, regulariser={"kind": "ball", "radius": 5.0})
    fitted = fit_linear(run, *data(), classes=2, dtype=dtype)
    features, targets = data()
    assert (fitted.model.predict(features) == targets).mean() > 0.9
    assert fitted.run.noise == run.noise


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="noise_policy"):
        fit_linear(make_run(noise=BANDED), *data(), classes=2, noise_policy=lambda observed: 1.0)


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
@pytest.mark.slow
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
