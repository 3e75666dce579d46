"""Kong & Ribero 2025 (arXiv:2407.05237, revised version): Corollaries C.2 (false, and put right) and C.3."""

import itertools
import math

import numpy as np
import pytest
from helpers import make_run
from kong_ribero_2025_runs import (
    CORRECTED,
    DELTA,
    INDEPENDENT,
    RATIO,
    RUNS,
    STATED,
    UNCLIPPED,
    WEAK,
    corollary_run,
    letters,
    rho_of,
    theta_by_sum,
)
from oracles import linear_gaussian_mu_same_direction

import lethe
from lethe.certificates.findings import first_failure
from lethe.theorems.literature.kong_ribero_2025 import (
    ORDERS,
    corollary_steps_per_pass,
    unclipped_rho,
)
from lethe.theorems.literature.kong_ribero_setting import step_limit, theta
from lethe_experiments.kong_ribero_noise import corrected_noise_std, stated_noise_std


def test_corollary_c2_as_printed() -> None:
    """sigma = (C lambda / 2b) sqrt((1 + 4 m E / (M + m)) / (alpha epsilon)), and turned round for a run with that noise."""
    alpha, epsilon, passes = 4.0, 0.3, 5
    sigma = 1.0 * 2.0 / 20 * math.sqrt((1 + 4 * 0.05 * passes / 0.25) / (alpha * epsilon))
    numbers = {"clip_norm": 1.0, "batch_size": 10, "steps": 50, "steps_per_pass": 10, "weak_convexity": 0.05, "smoothness": 0.2}
    assert stated_noise_std(**numbers, order=alpha, epsilon=epsilon) == pytest.approx(sigma, rel=1e-14)
    run = corollary_run(noise_multiplier=sigma * 10 / 2.0)  # sigma = lambda z C / b
    guarantee = STATED.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    assert guarantee.orders == ORDERS
    assert guarantee.values[ORDERS.index(alpha)] == pytest.approx(epsilon, rel=1e-13)
    assert guarantee.values[ORDERS.index(2 * alpha)] == pytest.approx(epsilon / 2, rel=1e-13)  # falls with the order: no Rényi curve does


def test_corollary_c2_misses_its_own_epsilon_by_16_alpha_squared() -> None:
    """Its last display, 4 alpha (C lambda / (b sigma))^2 (1 + 4 m E / (M + m)) <= epsilon, at the sigma it states."""
    for alpha, epsilon in itertools.product((1.5, 2.0, 10.0), (0.1, 1.0)):
        numbers = {"clip_norm": 1.0, "batch_size": 10, "steps": 50, "steps_per_pass": 10, "weak_convexity": 0.05, "smoothness": 0.2}
        sigma = float(stated_noise_std(**numbers, order=alpha, epsilon=epsilon))
        proved = 4 * alpha * (1.0 * 2.0 / (10 * sigma)) ** 2 * (1 + 4 * 0.05 * 5 / 0.25)
        assert proved == pytest.approx(16 * alpha**2 * epsilon, rel=1e-13)
        enough = float(corrected_noise_std(**numbers, order=alpha, epsilon=epsilon))
        assert 4 * alpha * (1.0 * 2.0 / (10 * enough)) ** 2 * (1 + 4 * 0.05 * 5 / 0.25) == pytest.approx(epsilon, rel=1e-13)
        assert alpha * unclipped_rho(letters(**numbers, step_size=2.0, noise_std=enough)) <= epsilon


def test_corollary_c2_is_below_an_exact_run_of_its_class() -> None:
    """Linear losses have curvature in [-m, M] for any m and M, and h may be a strong ridge (contraction c): the last iterate of a record
    in the last batch is exactly Gaussian, Rényi divergence alpha mu^2 / 2 at every order."""
    run = corollary_run(regulariser={"kind": "ridge", "strength": 4.5})  # c = 1/(1 + 2 * 4.5) = 0.1
    touched = run.sensitivities * (np.arange(1, 51) % 10 == 0)
    mu = linear_gaussian_mu_same_direction(np.full(50, 0.1), touched, run.noise_stds)
    assert mu**2 / 2 == pytest.approx(0.495 * RATIO**2, rel=1e-3)
    guarantee = STATED.bound(run).guarantee
    assert isinstance(guarantee, lethe.guarantees.RDPCurve)
    claimed = np.array(guarantee.values) / np.array(ORDERS)
    assert np.all(claimed[1:] < mu**2 / 2)  # from order 1.5 on
    assert claimed[ORDERS.index(8.0)] < mu**2 / 2 / 80
    assert guarantee.epsilon(DELTA) < 0.1 * lethe.guarantees.GDP(mu).epsilon(DELTA)
    assert not STATED.standing_on(run).usable
    assert rho_of(CORRECTED, run) >= mu**2 / 2


def test_the_corrected_c2_follows_from_19() -> None:
    """theta(l) <= 2(1 - L^-2) <= 4m/(M + m) for l at least its least length, at the step size it names."""
    generator = np.random.default_rng(2)
    m, smoothness = generator.uniform(0.001, 1, (2, 2000))
    slots = np.ceil(corollary_steps_per_pass(m, smoothness)) + generator.integers(0, 20, 2000)
    squared = letters(step_size=step_limit(m, smoothness), weak_convexity=m, smoothness=smoothness).log_square("revised")
    share = m / (m + smoothness)
    assert np.all(theta(squared, slots) <= 2 * -np.expm1(-squared) * (1 + 1e-14))
    assert np.all(2 * -np.expm1(-squared) <= 4 * share)
    for passes in (1, 7):
        run = corollary_run(passes=passes)
        expected = RATIO**2 * (1 + 4 * 0.05 / 0.25 * passes)
        assert rho_of(CORRECTED, run) == pytest.approx(expected, rel=1e-13)
        assert rho_of(CORRECTED, run) > rho_of(UNCLIPPED, run)


@pytest.mark.slow
def test_corollary_c3() -> None:
    run = make_run(loss=WEAK, step_size=0.4)  # 0.4 <= 1/sqrt(5) = 0.447
    square = 1 + 2 * 0.4 * 0.05 * (1 + 0.05 / (2 * 0.25))
    sigma = 0.4 * 5.0 * 1.0 / 10
    assert rho_of(INDEPENDENT, run) == pytest.approx(4 * (1.0 / (10 * sigma)) ** 2 * (1 + theta_by_sum(square, 10)), rel=1e-13)
    assert rho_of(INDEPENDENT, run) > rho_of(UNCLIPPED, run)
    for run in RUNS:
        run = run.replace(step_size=float(run.step_sizes[0]) / 20)
        if first_failure(INDEPENDENT.examine(run)) is None:
            assert rho_of(INDEPENDENT, run) >= rho_of(UNCLIPPED, run)
