"""Constants of a step from both sides: printed values, exact maxima, adversaries that nearly reach them, losses that never exceed them."""

from fractions import Fraction

import numpy as np
import pytest
from helpers import make_run
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

import lethe
from lethe.theorems.lipschitz import clipped_step, generalised_linear_step, plain_step, ridge_contraction
from lethe.theorems.optimal_shift import OptimalShift
from lethe.theorems.steps import largest_batch, step_constants


def largest_block(a: float, h: float, y: np.ndarray) -> float:
    """The largest norm of I + aP - (a+h)PQ over the angles y, from its trace and determinant, and of the 1x1 blocks."""
    total, corner = a + h, 1 + a - (a + h) * y
    frobenius = 1 + corner**2 + total**2 * y * (1 - y)
    largest = (frobenius + np.sqrt(np.maximum(frobenius**2 - 4 * corner**2, 0))) / 2
    return max(float(np.sqrt(largest.max())), 1.0, abs(1 + a), abs(1 - h))


def test_the_clipped_step_is_the_maximum_over_all_angles() -> None:
    y = np.linspace(0, 1, 4001)
    for a in np.linspace(-3, 3, 49):
        for h in np.linspace(max(0.0, -a), 6, 41):
            brute = largest_block(a, h, y)
            constant = clipped_step(1.0, a, h)
            # The grid misses the maximum by its spacing squared at most; the oracle rounds a few times.
            assert brute * (1 - 4e-15) <= constant <= brute * (1 + 1e-6), (a, h)


@given(st.floats(0, 1e6), st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_the_plain_step_is_rounded_up_by_no_more_than_two_units(step: float, weak: float, smooth: float) -> None:
    weak = max(weak, -smooth)
    exact = max(abs(1 + Fraction(step) * Fraction(weak)), abs(1 - Fraction(step) * Fraction(smooth)))
    constant = Fraction(plain_step(step, weak, smooth))
    # Where the exact value is nearly 0, a denormal is left of it.
    assert exact <= constant <= exact * (1 + Fraction(2) ** -50) + Fraction(1e-300)


@given(st.floats(1e-6, 10), st.floats(-3, 3), st.floats(0, 6))
@example(0.5, 0.0, 5e-324)
def test_the_clipped_step_is_rounded_up(step: float, weak: float, smooth: float) -> None:
    weak = max(weak, -smooth)
    a, h = Fraction(step) * Fraction(weak), Fraction(step) * Fraction(smooth)
    g, total = h - a, a + h
    constant = Fraction(clipped_step(step, weak, smooth))
    assert constant >= max(abs(1 + a), abs(1 - h), 1)
    if 0 < g < 4 and abs((2 - g) * total) < g * (4 - g):
        squared = 1 + total**2 / (g * (4 - g))
        assert squared <= constant**2
        # The excess: a few eps, times the cancellation in g and in 4 - g.
        loss = 1 + (abs(a) + h + 4) * (1 / g + 1 / (4 - g))
        assert constant**2 <= squared + (squared * 8 + (squared - 1) * 16 * loss) * Fraction(2) ** -52


def test_exact_where_nothing_rounds() -> None:
    assert plain_step(4.0, 0.0, 0.5) == 1.0  # softmax regression with features of norm 1 at its largest step, 4 / R^2
    assert plain_step(1.0, 0.0, 2.0) == 1.0
    assert plain_step(0.3, 0.0, 1.0) == 1.0
    assert generalised_linear_step(4.0, 0.0, 0.5) == 1.0
    assert plain_step(0.5, -1.0, 1.0) == 0.5
    assert clipped_step(0.0, 1.0, 1.0) == clipped_step(1.0, 0.0, 0.0) == clipped_step(1.0, -0.5, 0.5) == 1.0
    assert ridge_contraction(0.0, 1.0) == ridge_contraction(1.0, 0.0) == 1.0


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_ridge_contraction_is_rounded_up(step: float, strength: float) -> None:
    exact = 1 / (1 + Fraction(step) * Fraction(strength))
    assert exact <= Fraction(ridge_contraction(step, strength)) <= exact * (1 + Fraction(2) ** -49)


CURVATURES = [*((0.0, h) for h in (0.5, 1.0, 2.0, 3.0)), (0.1, 0.5), (0.25, 1.0), (0.25, 0.25), (-0.2, 1.0), (-0.5, 3.0), (1.0, 0.5)]


def projection(parameters: np.ndarray, dimension: int, rank: int) -> np.ndarray:
    basis, _ = np.linalg.qr(parameters.reshape(dimension, dimension))
    return basis[:, :rank] @ basis[:, :rank].T


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("dimension", "a", "h"), [(dimension, *curvature) for k, curvature in enumerate(CURVATURES) for dimension in {2, 2 + (k + 1) % 3}]
)
def test_projections_and_hessians_reach_it_and_never_exceed_it(dimension: int, a: float, h: float) -> None:
    generator = np.random.default_rng(dimension)
    constant = clipped_step(1.0, a, h)
    size = dimension * dimension
    reached = 1.0

    def norm(parameters: np.ndarray, ranks: tuple[int, int]) -> float:
        high = projection(parameters[size:], dimension, ranks[1])
        hessian = (a + h) * high - a * np.eye(dimension)
        return float(np.linalg.norm(np.eye(dimension) - projection(parameters[:size], dimension, ranks[0]) @ hessian, 2))

    for ranks in np.ndindex(dimension + 1, dimension + 1):
        start = generator.standard_normal(2 * size)
        found = minimize(lambda x, ranks=ranks: -norm(x, ranks), start, method="Powell", options={"maxfev": 800})
        reached = max(reached, norm(found.x, ranks))
    for _ in range(200):  # neither extreme: any symmetric matrices between the ends
        left, right = (np.linalg.qr(generator.standard_normal((dimension, dimension)))[0] for _ in range(2))
        mean = left @ np.diag(generator.uniform(0, 1, dimension)) @ left.T
        hessian = right @ np.diag(generator.uniform(-a, h, dimension)) @ right.T
        reached = max(reached, float(np.linalg.norm(np.eye(dimension) - mean @ hessian, 2)))
    assert constant * (1 - 1e-3) <= reached <= constant * (1 + 1e-13)  # the search is that good; a matrix norm rounds that much


