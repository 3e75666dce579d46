"""Kong & Ribero 2024 (arXiv:2407.05237, first version): what Theorems 4.3, 4.4, 4.5 say, where they are wrong, and 4.4 put right."""

import math

import numpy as np
import pytest
from helpers import batches, make_run
from oracles import linear_gaussian_mu_same_direction, projected_chain_delta

import lethe
from lethe.errors import InputError
from lethe.theorems.base import Theorem
from lethe.theorems.lipschitz import clipped_step
from lethe.theorems.literature.kong_ribero_2024 import (
    KongRibero2024AnyLoss,
    KongRibero2024BoundedDomain,
    KongRibero2024Corrected,
    KongRibero2024FirstBatch,
    any_loss_rho,
    bounded_domain_rho,
    first_batch_rho,
)
from lethe.theorems.literature.kong_ribero_setting import Letters
from lethe.theorems.shuffled.positions import position_mus

DELTA = 1e-5


def first_lipschitz_constant(step_size: float, m: float, smoothness: float) -> float:
    letters = Letters(step_size=step_size, clip_norm=1.0, noise_std=1.0, weak_convexity=m, smoothness=smoothness)
    assert letters.lipschitz("first") >= letters.lipschitz("revised")
    return float(letters.lipschitz("first"))


THEOREMS = (KongRibero2024AnyLoss(), KongRibero2024BoundedDomain(), KongRibero2024Corrected(), KongRibero2024FirstBatch())
BALL = {"kind": "ball", "radius": 0.05}  # d_h = 0.1
WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}  # 1/(2(m + M)) = 2
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
SIGMA = 0.5 * 5.0 * 1.0 / 10  # lambda z C / b of make_run(loss=WEAK)


def _rho(theorem: Theorem, run: lethe.Run) -> float:
    guarantee = theorem.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.ZCDP)
    return guarantee.rho


def _curvature(run: lethe.Run) -> tuple[float, float]:
    assert run.loss.curvature is not None
    return run.loss.curvature


def _random_runs(count: int) -> list[lethe.Run]:
    """Small runs that meet the hypotheses of every theorem here but clipping."""
    generator = np.random.default_rng(20240709)
    runs: list[lethe.Run] = []
    for _ in range(count):
        m, smoothness = generator.uniform(0, 1, 2)
        slots, passes, size = generator.integers(1, 6), generator.integers(1, 5), generator.integers(1, 4)
        runs.append(
            make_run(
                records=int(slots * size),
                batches=batches(str(generator.choice(["cyclic", "shuffled_once"])), int(size)),
                steps=int(slots * passes + generator.integers(0, slots)),
                step_size=float(generator.uniform(0.05, 1.0)) / (2 * (m + smoothness)),
                noise_multiplier=float(generator.uniform(0.5, 8)),
                clip_norm=[None, 0.5][int(generator.integers(2))],
                loss={"kind": "weakly_convex", "weak_convexity": float(m), "smoothness": float(smoothness), "gradient_bound": 1.0},
                regulariser={"kind": "ball", "radius": float(generator.uniform(0.01, 1))},
                neighbours=str(generator.choice(["replace_one", "zero_out"])),
            )
        )
    return runs


RUNS = _random_runs(40)


def test_the_constant_of_the_first_version() -> None:
    """The remarks after Proposition 3.4: sqrt(3) for M = 0 and sqrt(5/2) for m = M at lambda = 1/(2m), 1 for m = 0."""
    assert first_lipschitz_constant(0.25, 2.0, 0.0) == pytest.approx(math.sqrt(3), rel=1e-15)
    assert first_lipschitz_constant(0.25, 2.0, 2.0) == pytest.approx(math.sqrt(5 / 2), rel=1e-15)
    assert first_lipschitz_constant(0.5, 0.0, 1.0) == 1.0


def test_theorem_43_is_8_alpha_t_lambda_c_over_sigma_squared() -> None:
    run = make_run(loss={"kind": "unknown"}, clip_norm=1.0)
    assert _rho(THEOREMS[0], run) == pytest.approx(8 * 50 * (0.5 * 1.0 / SIGMA) ** 2, rel=1e-13)
    assert any_loss_rho(Letters(step_size=0.5, clip_norm=1.0, noise_std=SIGMA, steps=[10, 50])) == pytest.approx([320.0, 1600.0], rel=1e-14)


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_theorem_44(clip_norm: float | None) -> None:
    run = make_run(loss=WEAK, regulariser=BALL, clip_norm=clip_norm)
    bound = 1.0 if clip_norm is None else clip_norm
    constant = math.sqrt(1 + 2 * 0.5 * 0.05 * (1 + 0.05 / 0.25))
    expected = (constant * 0.1 + 2 * 0.5 * bound / 10) ** 2 / (2 * (bound * SIGMA) ** 2)
    assert _rho(THEOREMS[1], run) == pytest.approx(expected, rel=1e-13)
    assert THEOREMS[1].standing_on(run).soundness == ("sound" if clip_norm is None else "proof-gap")


