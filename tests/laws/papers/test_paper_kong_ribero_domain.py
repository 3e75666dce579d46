"""Kong & Ribero (arXiv:2407.05237), the constants of a step and what follows from one step or from none: Theorems 4.3 and 4.4 of the first
version (2024), 2.2 of the revised one (2025), where they are wrong, and 4.4 put right."""

import math
from typing import get_args

import numpy as np
import pytest
from helpers import make_run
from oracles import projected_chain_delta
from theorem_bounds import rho_of

from lethe.errors import InputError
from lethe.theorems.lipschitz import clipped_step, plain_step
from lethe.theorems.literature.kong_ribero_2024 import (
    KongRibero2024AnyLoss,
    KongRibero2024BoundedDomain,
    KongRibero2024Corrected,
    any_loss_rho,
    bounded_domain_rho,
)
from lethe.theorems.literature.kong_ribero_2025 import KongRibero2025BoundedDomain
from lethe.theorems.literature.kong_ribero_setting import Letters, Version, step_limit

DOMAIN = {"first": KongRibero2024BoundedDomain(), "revised": KongRibero2025BoundedDomain()}
ANY_LOSS, CORRECTED = KongRibero2024AnyLoss(), KongRibero2024Corrected()
BALL = {"kind": "ball", "radius": 0.05}  # d_h = 0.1
WEAK = {"kind": "weakly_convex", "weak_convexity": 0.05, "smoothness": 0.2, "gradient_bound": 1.0}  # 1/(2(m + M)) = 2
LINEAR = {"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0}
SIGMA = 0.5 * 5.0 * 1.0 / 10  # lambda z C / b of make_run(loss=WEAK)


def constant(version: Version, step_size: object, m: object, smoothness: object) -> np.ndarray:
    letters = Letters(step_size=step_size, clip_norm=1.0, noise_std=1.0, weak_convexity=m, smoothness=smoothness)  # pyright: ignore[reportArgumentType]
    return letters.lipschitz(version)


def test_the_step_constants() -> None:
    """The remarks after Proposition 3.4: sqrt(3) for M = 0 and sqrt(5/2) for m = M at lambda = 1/(2m). Equation (13): at lambda = 1/(2m)
    sqrt(5/2) and 3/2, where the remarks after Proposition 2.1 still have those of the first version's larger constant. 1 for m = 0."""
    for version, flat, curved in (("first", math.sqrt(3), math.sqrt(5 / 2)), ("revised", math.sqrt(5 / 2), 3 / 2)):
        assert constant(version, 0.25, 2.0, 0.0) == pytest.approx(flat, rel=1e-15)
        assert constant(version, 0.25, 2.0, 2.0) == pytest.approx(curved, rel=1e-15)
        assert constant(version, 0.5, 0.0, 1.0) == constant(version, 0.5, -0.3, 1.0) == 1.0  # strong convexity is not used
    tiny = Letters(step_size=1e-30, clip_norm=1.0, noise_std=1.0, weak_convexity=1.0, smoothness=1.0)
    assert tiny.log_square("revised") == pytest.approx(2.5e-30, rel=1e-15)


def test_the_step_constants_are_above_the_exact_ones() -> None:
    """L_lambda up to 1/(m + M) without clipping, sqrt(2) L_lambda up to half of that with it: what (19) and (17) rest on."""
    generator = np.random.default_rng(13)
    m, smoothness, part = generator.uniform(0, 1, (3, 5000))
    step = 2 * part * step_limit(m, smoothness)
    revised = constant("revised", step, m, smoothness)
    assert np.all(constant("first", step, m, smoothness) >= revised)
    assert np.all(revised >= plain_step(step, m, smoothness) * (1 - 1e-15))
    assert np.all(math.sqrt(2) * constant("revised", step / 2, m, smoothness) >= clipped_step(step / 2, m, smoothness))
    assert constant("revised", 1.0, 0.25, 0.75) == pytest.approx(plain_step(1.0, 0.25, 0.75), rel=1e-15)  # equal at the limit


def test_theorem_43_is_8_alpha_t_lambda_c_over_sigma_squared() -> None:
    run = make_run(loss={"kind": "unknown"}, clip_norm=1.0)
    assert rho_of(ANY_LOSS, run) == pytest.approx(8 * 50 * (0.5 * 1.0 / SIGMA) ** 2, rel=1e-13)
    assert any_loss_rho(Letters(step_size=0.5, clip_norm=1.0, noise_std=SIGMA, steps=[10, 50])) == pytest.approx([320.0, 1600.0], rel=1e-14)


@pytest.mark.parametrize("version", get_args(Version))
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_theorems_44_and_22(version: Version, clip_norm: float | None) -> None:
    run = make_run(loss=WEAK, regulariser=BALL, clip_norm=clip_norm)
    bound = 1.0 if clip_norm is None else clip_norm
    square = 1 + 2 * 0.5 * 0.05 * (1 + 0.05 / (0.25 if version == "first" else 2 * 0.25))
    expected = (math.sqrt(square) * 0.1 + 2 * 0.5 * bound / 10) ** 2 / (2 * (bound * SIGMA) ** 2)
    assert rho_of(DOMAIN[version], run) == pytest.approx(expected, rel=1e-13)
    assert DOMAIN[version].standing_on(run).soundness == ("sound" if clip_norm is None else "proof-gap")


@pytest.mark.parametrize(
    ("loss", "clip_norm", "exact"),
    [
        (WEAK, None, 1.025),  # 1 + lambda m
        ({**WEAK, "kind": "generalised_linear"}, 0.5, 1.025),
        ({"kind": "convex", "smoothness": 0.2, "gradient_bound": 1.0}, 0.5, 1.012739367083556),  # 1/sqrt(1 - h/4) at h = .1
        ({"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.2, "gradient_bound": 1.0}, None, 0.95),
    ],
)
def test_theorem_44_corrected_is_what_two_iterates_a_diameter_apart_lose(
    loss: dict[str, object], clip_norm: float | None, exact: float
) -> None:
    """Quadratic loss in one dimension, h = -lambda m: iterates d_h apart go (1 + lambda m) d_h + s apart, then one noise hides that.
    No earlier step is assumed, so no bound from the last step alone can be smaller: the Gaussian pair has rho = (distance/sigma)^2/2."""
    run = make_run(loss=loss, regulariser=BALL, clip_norm=clip_norm)
    expected = (exact * 0.1 + run.sensitivities[-1]) ** 2 / (2 * run.noise_stds[-1] ** 2)
    assert rho_of(CORRECTED, run) == pytest.approx(expected, rel=1e-13)
    assert CORRECTED.standing_on(run).usable


@pytest.mark.parametrize("diameter", [0.05, 0.3, 1.0])
def test_theorem_44_is_above_a_projected_random_walk(diameter: float) -> None:
    """Linear losses on an interval, one dimension, exactly computed: full batches touch the record at every step."""
    ball = {"kind": "ball", "radius": diameter / 2}
    run = make_run(records=1, batches={"design": "full"}, loss=LINEAR, regulariser=ball, noise_multiplier=2.5)
    shift = run.sensitivities / 2
    for epsilon in (0.0, 0.5, 1.5):
        exact = projected_chain_delta(diameter, run.noise_stds, shift, -shift, epsilon)
        for theorem in (CORRECTED, *DOMAIN.values()):
            assert theorem.bound(run).guarantee.delta(epsilon) >= exact


@pytest.mark.parametrize("h", [0.1, 0.25, 0.5, 1.0])
def test_a_clipped_step_expands_though_the_paper_says_it_does_not(h: float) -> None:
    """Proposition 3.4(b) has L_lambda(0, M) = 1 with clipping. f = (M x1^2 + d x2^2)/2 is convex; just outside the clipping boundary its
    step stretches by 1/sqrt(1 - h/4), h = lambda M (docs/theory.md), up to d/M and the finite difference. So Theorem 4.4 has a gap."""
    step_size, clip_norm, curvatures = 0.5, 1.0, np.array([2 * h, 2e-4 * h])
    assert h == 1.0 or step_size <= 1 / (2 * curvatures[0])  # h = 1 is for Chien and Li, who have no such limit

    def step(points: np.ndarray) -> np.ndarray:
        gradients = curvatures * points
        return points - step_size * gradients * np.minimum(1.0, clip_norm / np.linalg.norm(gradients, axis=-1, keepdims=True))

    y = 0.5 - (2 - h) / (2 * (4 - h))  # the best angle between the gradient and the flat direction
    x, size, angles = clip_norm * 1.0001 * np.array([math.sqrt(1 - y), math.sqrt(y)]) / curvatures, 1e-5, np.linspace(0, math.pi, 721)
    reached = np.linalg.norm(step(x + size * np.column_stack((np.cos(angles), np.sin(angles)))) - step(x), axis=1).max() / size
    assert constant("first", step_size, 0.0, curvatures[0]) == constant("revised", step_size, 0.0, curvatures[0]) == 1.0
    assert reached > 1 + 0.9 * h / 8
    exact = 1 / math.sqrt(1 - h / 4)
    assert clipped_step(step_size, 0.0, float(curvatures[0])) == pytest.approx(exact, rel=1e-14)
    assert exact * (1 - 1e-3) < reached <= exact * (1 + 1e-6)


def test_theorem_22_contradicts_its_own_paper_when_clipping_acts() -> None:
    """Its L_lambda is below the exact constant of a clipped step for small m, though not for every m; the sqrt(2) L_lambda of Proposition
    2.1(b) is above it."""
    assert clipped_step(0.25, 1.0, 1.0) <= constant("revised", 0.25, 1.0, 1.0) == pytest.approx(math.sqrt(1.625), rel=1e-15)
    run = make_run(loss={"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}, clip_norm=0.5, regulariser=BALL)
    attained = (clipped_step(0.5, 0.0, 1.0) * 0.1 + run.sensitivities[-1]) ** 2 / (2 * run.noise_stds[-1] ** 2)
    assert rho_of(DOMAIN["revised"], run) < attained
    assert not DOMAIN["revised"].standing_on(run).usable


def test_only_the_last_step_matters_to_44() -> None:
    run = make_run(loss=WEAK, regulariser=BALL)
    odd = run.replace(batches={"design": "shuffled", "size": 10}, step_size=[*[3.0] * 49, 0.5], noise_multiplier=[*[0.0] * 49, 5.0])
    for theorem in (DOMAIN["first"], CORRECTED):
        assert rho_of(theorem, odd) == rho_of(theorem, run)


def test_the_closed_forms_know_their_limits() -> None:
    numbers = {"clip_norm": 1.0, "batch_size": 10, "noise_std": 0.25, "weak_convexity": 0.05, "smoothness": 0.2}
    letters = Letters(**numbers, step_size=[1.0, 2.0, 2.1], steps=50, steps_per_pass=10)
    for version in get_args(Version):
        rho = bounded_domain_rho(letters, 0.1, version)
        assert np.isfinite(rho).tolist() == [True, True, False]
        assert rho[0] < rho[1]
    with pytest.raises(InputError, match="noise_std"):
        Letters(**{**numbers, "noise_std": 0.0}, step_size=1.0)
    with pytest.raises(InputError, match="diameter"):
        bounded_domain_rho(letters, math.inf, "first")
    with pytest.raises(InputError, match="steps"):
        Letters(**numbers, step_size=0.5, steps=0)
    assert step_limit(0.0, 0.0) == math.inf
