"""Statements and the Gaussian release: what they refuse, what they compose to, and noise that just meets its target."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lethe.calculus.guarantees import GDP, ZCDP, ApproxDP, NotPrivate, RDPCurve
from lethe.certificates.findings import fails, holds
from lethe.certificates.parts import Citation
from lethe.certificates.statement import Statement
from lethe.errors import HypothesisError, InputError
from lethe.mechanisms.base import gaussian_guarantee, gaussian_noise_std, joint


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


def test_statements_about_different_neighbours_are_not_added() -> None:
    with pytest.raises(InputError, match="one relation"):
        joint([_statement(1.0), _statement(1.0, neighbours="zero_out")])
    for nothing in ([], ["a"]):
        with pytest.raises(InputError, match="at least one statement"):
            joint(nothing)


def test_a_failing_hypothesis_is_no_statement() -> None:
    with pytest.raises(HypothesisError, match="bounded: no"):
        _statement(1.0, findings=(fails("bounded", "no", source="x", remedy="y"),))
    with pytest.raises(InputError, match="guarantee"):
        _statement(1.0, guarantee=1.0)
    with pytest.raises(InputError, match="neighbours"):
        _statement(1.0, neighbours="some")


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
