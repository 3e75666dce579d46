"""Kong & Ribero 2025 (arXiv:2407.05237, revised version): Theorems 2.2 and 2.3."""

import itertools
import math

import numpy as np
import pytest
from helpers import make_run
from kong_ribero_2025_runs import (
    BALL,
    CLIPPED,
    DELTA,
    DOMAIN,
    RATIO,
    RUNS,
    UNCLIPPED,
    WEAK,
    curvature_of,
    letters,
    lipschitz_constant,
    random_runs,
    rho_of,
    theta_by_sum,
)
from numpy.typing import ArrayLike
from oracles import brute_force_shift, exact_shift, linear_gaussian_mu_orthogonal, linear_gaussian_mu_same_direction

import lethe
from lethe.certificates.findings import first_failure
from lethe.errors import InputError
from lethe.theorems.base import Theorem
from lethe.theorems.lipschitz import clipped_step, plain_step
from lethe.theorems.literature.kong_ribero_2025 import clipped_rho, unclipped_rho
from lethe.theorems.literature.kong_ribero_setting import step_limit, theta


def _amplification(lipschitz: ArrayLike, steps: int) -> np.ndarray:
    constant = np.asarray(lipschitz, dtype=np.float64)
    return theta(2 * np.log1p(constant - 1) if np.all(np.abs(constant - 1) < 0.5) else 2 * np.log(constant), steps)


def test_the_step_constant() -> None:
    """Equation (13): 1 for m = 0; at lambda = 1/(2m) sqrt(5/2) for M = 0 and 3/2 for m = M, where the remarks after Proposition 2.1 still
    have the sqrt(3) and sqrt(5/2) of the first version's larger constant."""
    assert lipschitz_constant(0.5, 0.0, 1.0) == 1.0
    assert lipschitz_constant(0.5, -0.3, 1.0) == 1.0  # strong convexity is not used
    assert lipschitz_constant(0.25, 2.0, 0.0) == pytest.approx(math.sqrt(5 / 2), rel=1e-15)
    assert lipschitz_constant(0.25, 2.0, 2.0) == pytest.approx(3 / 2, rel=1e-15)
    assert letters(step_size=1e-30, weak_convexity=1.0, smoothness=1.0).log_square("revised") == pytest.approx(2.5e-30, rel=1e-15)


def test_the_step_constants_are_above_the_exact_ones() -> None:
    """L_lambda up to 1/(m + M) without clipping, sqrt(2) L_lambda up to half of that with it: what (19) and (17) rest on."""
    generator = np.random.default_rng(13)
    m, smoothness, part = generator.uniform(0, 1, (3, 5000))
    step = 2 * part * step_limit(m, smoothness)
    assert np.all(lipschitz_constant(step, m, smoothness) >= plain_step(step, m, smoothness) * (1 - 1e-15))
    assert np.all(math.sqrt(2) * lipschitz_constant(step / 2, m, smoothness) >= clipped_step(step / 2, m, smoothness))
    assert lipschitz_constant(1.0, 0.25, 0.75) == pytest.approx(plain_step(1.0, 0.25, 0.75), rel=1e-15)  # equal at the limit


@pytest.mark.parametrize("lipschitz", [0.3, 0.9, 1.0, 1.0001, 1.1, math.sqrt(2), 3.0])
def test_pass_amplification_is_the_sum_and_the_cheapest_shift_of_one_touch(lipschitz: float) -> None:
    for steps in (1, 2, 7, 12):
        assert _amplification(lipschitz, steps) == pytest.approx(theta_by_sum(lipschitz**2, steps), rel=1e-13)
        brute = brute_force_shift([lipschitz] * steps, [1.0] + [0.0] * (steps - 1), [1.0] * steps)
        assert _amplification(lipschitz, steps) == pytest.approx(brute**2, rel=1e-7)  # least squares squares its rounding


