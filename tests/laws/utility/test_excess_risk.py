"""The bound of a run: against exact risks, its hypotheses one by one, its refusals, its text."""

import math
import re
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_quadratics import exact_risk
from repository import ROOT

import lethe
from lethe.errors import HypothesisError, InputError
from lethe.utility import excess_risk_bound
from lethe_experiments.risk.gradient_descent import erub, noise_to_gap

PUBLIC: dict[str, Any] = {"dimension": 3, "initial_gap": 1.0}
BASE: dict[str, Any] = {
    "records": 200,
    "batches": {"design": "full"},
    "steps": 25,
    "step_size": 1.5,
    "noise_multiplier": 4.0,
    "loss": {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 1.0, "gradient_bound": 2.0},
    "release": "last",
    "neighbours": "replace_one",
}
PAGE = ROOT / "docs" / "utility.md"


def _run(**changes: Any) -> lethe.Run:
    return lethe.Run(**{**BASE, **changes})


def test_at_one_over_the_smoothness_it_is_the_bound_of_the_paper() -> None:
    schedule = np.linspace(9.0, 2.0, 25)
    run = _run(step_size=1.0, noise_multiplier=schedule.tolist())
    bound = excess_risk_bound(run, **PUBLIC)
    budget = float(np.sum(1 / schedule**2))
    alpha = noise_to_gap(dimension=3, gradient_bound=2.0, budget=budget, smoothness=1.0, records=200, initial_gap=1.0)
    assert bound.value == pytest.approx(erub(kappa=10.0, alpha=alpha, budget=budget, variances=schedule**2), rel=1e-11)
    assert bound.value >= erub(kappa=10.0, alpha=alpha, budget=budget, variances=schedule**2) * (1 - 1e-15)
    assert bound.unlearned == pytest.approx(0.9**25, rel=1e-11)
    assert bound.value == pytest.approx(bound.unlearned + bound.noise, rel=1e-15)


@settings(max_examples=examples(80))
@given(data=st.data())
def test_it_dominates_the_exact_risk_of_quadratics(data: st.DataObject) -> None:
    """Any curvature in [mu, M], any step up to the limit, any noise, with and without a ridge by its proximal step."""
    smallest = data.draw(st.floats(0.01, 1.0))
    eigenvalues = np.array([smallest, *data.draw(st.lists(st.floats(smallest, 1.0), max_size=4))])
    ridge = data.draw(st.sampled_from([0.0, 0.05, 0.7, 1.3]))
    start = np.array(data.draw(st.lists(st.floats(-2.0, 2.0), min_size=eigenvalues.size, max_size=eigenvalues.size)))
    largest = 2.0 / (1.0 - ridge) if ridge < 1.0 else 40.0
    steps = data.draw(st.integers(1, 20))
    sizes = data.draw(st.lists(st.floats(0.01, 1.0), min_size=steps, max_size=steps))
    run = _run(
        steps=steps,
        step_size=[0.999 * largest * size for size in sizes],
        noise_multiplier=data.draw(st.lists(st.just(0.0) | st.floats(0.01, 300.0), min_size=steps, max_size=steps)),
        loss={"kind": "strongly_convex", "strong_convexity": smallest, "smoothness": 1.0, "gradient_bound": 2.0},
        regulariser={"kind": "ridge", "strength": ridge} if ridge else None,
    )
    gap = max(exact_risk(eigenvalues, start, [], [], ridge), 1e-6)
    bound = excess_risk_bound(run, dimension=eigenvalues.size, initial_gap=gap)
    assert exact_risk(eigenvalues, start, run.step_sizes, run.noise_stds, ridge) <= bound.value


def test_it_is_met_by_one_mode_of_greatest_curvature() -> None:
    """lam = mu = M: the gap shrinks by (1 - lam step)^2 = c and the noise adds M / 2 tau^2, in one dimension exactly."""
    run = _run(loss={"kind": "strongly_convex", "strong_convexity": 0.5, "smoothness": 0.5, "gradient_bound": 2.0})
    exact = exact_risk([0.5], [2.0], run.step_sizes, run.noise_stds)
    assert excess_risk_bound(run, dimension=1, initial_gap=1.0).value == pytest.approx(exact, rel=1e-9)


def test_a_ridge_makes_a_convex_loss_strongly_convex() -> None:
    softmax = {"kind": "softmax_regression", "feature_norm": 1.0}
    ridge = _run(loss=softmax, regulariser={"kind": "ridge", "strength": 0.1})
    bound = excess_risk_bound(ridge, **PUBLIC)
    # Step 1.5 / 1.15 on an objective that is 0.6-smooth and 0.1-strongly convex.
    kept = 1 - 0.1 * (1.5 / 1.15) * (2 - 0.6 * 1.5 / 1.15)
    assert bound.unlearned == pytest.approx(kept**25, rel=1e-9)
    std = 1.5 * 4.0 * math.sqrt(2.0) / 200 / 1.15
    assert bound.noise == pytest.approx(0.6 * 3 / 2 * std**2 * (1 - kept**25) / (1 - kept), rel=1e-9)
    two = [{"kind": "ridge", "strength": 0.06}, {"kind": "ridge", "strength": 0.04}]
    assert excess_risk_bound(ridge.replace(regulariser=two), **PUBLIC).value == pytest.approx(bound.value, rel=1e-12)
    weak = {"kind": "weakly_convex", "weak_convexity": 0.1, "smoothness": 1.0, "gradient_bound": 1.0}
    with pytest.raises(HypothesisError, match="no constant is known"):
        excess_risk_bound(_run(loss=weak, regulariser={"kind": "ridge", "strength": 0.1}), **PUBLIC)
    excess_risk_bound(_run(loss=weak, regulariser={"kind": "ridge", "strength": 0.11}), **PUBLIC)


