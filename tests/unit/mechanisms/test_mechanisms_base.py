"""Statements and the Gaussian release: what they compose to, and noise that just meets its target; rows that are projected inward."""

import math
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, NotPrivate, RDPCurve
from lethe.certificates.findings import fails, holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import HypothesisError, InputError
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std, joint
from lethe.mechanisms.tables import projected_rows, targets_within
from lethe.run.losses.linear import class_targets, row_norm


def _statement(mu: float, **changes: Any) -> Statement:
    values: dict[str, Any] = {
        "name": f"release {mu:g}",
        "guarantee": GDP(mu),
        "neighbours": "replace_one",
        "findings": (holds("bounded", "by the code", evidence="enforced"),),
        "citations": (Citation(key="a", text="A"),),
    }
    return Statement(**values | changes)


def test_gaussian_releases_compose_exactly_and_repeat_nothing() -> None:
    both = joint([_statement(3.0), _statement(4.0)])
    assert isinstance(both.guarantee, GDP)
    assert both.guarantee.mu == pytest.approx(5.0)
    assert (len(both.findings), len(both.citations), both.name) == (1, 1, "release 3; release 4")
    assert joint([_statement(1.0)], name="alone").name == "alone"
    assert both.epsilon(1e-5) == both.guarantee.epsilon(1e-5)
    assert both.delta(1.0) == both.guarantee.delta(1.0)
    assert both.to_dict()["findings"] == [{"name": "bounded", "status": "holds", "evidence": "enforced", "detail": "by the code"}]


def test_what_is_no_statement_and_what_does_not_add_up_is_refused() -> None:
    with pytest.raises(InputError, match="one relation"):
        joint([_statement(1.0), _statement(1.0, neighbours="zero_out")])
    for nothing in ([], ["a"]):
        with pytest.raises(InputError, match="at least one statement"):
            joint(nothing)
    with pytest.raises(HypothesisError, match="bounded: no"):
        _statement(1.0, findings=(fails("bounded", "no", source="x", remedy="y"),))
    for field, wrong in (("guarantee", 1.0), ("neighbours", "some")):
        with pytest.raises(InputError, match=field):
            _statement(1.0, **{field: wrong})


TARGETS = [ApproxDP(1.0, 1e-5), ApproxDP(0.01, 1e-9), GDP(0.3), ZCDP(0.02), RDPCurve((2.0, 8.0), (0.3, 0.4))]


@given(target=st.sampled_from(TARGETS), sensitivity=st.floats(1e-100, 1e100))
def test_noise_meets_its_target_and_a_little_less_does_not(target: Any, sensitivity: float) -> None:
    noise_std = gaussian_noise_std(sensitivity, target)

    def meets(guarantee: GDP | NotPrivate) -> bool:
        assert isinstance(guarantee, GDP)
        half = guarantee.mu**2 / 2
        if isinstance(target, ApproxDP):
            return guarantee.delta(target.epsilon_bound) <= target.delta_bound
        if isinstance(target, GDP):
            return guarantee.mu <= target.mu
        if isinstance(target, ZCDP):
            return half <= target.rho
        return all(half * order <= value for order, value in zip(target.orders, target.values, strict=True))

    assert meets(gaussian_guarantee(sensitivity, noise_std))
    assert not meets(gaussian_guarantee(sensitivity, noise_std / 1.0001))


def test_edges_of_a_gaussian_release() -> None:
    assert gaussian_guarantee(0.0, 0.0) == GDP(0.0)
    assert gaussian_guarantee(1.0, 0.0) == NotPrivate()
    assert gaussian_guarantee(1e300, 1e-300) == NotPrivate()
    assert gaussian_guarantee(1e-300, 1e300).delta(0.0) > 0.0


@given(table=arrays(np.float64, (3, 4), elements=st.floats(-1e200, 1e200)), radius=st.floats(1e-3, 1e3))
def test_no_row_is_longer_than_the_bound_in_exact_arithmetic(table: np.ndarray, radius: float) -> None:
    for row in projected_rows(table, feature_norm=radius):
        assert sum(Fraction(entry) ** 2 for entry in row.tolist()) <= Fraction(radius) ** 2


@given(table=arrays(np.float64, (3, 2), elements=st.floats(-10.0, 10.0)))
def test_each_row_is_treated_by_itself_and_short_ones_stay(table: np.ndarray) -> None:
    rows = projected_rows(table, feature_norm=2.0, intercept=True)
    for index in range(3):
        assert (projected_rows(table[index : index + 1], feature_norm=2.0, intercept=True)[0] == rows[index]).all()
        if np.linalg.norm(table[index]) < 1.999:
            assert (rows[index, :2] == table[index]).all()
        else:
            assert np.linalg.norm(rows[index, :2]) == pytest.approx(min(2.0, np.linalg.norm(table[index])))
    assert (rows[:, 2] == 1.0).all()
    assert np.linalg.norm(rows, axis=1).max() <= row_norm(2.0, intercept=True)


def test_a_long_table_is_projected_in_parts_and_copied_once() -> None:
    table = np.random.default_rng(0).standard_normal((40_000, 64))
    tracemalloc.start()
    rows = projected_rows(table, feature_norm=8.0, intercept=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * rows.nbytes
    parts = [projected_rows(table[start : start + 777], feature_norm=8.0, intercept=True) for start in range(0, len(table), 777)]
    assert np.array_equal(rows, np.concatenate(parts))
    assert 0.4 < (np.linalg.norm(rows[:, :-1], axis=1) > 7.999).mean() < 0.6
    table[-1, 3] = math.nan
    with pytest.raises(InputError, match=r"features\[39999, 3\]"):
        projected_rows(table, feature_norm=8.0)


def test_norms_and_targets() -> None:
    assert row_norm(2.0, intercept=False) == 2.0
    assert row_norm(2.0, intercept=True) == pytest.approx(math.sqrt(5.0))
    assert targets_within([-3, 0.5, 9], count=3, bound=2.0).tolist() == [-2.0, 0.5, 2.0]
    assert class_targets([0, 2.0, 1], count=3, classes=3).tolist() == [0, 2, 1]
    with pytest.raises(InputError, match=r"targets\[1\] = 3"):
        class_targets([0, 3], count=2, classes=3)
