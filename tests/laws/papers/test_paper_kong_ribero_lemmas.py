"""Kong & Ribero 2025, Lemmas A.1 to A.11 and Proposition A.5: identities, worst cases, and the shift engine, which none of them beats."""

import math

import numpy as np
import pytest

from lethe.theorems.lipschitz import clipped_step, plain_step
from lethe.theorems.literature.kong_ribero_setting import theta
from lethe.theorems.shift.engine import solve

SIGMA, STEP = 0.7, 1.3


@pytest.mark.parametrize("growth", [1.001, 1.3, 2.0])
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_payments_of_lemma_a3_are_the_engine_s_and_a4_is_attained(growth: float, steps: int) -> None:
    """(23): R_t >= 0, R_T = 0, sum b_t^2 = theta; the engine pays b_t for one touch, so A.4(a) cannot be smaller at these constants."""
    total = sum(growth ** (2 * i) for i in range(steps))
    b = np.array([growth ** (2 * steps - 1 - t) / total for t in range(1, steps + 1)])
    rest = [growth ** (t - 1) - sum(b[i] * growth ** (t - 1 - i) for i in range(t)) for t in range(1, steps + 1)]
    assert min(rest) >= -1e-12
    assert rest[-1] == pytest.approx(0.0, abs=1e-12)
    assert float(b @ b) == pytest.approx(float(theta(math.log(growth**2), steps)), rel=1e-12)
    for distance in (0.0, 0.4):  # the runs are so far apart before the first step
        first = growth * distance + STEP
        shift = solve([growth] * steps, [first] + [0.0] * (steps - 1), [SIGMA] * steps)
        assert shift.mu**2 == pytest.approx((first / SIGMA) ** 2 * float(b @ b), rel=1e-12)


@pytest.mark.parametrize(("steps", "cycle"), [(4, 4), (12, 4), (14, 4), (7, 1)])
def test_proposition_a5_is_above_the_engine(steps: int, cycle: int) -> None:
    """(26) with tau = 0: each pass pays for itself; the engine pays for all together. (25), (27): 2 zeta, then zeta: composition."""
    for growth in (1.0, 1.2):
        passes, square = steps // cycle, 2.0 * math.log(growth)
        parts = [float(theta(square, cycle))] * passes + ([float(theta(square, steps % cycle))] if steps % cycle else [])
        touched = [STEP if t % cycle == 0 else 0.0 for t in range(steps)]
        engine = solve([growth] * steps, touched, [SIGMA] * steps).mu ** 2
        printed = (STEP / SIGMA) ** 2 * sum(parts)
        assert engine <= printed * (1 + 1e-12)
        assert engine == pytest.approx(printed, rel=1e-12) or passes > 1
    assert 4 + (steps - 1) <= 4 * steps


@pytest.mark.parametrize(("weak", "smooth"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (2.0, 0.5)])
def test_curvatures_meet_a7_and_steps_a9_and_the_exact_constants_are_no_larger(weak: float, smooth: float) -> None:
    """A.6 and A.7 at every curvature c in [-m, M]; A.8 and A.9 for clipped gradients of quadratics in the plane."""
    curvatures = np.linspace(-weak, smooth, 101)
    assert np.all(curvatures >= -weak * (1 + weak / (2 * (smooth + weak))) + curvatures**2 / (2 * (smooth + weak)) - 1e-12)
    rng = np.random.default_rng(0)
    length = 1.0 / (2.0 * (smooth + weak))
    constant = math.sqrt(1 + 2 * length * weak * (1 + weak / (2 * (smooth + weak))))
    assert plain_step(2 * length, weak, smooth) <= math.sqrt(1 + 4 * length * weak * (1 + weak / (2 * (smooth + weak)))) * (1 + 1e-12)
    assert plain_step(length, weak, smooth) <= constant * (1 + 1e-12)
    assert clipped_step(length, weak, smooth) <= math.sqrt(2.0) * constant * (1 + 1e-12)
    for _ in range(300):
        turn, _ = np.linalg.qr(rng.normal(size=(2, 2)))
        hessian = turn @ np.diag(rng.uniform(-weak, smooth, 2)) @ turn.T
        x, y, centre = rng.normal(size=(3, 2)) * 3.0
        plain = [hessian @ (point - centre) for point in (x, y)]
        clipped = [gradient * min(1.0, 1.0 / np.linalg.norm(gradient)) for gradient in plain]
        change, moved = plain[0] - plain[1], clipped[0] - clipped[1]
        assert moved @ moved <= change @ moved + 1e-12
        assert (moved - change) @ (moved - change) <= change @ change - moved @ moved + 1e-12
        assert np.linalg.norm(x - y - length * moved) <= clipped_step(length, weak, smooth) * np.linalg.norm(x - y) * (1 + 1e-12)
        assert np.linalg.norm(moved) <= 2.0  # (34) times b/lambda
