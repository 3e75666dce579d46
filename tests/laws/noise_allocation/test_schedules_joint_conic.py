"""The structured solver and a general one on the same problems: they share inputs and the final check, not the formulation."""

from __future__ import annotations

import numpy as np
import pytest
from cyclic_instances import instance, mu_of, rising, solved
from joint_conic import joint_conic

from lethe.noise_allocation.joint.problem import joint_problem


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(30))
def test_both_find_the_same_cost(seed: int) -> None:
    run, options = instance(seed)
    ours, theirs = solved(*run, **options), joint_conic(joint_problem(*run, **options))
    assert ours.value == pytest.approx(theirs.value, rel=1e-5)
    assert mu_of(run, theirs.noise_stds) <= options["mu"]
    assert max(ours.lower_bound, theirs.lower_bound) <= min(ours.value, theirs.value) * (1 + 1e-12)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_reset(seed: int) -> None:
    generator = np.random.default_rng(seed)
    steps, size = int(generator.integers(4, 14)), int(generator.integers(2, 5))
    run = rising(0.97, steps), generator.uniform(0.9, 1.0, steps), generator.uniform(0.2, 1, steps), size
    diameter = float(generator.uniform(0.2, 1.2))
    ours, theirs = solved(*run, diameter=diameter), joint_conic(joint_problem(*run, diameter=diameter))
    # Theirs tries every step; ours a grid that is refined around its best.
    assert theirs.value * (1 - 1e-5) <= ours.value <= theirs.value * (1 + 1e-5)
    assert mu_of(run, theirs.noise_stds, diameter) <= 1.0