def test_pass_amplification_at_the_ends() -> None:
    assert _amplification([0.5, 1.0, 2.0], 0).tolist() == [0.0, 0.0, 0.0]
    assert _amplification(2.0, 100_000) == 0.75  # 1 - L^-2, where L^200000 overflows
    assert _amplification(0.5, 100_000) == 0.0
    around = _amplification([1 - 1e-12, 1.0, 1 + 1e-12], 100_000)
    # theta = (1/s)(1 + (s - 1) log L + ...), so 1e-7 to either side; 1 + 1e-12 itself is off by 1e-16, times s.
    assert around * 1e5 - 1 == pytest.approx([-1e-7, 0.0, 1e-7], abs=2e-11)
    assert np.all(np.diff(_amplification(np.linspace(0.5, 2, 1001), 10)) > 0)
    assert np.all(theta(np.logspace(-300, 2, 303), 1000) >= 1e-3 * (1 - 1e-15))
    with pytest.raises(InputError, match="steps"):
        theta(0.0, -1)


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_theorem_22(clip_norm: float | None) -> None:
    run = make_run(loss=WEAK, regulariser=BALL, clip_norm=clip_norm)
    bound = clip_norm or 1.0
    constant = math.sqrt(1 + 2 * 0.5 * 0.05 * (1 + 0.05 / (2 * 0.25)))
    sigma = 0.5 * 5.0 * bound / 10
    assert rho_of(DOMAIN, run) == pytest.approx((constant * 0.1 + 2 * 0.5 * bound / 10) ** 2 / (2 * sigma**2), rel=1e-13)
    assert DOMAIN.standing_on(run).soundness == ("sound" if clip_norm is None else "proof-gap")


@pytest.mark.parametrize(("steps", "passes"), [(50, 5), (59, 5), (3, 0)])
def test_theorem_23(steps: int, passes: int) -> None:
    """(17) and (19): 4 alpha (lambda C / (b sigma))^2 = alpha (s / sigma)^2 times what is in the bracket."""
    square = 1 + 2 * 0.5 * 0.05 * (1 + 0.05 / (2 * 0.25))
    assert rho_of(UNCLIPPED, make_run(loss=WEAK, steps=steps)) == pytest.approx(
        RATIO**2 * (1 + passes * theta_by_sum(square, 10)), rel=1e-13
    )
    run = make_run(loss=WEAK, steps=steps, clip_norm=0.5)
    assert rho_of(CLIPPED, run) == pytest.approx(RATIO**2 * (1 + passes * theta_by_sum(2 * square, 10)), rel=1e-13)
    assert rho_of(CLIPPED, run.replace(neighbours="zero_out")) == pytest.approx(rho_of(CLIPPED, run) / 4, rel=1e-13)


def test_the_example_of_the_theory_page() -> None:
    """docs/theory.md: h = .1, l = 100, E = 50, z = 10: 7.243 by (17), 4.836 with its proof's constant, 6.573 by composition, 1.154."""
    loss = {"kind": "convex", "smoothness": 0.2, "gradient_bound": 2.0}
    run = make_run(records=1000, passes=50, noise_multiplier=10.0, clip_norm=1.0, loss=loss)
    assert CLIPPED.bound(run).guarantee.epsilon(DELTA) == pytest.approx(7.243, abs=5e-4)
    assert lethe.guarantees.ZCDP(rho_of(CLIPPED, run) / 2).epsilon(DELTA) == pytest.approx(4.836, abs=5e-4)
    assert lethe.certify(run, DELTA).epsilon == pytest.approx(1.154, abs=5e-4)


def test_the_setting_of_figure_1() -> None:
    """lambda = sigma = 1e-5, C = b = 10, k = 1e4 (l = 1000): (2 lambda C / (b sigma))^2 = 4, at all T of the axis at once."""
    common = {"step_size": 1e-5, "clip_norm": 10.0, "batch_size": 10, "noise_std": 1e-5, "steps_per_pass": 1000, "smoothness": 1.0}
    steps = np.array([1, 999, 1000, 50_500, 100_000])
    passes = np.array([0, 0, 1, 50, 100])
    assert unclipped_rho(letters(**common, steps=steps)) == pytest.approx(4 * (1 + passes / 1000), rel=1e-14)
    assert clipped_rho(letters(**common, steps=steps)) == pytest.approx(4 * (1 + passes / 2), rel=1e-14)  # theta = 1/2 to 2^-1000
    square = 1 + 2e-5 * np.array([0.1, 1.0]) * (1 + np.array([0.1 / 2.2, 0.25]))
    grid = unclipped_rho(letters(**common, weak_convexity=[[0.1], [1.0]], steps=steps))
    expected = 4 * (1 + passes * np.array([[theta_by_sum(float(x), 1000)] for x in square]))
    assert grid == pytest.approx(expected, rel=1e-12)  # a thousand summands