@pytest.mark.parametrize(
    ("loss", "clip_norm", "constant"),
    [
        (WEAK, None, 1.025),  # 1 + lambda m
        ({**WEAK, "kind": "generalised_linear"}, 0.5, 1.025),
        ({"kind": "convex", "smoothness": 0.2, "gradient_bound": 1.0}, 0.5, 1.012739367083556),  # 1/sqrt(1 - h/4) at h = .1
        ({"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.2, "gradient_bound": 1.0}, None, 0.95),
    ],
)
def test_theorem_44_corrected_has_the_exact_constant(loss: dict[str, object], clip_norm: float | None, constant: float) -> None:
    run = make_run(loss=loss, regulariser=BALL, clip_norm=clip_norm)
    expected = (constant * 0.1 + run.sensitivities[-1]) ** 2 / (2 * run.noise_stds[-1] ** 2)
    assert _rho(THEOREMS[2], run) == pytest.approx(expected, rel=1e-13)
    assert THEOREMS[2].standing_on(run).usable


def test_theorem_45_weakly_convex_with_a_pass_cut_short() -> None:
    run = make_run(loss=WEAK, steps=53)
    square = 1 + 2 * 0.5 * 0.05 * (1 + 0.05 / 0.25)
    theta = {s: square ** (s - 1) / sum(square**j for j in range(s)) for s in (3, 10)}
    expected = 4 * (0.5 * 1.0 / (10 * SIGMA)) ** 2 * (theta[3] + 5 * theta[10])
    assert _rho(THEOREMS[3], run) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("steps", "shape"), [(53, 1 / 3 + 5 / 10), (50, 5 / 10)])
def test_theorem_45_convex(steps: int, shape: float) -> None:
    """Equation (22); for whole passes its max{0, 1/0} is theta(0) = 0."""
    run = make_run(steps=steps)  # z = 5, replace one: lambda C / (b sigma) = 1/5
    assert _rho(THEOREMS[3], run) == pytest.approx(4 / 25 * shape, rel=1e-13)


@pytest.mark.parametrize("diameter", [0.05, 0.3, 1.0])
def test_the_corrected_44_is_above_a_projected_random_walk(diameter: float) -> None:
    """Linear losses on an interval, one dimension, exactly computed: full batches touch the record at every step."""
    run = make_run(
        records=1, batches={"design": "full"}, loss=LINEAR, regulariser={"kind": "ball", "radius": diameter / 2}, noise_multiplier=2.5
    )
    shift = run.sensitivities / 2
    for epsilon in (0.0, 0.5, 1.5):
        exact = projected_chain_delta(diameter, run.noise_stds, shift, -shift, epsilon)
        assert THEOREMS[2].bound(run).guarantee.delta(epsilon) >= exact
        assert THEOREMS[1].bound(run).guarantee.delta(epsilon) >= exact


def test_the_corrected_44_is_what_two_iterates_a_diameter_apart_lose() -> None:
    """Quadratic loss in one dimension, h = -lambda m: iterates d_h apart go (1 + lambda m) d_h + s apart, then one noise hides that.
    No earlier step is assumed, so no bound from the last step alone can be smaller: the Gaussian pair has rho = (distance/sigma)^2/2."""
    for run in RUNS:
        if not run.clips:
            m = _curvature(run)[0]
            distance = (1 + run.step_sizes[-1] * m) * run.diameter + run.sensitivities[-1]
            assert _rho(THEOREMS[2], run) == pytest.approx((distance / run.noise_stds[-1]) ** 2 / 2, rel=1e-12)


def _clipped_gradient_step(x: np.ndarray, step_size: float, curvatures: np.ndarray, clip_norm: float) -> np.ndarray:
    gradient = curvatures * x
    return x - step_size * gradient * min(1.0, clip_norm / float(np.linalg.norm(gradient)))


@pytest.mark.parametrize("h", [0.1, 0.25, 0.5, 1.0])
def test_a_clipped_step_expands_though_the_paper_says_it_does_not(h: float) -> None:
    """Proposition 3.4(b) has L_lambda(0, M) = 1 with clipping. f = (M x1^2 + d x2^2)/2 is convex; just outside the clipping boundary its
    step stretches by 1/sqrt(1 - h/4), h = lambda M (docs/theory.md), up to d/M and the finite difference. So Theorem 4.4 has a gap."""
    step_size, clip_norm, curvatures = 0.5, 1.0, np.array([2 * h, 2e-4 * h])
    assert h == 1.0 or step_size <= 1 / (2 * curvatures[0])  # h = 1 is for Chien and Li, who have no such limit
    y = 0.5 - (2 - h) / (2 * (4 - h))  # the best angle between the gradient and the flat direction
    gradient = clip_norm * 1.0001 * np.array([math.sqrt(1 - y), math.sqrt(y)])
    x, size = gradient / curvatures, 1e-5
    angles = np.linspace(0, math.pi, 721)
    ratios = [
        np.linalg.norm(
            _clipped_gradient_step(x + size * direction, step_size, curvatures, clip_norm)
            - _clipped_gradient_step(x, step_size, curvatures, clip_norm)
        )
        / size
        for direction in np.column_stack((np.cos(angles), np.sin(angles)))
    ]
    assert first_lipschitz_constant(step_size, 0.0, curvatures[0]) == 1.0
    assert max(ratios) > 1 + 0.9 * h / 8
    exact = 1 / math.sqrt(1 - h / 4)
    assert clipped_step(step_size, 0.0, float(curvatures[0])) == pytest.approx(exact, rel=1e-14)
    assert exact * (1 - 1e-3) < max(ratios) <= exact * (1 + 1e-6)


def _forgetful_run(**changes: object) -> tuple[lethe.Run, float]:
    """Linear losses and a strong ridge: exactly Gaussian, and all but the last touch of a record in the last batch is forgotten."""
    run = make_run(loss=LINEAR, regulariser={"kind": "ridge", "strength": 18.0}, **changes)  # c = 1/(1 + 0.5 * 18) = 0.1
    touched = run.sensitivities * (np.arange(1, run.total_steps + 1) % run.steps_per_pass == 0)
    return run, linear_gaussian_mu_same_direction(np.full(run.total_steps, 0.1), touched, run.noise_stds)


@pytest.mark.parametrize(("changes", "times"), [({"passes": 1}, 4.9), ({"records": 400, "passes": 5}, 3.9)])
def test_theorem_45_is_false_for_a_record_in_the_last_batch(changes: dict[str, object], times: float) -> None:
    """Exact: mean (1 + c^l + ...) s, variance tau^2/(1 - c^2), so rho = 0.495 (s/tau)^2; the paper has E/l (s/tau)^2."""
    run, mu = _forgetful_run(**changes)
    theorem = KongRibero2024FirstBatch()
    claimed = theorem.bound(run).guarantee
    assert mu**2 / 2 == pytest.approx(0.495 * (2 / 5) ** 2, rel=1e-3)
    assert mu**2 / 2 > times * _rho(theorem, run)
    assert lethe.guarantees.GDP(mu).epsilon(DELTA) > 1.5 * claimed.epsilon(DELTA)
    assert lethe.certify(run, DELTA).epsilon >= lethe.guarantees.GDP(mu).epsilon(DELTA) * (1 - 1e-12)
    assert not theorem.standing_on(run).usable


def test_theorem_45_holds_for_the_first_batch_without_clipping() -> None:
    """With the paper's own constant the engine gives half of it at most."""
    for run in RUNS:
        if not run.clips:
            constant = float(first_lipschitz_constant(run.step_sizes[0], *_curvature(run)))
            mus = position_mus(np.full(run.total_steps, constant), run.sensitivities, run.noise_stds, run.steps_per_pass)
            assert _rho(THEOREMS[3], run) >= mus[0] ** 2 * (1 - 1e-12)


def test_only_the_last_step_matters_to_44() -> None:
    run = make_run(loss=WEAK, regulariser=BALL)
    odd = make_run(
        loss=WEAK,
        regulariser=BALL,
        batches={"design": "shuffled", "size": 10},
        step_size=[*[3.0] * 49, 0.5],
        noise_multiplier=[*[0.0] * 49, 5.0],
    )
    assert [_rho(theorem, odd) for theorem in THEOREMS[1:3]] == [_rho(theorem, run) for theorem in THEOREMS[1:3]]


def test_the_closed_forms_are_vectorised_and_know_their_limits() -> None:
    numbers = {"clip_norm": 1.0, "batch_size": 10, "noise_std": 0.25, "weak_convexity": 0.05, "smoothness": 0.2}
    letters = Letters(**numbers, step_size=[1.0, 2.0, 2.1], steps=50, steps_per_pass=10)
    for rho in (bounded_domain_rho(letters, 0.1, "first"), first_batch_rho(letters)):
        assert np.isfinite(rho).tolist() == [True, True, False]
        assert rho[0] < rho[1]
    with pytest.raises(InputError, match="noise_std"):
        Letters(**{**numbers, "noise_std": 0.0}, step_size=1.0)
    with pytest.raises(InputError, match="diameter"):
        bounded_domain_rho(letters, math.inf, "first")
    with pytest.raises(InputError, match="steps"):
        Letters(**numbers, step_size=0.5, steps=0)