def test_what_is_given_goes_before_what_follows_and_is_declared() -> None:
    unknown = _run(loss={"kind": "unknown", "gradient_bound": 2.0})
    given = excess_risk_bound(unknown, **PUBLIC, pl_constant=0.1, smoothness=1.0)
    assert given.value == excess_risk_bound(_run(), **PUBLIC).value
    evidence = {finding.name: finding.evidence for finding in given.findings}
    assert evidence["PL constant"] == evidence["smoothness"] == evidence["initial gap"] == evidence["dimension"] == "declared"
    softmax = {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"}
    enforced = excess_risk_bound(_run(loss=softmax, regulariser={"kind": "ridge", "strength": 0.1}), **PUBLIC)
    (smoothness,) = (finding for finding in enforced.findings if finding.name == "smoothness")
    assert smoothness.evidence == "declared"  # anybody can type a run
    assert "(the run says: enforced by the code that trains)" in enforced.explain()
    steeper = excess_risk_bound(_run(), **PUBLIC, pl_constant=0.2)
    assert steeper.value < excess_risk_bound(_run(), **PUBLIC).value


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"batches": {"design": "cyclic", "size": 50}}, "full batches"),
    ({"batches": {"design": "poisson", "size": 200}}, "full batches"),
    ({"batches": {"design": "without_replacement", "size": 50}}, "full batches"),
    ({"noise_budget": 0.5, "release": "all"}, "noise set in advance"),
    ({"regulariser": {"kind": "l1", "strength": 0.1}}, "no regulariser but ridges; there is l1"),
    ({"regulariser": [{"kind": "ridge", "strength": 0.1}, {"kind": "ball", "radius": 9.0}]}, "there is ball"),
    ({"clip_norm": 1.0}, "clipping is active"),
    ({"loss": {"kind": "unknown", "gradient_bound": 1.0}}, "smooth mean loss"),
    ({"loss": {"kind": "convex", "smoothness": 1.0, "gradient_bound": 1.0}}, "no constant is known"),
    ({"loss": {"kind": "smooth", "smoothness": 1.0, "gradient_bound": 1.0}}, "no constant is known"),
    ({"step_size": 2.0000001}, "step size <= 2/smoothness = 2"),
    ({"step_size": [1.0] * 24 + [2.5]}, "the largest is 2.5"),
    ({"pl_constant": 1.1}, "at most the smoothness 1"),
]


@pytest.mark.parametrize(("changes", "reason"), BROKEN)
def test_each_hypothesis_that_breaks_is_named(changes: dict[str, Any], reason: str) -> None:
    fields = dict(changes)
    steep = fields.pop("pl_constant", None)
    with pytest.raises(HypothesisError, match="no bound of the excess risk") as caught:
        excess_risk_bound(_run(**fields), **PUBLIC, pl_constant=steep)
    assert reason in caught.value.what
    assert caught.value.source
    assert caught.value.remedy


def test_a_clip_norm_that_never_acts_is_no_clipping() -> None:
    """Softmax gradients stay below sqrt 2."""
    loss = {"kind": "softmax_regression", "feature_norm": 1.0}
    ridge = {"kind": "ridge", "strength": 0.1}
    idle = excess_risk_bound(_run(loss=loss, regulariser=ridge, clip_norm=2.0), **PUBLIC)
    assert idle.noise == pytest.approx(2.0 * excess_risk_bound(_run(loss=loss, regulariser=ridge), **PUBLIC).noise, rel=1e-9)
    with pytest.raises(HypothesisError, match="clipping is active"):
        excess_risk_bound(_run(loss=loss, regulariser=ridge, clip_norm=1.4), **PUBLIC)


def test_steps_at_the_limit_very_long_runs_and_very_loud_ones_stay_bounds() -> None:
    assert 1.0 <= excess_risk_bound(_run(step_size=2.0), **PUBLIC).unlearned <= 1.0 + 1e-12
    silent = excess_risk_bound(_run(steps=20_000, noise_multiplier=0.0), **PUBLIC)
    assert 0 < silent.value <= 1e-299  # 0.1^20000 is below the range of doubles, and not 0
    loud = excess_risk_bound(_run(noise_multiplier=1e140), **PUBLIC)
    assert loud.value > 1e250
    assert not loud.worthwhile


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0, -1.0, True, "3"])
def test_bad_numbers_are_refused(bad: object) -> None:
    for name in ("dimension", "initial_gap", "pl_constant", "smoothness"):
        with pytest.raises(InputError, match=name):
            excess_risk_bound(_run(), **{**PUBLIC, name: bad})  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="no noise yet"):
        excess_risk_bound(_run(noise_multiplier=None), **PUBLIC)


def test_the_example_on_the_page_runs_and_prints_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    example, printed = re.findall(r"```(?:python)?\n(.*?)```", PAGE.read_text(), flags=re.S)
    exec(compile(example, "utility.md", "exec"), {})
    assert capsys.readouterr().out == printed