@pytest.mark.slow
def test_half_of_19_is_the_engine_for_a_record_of_the_first_batch_and_one_step_more() -> None:
    """T = E l + 1: the first batch is touched E times with a pass behind it and once with nothing behind it, at L = L_lambda >= 1
    exactly (1 + E theta)/2 (s/sigma)^2. So the theorem cannot be wrong by a percent unnoticed, and its proof gives half of it."""
    for run in RUNS:
        slots = run.steps_per_pass
        run = run.replace(steps=slots * (run.total_steps // slots) + 1)
        if slots == 1:
            continue
        touched = run.sensitivities * (np.arange(run.total_steps) % slots == 0)
        for theorem, factor in ((UNCLIPPED, 1.0), (CLIPPED, math.sqrt(2))):
            if first_failure(theorem.examine(run)) is None:
                constant = factor * float(lipschitz_constant(run.step_sizes[0], *curvature_of(run)))
                exact = float(exact_shift(np.full(run.total_steps, constant), touched, run.noise_stds))
                assert rho_of(theorem, run) == pytest.approx(exact, rel=1e-11)


@pytest.mark.slow
def test_19_is_never_below_an_exact_run_at_any_position() -> None:
    """The least a step does is multiply by 1 + lambda m, one direction or fresh directions, or nothing at all (linear losses)."""
    for run in RUNS:
        m = curvature_of(run)[0]
        for position, factor in itertools.product(range(run.steps_per_pass), (1.0, 1 + run.step_sizes[0] * m)):
            touched = run.sensitivities * (np.arange(run.total_steps) % run.steps_per_pass == position)
            steps = np.full(run.total_steps, factor)
            least = brute_force_shift(steps, touched, run.noise_stds)
            for mu in (
                least,
                linear_gaussian_mu_same_direction(steps, touched, run.noise_stds),
                linear_gaussian_mu_orthogonal(steps, touched, run.noise_stds),
            ):
                assert rho_of(UNCLIPPED, run) >= mu**2 / 2 * (1 - 1e-9)


@pytest.mark.parametrize(("theorem", "clip_norm", "factor"), [(UNCLIPPED, None, 1.0), (CLIPPED, 0.5, 2.0)])
def test_theorem_23_states_the_constant_of_the_paper(theorem: Theorem, clip_norm: float | None, factor: float) -> None:
    """L_lambda of equation (13) without clipping, sqrt(2) times as much with it."""
    stated = theorem.bound(make_run(loss=WEAK, clip_norm=clip_norm)).lipschitz
    assert stated is not None
    assert stated.constant == pytest.approx(math.sqrt(factor * (1 + 2 * 0.5 * 0.05 * (1 + 0.05 / (2 * 0.25)))), rel=1e-13)


@pytest.mark.slow
def test_17_is_never_better_than_composition() -> None:
    """theta_L >= 1/2 for L >= sqrt(2), so 1 + E theta >= (E + 1)/2 + 1/2."""
    for run in random_runs(60, clip_norm=0.5):
        if first_failure(CLIPPED.examine(run)) is None:
            touches = math.ceil(run.total_steps / run.steps_per_pass)
            assert rho_of(CLIPPED, run) > touches / (2 * run.relative_noise[0] ** 2)
            assert CLIPPED.standing_on(run).soundness == "dominated"


def test_theorem_22_contradicts_its_own_paper_when_clipping_acts() -> None:
    """Its L_lambda is below the exact constant of a clipped step for small m (an exact attaining step is in the tests of the first
    version), though not for every m; the sqrt(2) L_lambda of Proposition 2.1(b) is above it."""
    step, smoothness = 0.5, 1.0
    assert clipped_step(step, 0.0, smoothness) == pytest.approx(1 / math.sqrt(1 - 0.125), rel=1e-14)
    assert lipschitz_constant(step, 0.0, smoothness) == 1.0
    assert lipschitz_constant(0.25, 1.0, 1.0) == pytest.approx(math.sqrt(1.625), rel=1e-15)
    assert clipped_step(0.25, 1.0, 1.0) <= math.sqrt(1.625)
    run = make_run(loss={"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}, clip_norm=0.5, regulariser=BALL)
    assert rho_of(DOMAIN, run) < (clipped_step(step, 0.0, smoothness) * 0.1 + run.sensitivities[-1]) ** 2 / (2 * run.noise_stds[-1] ** 2)
    assert not DOMAIN.standing_on(run).usable