def test_a_generalised_linear_loss_exceeds_the_plain_constant_only_up_to_one() -> None:
    # Clipping sets the curvature to 0 where it acts: a strongly convex scalar loss moves like the identity there.
    direction, step = np.array([1.0, 0.0]), 0.5
    images = [x - step * direction for x in (np.array([5.0, 0.0]), np.array([7.0, 0.0]))]  # both gradients are clipped to norm 1
    assert np.linalg.norm(images[1] - images[0]) == 2.0
    assert generalised_linear_step(step, -1.0, 1.0) == 1.0


@pytest.mark.parametrize("kind", ["generalised_linear", "weakly_convex"])
@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("design", ["cyclic", "poisson"])
def test_a_long_step_expands_as_a_quadratic_does(kind: str, clip_norm: float | None, design: str) -> None:
    """One step on M x^2 / 2, both gradients shorter than the clip norm, makes |1 - lambda M| of a small distance. A batch that is larger
    than its nominal size makes the step as much longer."""
    loss = {"kind": kind, "weak_convexity": 0.0 if kind == "generalised_linear" else 0.25, "smoothness": 0.5, "gradient_bound": 1.0}
    run = make_run(loss=loss, clip_norm=clip_norm, step_size=10.0, batches={"design": design, "size": 10})
    steps, longer = step_constants(run), 10.0 * (largest_batch(run)[0] / 10)
    assert steps is not None
    assert longer == 10.0 if design == "cyclic" else longer > 10.0
    assert steps.lipschitz == pytest.approx(np.full(steps.lipschitz.shape, longer * 0.5 - 1.0), rel=1e-14)


@pytest.mark.parametrize("neighbours", ["replace_one", "zero_out"])
def test_before_one_step_no_two_iterates_are_further_apart_than_the_domain_is_wide(neighbours: str) -> None:
    """Steps that expand much in a wide domain, and no noise but the last: two iterates at its ends, each moved by a clip norm outwards."""
    run = make_run(
        batches={"design": "full"},
        loss={"kind": "weakly_convex", "weak_convexity": 2.0, "smoothness": 2.0},
        clip_norm=1.0,
        steps=40,
        step_size=0.5,
        regulariser={"kind": "ball", "radius": 50.0},
        noise_multiplier=[0.0] * 39 + [3000.0],
        neighbours=neighbours,
        release="last",
    )
    apart = (2 * 50.0 + 2 * 0.5 * 1.0) / float(run.noise_stds[-1])
    guarantee = lethe.certify(run, 1e-5, [OptimalShift()]).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    assert apart <= guarantee.mu <= apart * (1 + 1e-9)
