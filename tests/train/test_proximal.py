from fractions import Fraction
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from lethe.errors import InputError
from lethe.run.regularisers import L1, Ball, Box, ElasticNet, GroupL1, NuclearNorm, Regulariser, Ridge, Simplex
from lethe.train.core.iterates import proximal_step

SUMS: tuple[tuple[Regulariser, ...], ...] = (
    (),
    (Ridge(strength=0.7),),
    (L1(strength=0.5),),
    (ElasticNet(l1_strength=0.3, ridge_strength=0.9),),
    (Ball(radius=0.8),),
    (Ball(radius=3.0), Ball(radius=0.5)),
    (Ridge(strength=0.7), Ball(radius=0.6)),
    (Ball(radius=0.6), L1(strength=0.4)),
    (L1(strength=0.2), Ridge(strength=0.4), Ball(radius=0.7), ElasticNet(l1_strength=0.1, ridge_strength=0.3)),
)
POINTS = arrays.arrays(np.float64, (3, 2), elements=st.floats(-4, 4))
STEPS = st.floats(0.05, 2.0)


def facts(parts: tuple[Regulariser, ...]) -> tuple[float, float, float]:
    """(l1 strength, ridge strength, radius), read off the definitions in lethe.run.regularisers."""
    l1 = sum(getattr(part, "strength", 0.0) for part in parts if part.kind == "l1") + sum(
        getattr(part, "l1_strength", 0.0) for part in parts
    )
    return l1, sum(part.strong_convexity for part in parts), min((part.diameter / 2 for part in parts), default=np.inf)


def objective(parts: tuple[Regulariser, ...], point: np.ndarray, step_size: float, candidate: np.ndarray) -> float:
    l1, ridge, _ = facts(parts)
    return float(l1 * np.abs(candidate).sum() + ridge / 2 * (candidate**2).sum() + ((candidate - point) ** 2).sum() / (2 * step_size))


def prox(parts: tuple[Regulariser, ...], point: np.ndarray, step_size: float) -> np.ndarray:
    return proximal_step(parts)(torch.tensor(point), step_size).numpy()


@pytest.mark.slow
@given(parts=st.sampled_from(SUMS), point=POINTS, rival=POINTS, step_size=STEPS)
def test_nothing_in_the_domain_has_a_smaller_objective(parts: Any, point: np.ndarray, rival: np.ndarray, step_size: float) -> None:
    """The objective is (1/lambda + kappa)-strongly convex: its argmin p, and only p, has q(z) >= q(p) + (1/lambda + kappa)/2 |z - p|^2."""
    _, ridge, radius = facts(parts)
    result = prox(parts, point, step_size)
    assert np.linalg.norm(result) <= radius
    rival = rival * min(1.0, radius / max(float(np.linalg.norm(rival)), 1e-300))
    gap = objective(parts, point, step_size, rival) - objective(parts, point, step_size, result)
    growth = (1 / step_size + ridge) / 2 * float(((rival - result) ** 2).sum())
    assert gap >= growth - 1e-9  # objectives are below 1e4, so rounding is below 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("parts", SUMS)
def test_it_is_the_numerical_argmin(parts: tuple[Regulariser, ...]) -> None:
    """scipy's SLSQP on x = p - q with p, q >= 0, where the l1 norm is linear."""
    l1, ridge, radius = facts(parts)
    point = np.random.default_rng(1).normal(size=6)
    step_size = 0.6

    def smooth(split: np.ndarray) -> float:
        x = split[:6] - split[6:]
        return float(l1 * split.sum() + ridge / 2 * x @ x + (x - point) @ (x - point) / (2 * step_size))

    ball = (
        [] if np.isinf(radius) else [{"type": "ineq", "fun": lambda split: radius**2 - (split[:6] - split[6:]) @ (split[:6] - split[6:])}]
    )
    found = optimize.minimize(
        smooth, np.full(12, 0.1), bounds=[(0, None)] * 12, constraints=ball, method="SLSQP", options={"ftol": 1e-14, "maxiter": 500}
    )
    # SLSQP stops at changes of 1e-14 in a 1-strongly convex objective: sqrt gives 1e-7 in x, with a margin for its finite differences
    assert prox(parts, point, step_size) == pytest.approx(found.x[:6] - found.x[6:], abs=2e-6)


@pytest.mark.slow
@given(parts=st.sampled_from(SUMS), one=POINTS, two=POINTS, step_size=STEPS)
def test_it_contracts_as_certificates_say(parts: Any, one: np.ndarray, two: np.ndarray, step_size: float) -> None:
    """theory.md section 4.5: 1 / (1 + lambda kappa)."""
    apart = np.linalg.norm(prox(parts, one, step_size) - prox(parts, two, step_size))
    assert apart <= np.linalg.norm(one - two) / (1 + step_size * facts(parts)[1]) + 1e-14  # rounding of entries below 6


@given(point=POINTS, radius=st.floats(1e-3, 10.0))
def test_the_ball_is_never_left_in_exact_arithmetic(point: np.ndarray, radius: float) -> None:
    result = prox((Ball(radius=radius),), point, 0.3)
    assert sum(Fraction(float(entry)) ** 2 for entry in result.ravel()) <= Fraction(radius) ** 2


@pytest.mark.parametrize("part", [Box(half_width=1.0, dimension=4), Simplex(total=1.0), GroupL1(strength=1.0), NuclearNorm(strength=1.0)])
def test_other_regularisers_are_refused(part: Regulariser) -> None:
    with pytest.raises(InputError, match=f"regulariser.kind: got {part.kind}"):
        proximal_step((Ridge(strength=1.0), part))
