"""The closed form for steps that neither expand nor contract."""

import numpy as np
import pytest
from cyclic_instances import solved
from hypothesis import given
from hypothesis import strategies as st

from lethe.noise_allocation.joint.position import joint_passes
from lethe.theorems.shuffled import positions


@given(st.integers(1, 5), st.integers(1, 20), st.floats(0.8, 1.0), st.floats(0.1, 3.0))
def test_it_is_private_and_no_perturbation_is_better(slots: int, steps: int, rate: float, budget: float) -> None:
    weights, ones = rate ** np.arange(steps - 1, -1, -1), np.ones(steps)
    variances = joint_passes(weights, ones, ones, slots, budget)
    assert variances is not None
    assert positions.worst_position(ones, ones, np.sqrt(variances), slots)[0] ** 2 <= budget * (1 + 1e-9)
    random = np.random.default_rng(steps)
    for _ in range(30):
        other = variances * random.uniform(0.5, 2.0, steps) + random.uniform(0, 1, steps) * random.integers(0, 2, steps) * variances.max()
        squared = positions.worst_position(ones, ones, np.sqrt(other), slots)[0] ** 2
        assert weights @ other * squared / budget >= weights @ variances * (1 - 1e-9)


@pytest.mark.parametrize(("slots", "steps"), [(4, 20), (4, 18), (5, 3), (1, 6)])
def test_the_solver_finds_no_better(slots: int, steps: int) -> None:
    weights, ones = 0.93 ** np.arange(steps - 1, -1, -1), np.ones(steps)
    variances = joint_passes(weights, ones, ones, slots)
    assert variances is not None
    best = solved(weights, ones, ones, slots)
    assert weights @ variances == pytest.approx(best.value, rel=1e-5)
    assert best.lower_bound <= weights @ variances * (1 + 1e-9)


def test_it_knows_where_it_does_not_apply() -> None:
    ones = np.ones(6)
    assert joint_passes(ones, 0.9 * ones, ones, 3) is None
    assert joint_passes(ones[::-1] * [6, 5, 4, 3, 2, 1], ones, ones, 3) is None
    assert joint_passes(ones, ones, [2.0, 1, 1, 1, 1, 1], 3) is None
    assert joint_passes(ones, ones, [1.0, 1, 2, 1, 1, 1], 3) is not None
