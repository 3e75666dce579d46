"""The theorem on correlated noise, against the exact privacy of runs whose iterates are jointly Gaussian."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from strategies import contributions_of, random_triangular

import lethe
from lethe.calculus.correlated.matrices import as_matrix, binary_tree
from lethe.errors import InputError
from lethe.run.noise import BandedToeplitz, BufferedToeplitz, LowerTriangular
from lethe.studio.answers import answer, python_of
from lethe.studio.state import State
from lethe.theorems.correlated_noise import slot_mus

DELTA = 1e-5
BANDED = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.6, 0.3]}
BUFFERED = {"kind": "buffered_toeplitz", "scales": [0.3, 0.05], "decays": [0.8, 0.99]}
OTHERS = {"zero_out": 1.0, "replace_one": 2.0}


def exact_mu(run: lethe.Run, slot: int, factor: float) -> float:
    """Of all iterates together where the record's gradient never changes: mean vectors apart, and their covariance, from the recursion.

    Every coordinate that the gradient points along is the same, so one dimension says all. The iterates are
    x_t = x_{t-1} - (lambda_t / b) (g_t + w_t), w = C^{-1} z.
    """
    steps, scale = run.total_steps, run.step_sizes / run.batch_size
    assert run.noise is not None
    mixing = np.tril(np.ones((steps, steps))) * scale
    spread = mixing @ np.linalg.inv(as_matrix(run.noise.strategy(steps))) * run.uncorrelated.noise_multipliers[0] * run.clip_bound
    moved = mixing @ contributions_of(slot, run.steps_per_pass, steps, np.full((steps, 1), factor * run.clip_bound))[:, 0]
    return float(np.sqrt(moved @ np.linalg.solve(spread @ spread.T, moved)))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize("batches", [{"design": "full"}, {"design": "cyclic", "size": 30}, {"design": "shuffled_once", "size": 30}])
@pytest.mark.parametrize("noise", [BANDED, BUFFERED])
def test_it_is_exact_where_gradients_never_change(noise: dict[str, Any], batches: dict[str, Any], relation: Any) -> None:
    """A bound 1 % too small, or too large, fails; a linear loss attains it, whatever the step sizes are."""
    sizes = [0.1 * (1 + step % 4) for step in range(10)]
    run = make_run(
        noise=noise, batches=batches, steps=10, step_size=sizes, neighbours=relation, clip_norm=0.7, loss={"kind": "unknown"}, release="all"
    )
    slots = range(min(run.steps_per_pass, 10))
    exact = [exact_mu(run, slot, OTHERS[relation]) for slot in slots]
    assert slot_mus(run) == pytest.approx(exact, rel=1e-8)
    certificate = lethe.certify(run, DELTA)
    assert certificate.theorem == "correlated-noise"
    if batches["design"] == "shuffled_once":
        mixture = sum(lethe.guarantees.GDP(mu).delta(certificate.epsilon) for mu in exact) / len(exact)
        assert mixture == pytest.approx(DELTA, rel=1e-6)
        assert certificate.epsilon < lethe.guarantees.GDP(max(exact)).epsilon(DELTA)
    else:
        assert certificate.epsilon == pytest.approx(lethe.guarantees.GDP(max(exact)).epsilon(DELTA), rel=1e-8)


def test_no_signs_of_gradients_reach_more() -> None:
    """Linear losses whose gradient turns along the way, with strategies of any sign: never above what is certified."""
    random = np.random.default_rng(0)
    for _ in range(300):
        matrix = random_triangular(random, 8, signed=True)
        slots = int(random.integers(1, 5))
        signs = random.choice([-1.0, 1.0], size=(8, 1))
        moved = contributions_of(int(random.integers(slots)), slots, 8, 2.0 * signs)
        noise = np.linalg.inv(matrix)
        exact = float(np.sqrt(np.sum(moved * np.linalg.solve(noise @ noise.T * 9.0, moved))))
        run = make_run(records=slots, batches={"design": "cyclic", "size": 1}, steps=8, noise_multiplier=3.0, release="all", noise=BANDED)
        vars(run)["noise"] = _Matrix(matrix)
        assert exact <= slot_mus(run).max() * (1 + 1e-9)  # the rounding of the inverse


class _Matrix:
    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix

    def strategy(self, steps: int) -> Any:
        return self._matrix


def test_gradients_that_answer_the_noise_reach_no_more() -> None:
    """An adversary who sees every output and turns the record's gradient by it: the loss of privacy stays that of the guarantee.

    Under the record the log-likelihood ratio of T = 6 outputs is drawn 400 000 times; the chance that it exceeds epsilon, less e^epsilon
    times the other world's, is at most delta(epsilon) of the guarantee, within 5 standard errors.
    """
    random, samples, sigma = np.random.default_rng(0), 400_000, 2.0
    matrix = as_matrix(BandedToeplitz(coefficients=(1.0, 0.6, 0.3)).strategy(6))
    run = make_run(records=2, batches={"design": "cyclic", "size": 1}, steps=6, noise_multiplier=sigma, release="all", noise=BANDED)
    mu = float(slot_mus(run.replace(neighbours="zero_out", clip_norm=1.0, loss={"kind": "unknown"})).max())

    def losses(with_record: bool) -> Any:
        seen, ratio, given = np.zeros(samples), np.zeros(samples), np.zeros((samples, 6))
        for step in range(6):
            if step % 2 == 0:
                given[:, step] = np.where(seen >= 0.0, 1.0, -1.0) if step < 4 else np.where(np.abs(seen) > 1.0, 1.0, np.sign(given[:, 0]))
            moved = given @ matrix[step]
            out = sigma * random.normal(size=samples) + (moved if with_record else 0.0)
            ratio += (out * moved - moved**2 / 2) / sigma**2
            seen = 0.5 * seen + out
        return ratio

    inside, outside = losses(True), losses(False)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        claimed = lethe.guarantees.GDP(mu).delta(epsilon)
        first, second = (inside > epsilon).mean(), (outside > epsilon).mean()
        error = math.sqrt((first + math.exp(2 * epsilon) * second) / samples)
        assert first - math.exp(epsilon) * second < claimed + 5 * error
        assert first - math.exp(epsilon) * second > 0.3 * claimed - 5 * error  # and the attack is worth the name
        lower, upper = (inside < -epsilon).mean(), (outside < -epsilon).mean()
        assert upper - math.exp(epsilon) * lower < claimed + 5 * math.sqrt((upper + math.exp(2 * epsilon) * lower) / samples)


def test_the_identity_is_composition() -> None:
    for batches in ({"design": "cyclic", "size": 10}, {"design": "full"}, {"design": "shuffled_once", "size": 10}):
        run = make_run(batches=batches, noise={"kind": "banded_toeplitz", "coefficients": [1.0]}, release="all")
        independent = lethe.certify(run.uncorrelated, DELTA, theorems=["composition"])
        assert lethe.certify(run, DELTA).epsilon == pytest.approx(independent.epsilon, rel=1e-9)


def test_the_strategy_s_scale_is_the_noise_s() -> None:
    """Twice C is half the noise: the same mechanism as with half the multiplier."""
    run = make_run(noise=BANDED, release="all")
    twice = run.replace(noise={**BANDED, "coefficients": [2.0, 1.2, 0.6]}, noise_multiplier=10.0)
    assert lethe.certify(twice, DELTA).epsilon == pytest.approx(lethe.certify(run, DELTA).epsilon, rel=1e-9)


def test_gradients_shorter_than_the_clip_norm_pay_for_their_length() -> None:
    """Softmax regression of feature norm 1 has gradients up to the root of 2; clipping at 10 never acts."""
    run = make_run(noise=BANDED, clip_norm=10.0, noise_multiplier=50.0 * math.sqrt(2.0) / 10.0)
    assert slot_mus(run) == pytest.approx(slot_mus(make_run(noise=BANDED, clip_norm=math.sqrt(2.0), noise_multiplier=50.0)), rel=1e-9)


@pytest.mark.parametrize("noise", [BANDED, BUFFERED])
def test_planned_noise_meets_its_target_and_no_less_would(noise: dict[str, Any]) -> None:
    for design in ("cyclic", "shuffled_once"):
        run = make_run(noise=noise, noise_multiplier=None, batches={"design": design, "size": 10}, release="all")
        planned = lethe.plan(run, epsilon=1.0, delta=DELTA)
        assert planned.noise == run.noise
        assert 0.9999 < lethe.certify(planned, DELTA).epsilon <= 1.0
        assert lethe.certify(planned.with_noise_scaled(0.999), DELTA).epsilon > 1.0


def test_certificates_of_it_are_verified_and_add_up() -> None:
    first, second = (lethe.certify(make_run(noise=noise, release="all"), DELTA) for noise in (BANDED, BUFFERED))
    for certificate in (first, second):
        said = lethe.verify(certificate)
        assert said.follows.yes
        assert said.private.yes
        forged = replace(certificate, guarantee=lethe.guarantees.GDP(0.1), epsilon=lethe.guarantees.GDP(0.1).epsilon(DELTA))
        assert not lethe.verify(forged).follows.yes
    both = lethe.total([first, second], DELTA).epsilon
    mus = [float(slot_mus(certificate.run).max()) for certificate in (first, second)]
    assert both == pytest.approx(lethe.guarantees.GDP(math.hypot(*mus)).epsilon(DELTA), rel=1e-6)


def test_the_studio_keeps_the_noise_and_refuses_to_draw_it() -> None:
    run = make_run(noise=BANDED, release="all")
    state = State.of_run(run)
    assert state.question().run == run
    with pytest.raises(InputError, match="banded_toeplitz"):
        answer(state.query())
    assert "noise=lethe.noise.BandedToeplitz(coefficients=(1.0, 0.6, 0.3, ))" in python_of(run, DELTA)


def test_no_noise_and_seeds_give_no_privacy() -> None:
    assert lethe.certify(make_run(noise=BANDED, noise_multiplier=0.0), DELTA).epsilon == math.inf
    assert lethe.certify(make_run(noise=BANDED, seeded=True), DELTA).epsilon == math.inf


def test_a_run_reads_back_what_it_wrote(tmp_path: Path) -> None:
    matrix = LowerTriangular.saved(binary_tree(50), tmp_path / "tree.npy")
    for noise in (BandedToeplitz(coefficients=(1.0, 0.5)), BufferedToeplitz(scales=(0.5,), decays=(0.9,)), matrix):
        run = make_run(noise=noise, release="all")
        run.save(tmp_path / "run.yaml")
        again = lethe.Run.load(tmp_path / "run.yaml")
        assert again == run
        assert again.run_id == run.run_id != run.uncorrelated.run_id
        certificate = lethe.certify(run, DELTA)
        certificate.save(tmp_path / "certificate.json")
        assert lethe.Certificate.load(tmp_path / "certificate.json").epsilon == certificate.epsilon
    assert "noise" not in make_run().to_document()
    assert make_run(noise={"kind": "independent"}) == make_run(noise=None) == make_run()


def test_a_matrix_is_known_by_its_hash(tmp_path: Path) -> None:
    noise = LowerTriangular.saved(binary_tree(50), tmp_path / "tree.npy")
    run = make_run(noise=noise)
    assert lethe.certify(run, DELTA).epsilon > 0
    with pytest.raises(InputError, match="for 50 steps; the run has 40"):
        run.replace(passes=4)
    with pytest.raises(InputError, match="hash"):
        LowerTriangular(file=noise.file, sha256="0" * 64)
    (tmp_path / "other.npy").write_bytes((tmp_path / "tree.npy").read_bytes()[:-8] + b"12345678")
    with pytest.raises(InputError, match="hash"):
        LowerTriangular(file=str(tmp_path / "other.npy"), sha256=noise.sha256)
    with (tmp_path / "archive.npy").open("wb") as archive:
        np.savez(archive, C=binary_tree(50))
    with pytest.raises(InputError, match="cannot be read"):
        LowerTriangular.at(tmp_path / "archive.npy")
    for wrong in (np.triu(np.ones((4, 4))), np.eye(4) - np.eye(4), np.ones(4)):
        with pytest.raises(InputError):
            LowerTriangular.saved(wrong, tmp_path / "wrong.npy")
    with pytest.raises(InputError, match=r"\.npy"):
        LowerTriangular.saved(np.eye(4), tmp_path / "matrix.txt")
    assert not (tmp_path / "wrong.npy").exists()
