"""What must hold of every run: monotone in each argument, never better than exact linear runs, never worse than composition."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import linear_gaussian_mu_orthogonal, linear_gaussian_mu_same_direction

from lethe.theorems.shift import engine as shift

Step = tuple[float, float, float]

# Magnitudes over many orders, zeros included, noise sometimes missing.
factors = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 20.0))
touches = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
noises = st.one_of(st.just(0.0), st.floats(1e-2, 1e2))
runs = st.lists(st.tuples(factors, touches, noises), min_size=1, max_size=30)

# mu is rounded up by a relative 16 (T + 8) roundings at most; two runs may differ by twice that.
SLACK = 1 - 2 * 16 * 40 * 2.0**-53

often = settings(max_examples=examples(200))


def mu(run: list[Step]) -> float:
    return shift.solve(*zip(*run, strict=True)).mu


@pytest.mark.slow
@often
@given(runs, st.data())
def test_more_noise_never_raises_mu(run: list[Step], data: st.DataObject) -> None:
    more = [(f, s, n + data.draw(st.floats(0, 10))) for f, s, n in run]
    assert mu(more) * SLACK <= mu(run)


@pytest.mark.slow
@often
@given(runs, st.data())
def test_more_sensitivity_never_lowers_mu(run: list[Step], data: st.DataObject) -> None:
    more = [(f, s + data.draw(st.floats(0, 10)), n) for f, s, n in run]
    assert mu(more) >= mu(run) * SLACK


@pytest.mark.slow
@often
@given(runs, st.data())
def test_a_larger_lipschitz_constant_never_lowers_mu(run: list[Step], data: st.DataObject) -> None:
    more = [(f + data.draw(st.floats(0, 2)), s, n) for f, s, n in run]
    assert mu(more) >= mu(run) * SLACK


@pytest.mark.slow
@often
@given(runs, st.floats(0.0, 20.0), noises)
def test_an_untouched_step_more_never_raises_mu(run: list[Step], factor: float, noise: float) -> None:
    assert mu([*run, (factor, 0.0, noise)]) * SLACK <= mu(run)


@pytest.mark.slow
@often
@given(runs)
def test_never_worse_than_composition(run: list[Step]) -> None:
    ratios = [np.inf if n == 0 else s / n for _, s, n in run if s > 0]
    assert mu(run) * SLACK <= np.linalg.norm(ratios)


@pytest.mark.slow
@often
@given(st.lists(st.tuples(st.floats(0.05, 3.0), touches, st.floats(0.05, 5.0)), min_size=1, max_size=30))
def test_never_better_than_the_exact_privacy_of_a_linear_run(run: list[Step]) -> None:
    arrays = [np.array(column) for column in zip(*run, strict=True)]
    assert mu(run) >= linear_gaussian_mu_same_direction(*arrays) * SLACK
    assert mu(run) >= linear_gaussian_mu_orthogonal(*arrays) * SLACK


@pytest.mark.slow
@often
@given(runs, st.integers(1, 30))
def test_a_run_is_no_better_than_its_end_and_no_worse_than_composed_parts(run: list[Step], cut: int) -> None:
    first, last = run[:cut], run[cut:]
    assert mu(run) >= (mu(last) if last else 0.0) * SLACK
    assert mu(run) * SLACK <= np.hypot(mu(first), mu(last) if last else 0.0)


@pytest.mark.slow
@often
@given(runs, st.floats(1e-6, 1e6))
def test_mu_scales_with_the_ratio_of_sensitivity_to_noise(run: list[Step], ratio: float) -> None:
    scaled = mu([(f, s * ratio, n) for f, s, n in run])
    # Half an eps in each product, more where it is denormal: the strategies stay away from there.
    assert scaled * SLACK <= mu(run) * ratio * (1 + 1e-15) + 1e-150
    assert scaled >= mu(run) * ratio * SLACK * (1 - 1e-15) - 1e-150
