"""From scores to a result: what is refused, what is warned of, what is said."""

from typing import Any

import numpy as np
import pytest

from lethe.audit import AuditSetting, Ranks, two_world
from lethe.audit.statistics.bayesian import bayesian_epsilon
from lethe.audit.statistics.counts import Guesses, Tally
from lethe.audit.statistics.curves import GaussianCurve, SampledGaussianCurve
from lethe.audit.statistics.lower_bounds import credible, one_run, point_estimate
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split
from lethe.errors import InputError

SETTING = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="final_model")
GENERATOR = np.random.default_rng(0)
OUT, IN = GENERATOR.normal(size=300), GENERATOR.normal(size=300) + 2
COINS = GENERATOR.random(400) < 0.5
SCORES = GENERATOR.normal(size=400) + 2 * COINS


def with_setting(**changes: Any) -> AuditSetting:
    return SETTING.model_copy(update=changes)


def test_two_worlds() -> None:
    result = two_world(OUT, IN, SETTING, rule=FixedThreshold(threshold=1.0), seeds=(1, 2))
    assert (result.kind, result.unit, result.selection, result.level, result.family) == ("certified", "run", "fixed", 0.05, None)
    assert result.counts == Tally.at(1.0, OUT, IN)
    assert result.seeds == (1, 2)
    assert 0 < result.epsilon < 5
    assert two_world(OUT, IN, with_setting(level=0.001), rule=FixedThreshold(threshold=1.0)).epsilon < result.epsilon


def test_another_curve_makes_it_conditional() -> None:
    result = two_world(OUT, IN, with_setting(curve=GaussianCurve()), rule=Split(seed=0))
    assert (result.kind, result.family) == ("conditional", "Gaussian")
    sampled = with_setting(curve=SampledGaussianCurve(sampling_probability=1.0, steps=3))
    steps = two_world(OUT, IN, sampled, rule=Ranks(ranks=(10, 30)), unit="step")
    assert (steps.kind, steps.unit) == ("conditional", "step")


def test_credible() -> None:
    result = credible(OUT, IN, SETTING, rule=FixedThreshold(threshold=1.0))
    assert (result.kind, result.level) == ("credible", 0.05)
    assert result.epsilon == bayesian_epsilon(Tally.at(1.0, OUT, IN), delta=1e-5, level=0.05)
    with pytest.raises(InputError, match="FixedThreshold or a Split"):
        credible(OUT, IN, SETTING, rule=MultiSplit(seed=0))
    with pytest.raises(InputError, match="assumes none"):
        credible(OUT, IN, with_setting(curve=GaussianCurve()), rule=Split(seed=0))


def test_a_point_estimate_is_warned_of() -> None:
    plain = point_estimate(OUT, IN, SETTING, unit="run", threshold=1.0)
    assert (plain.kind, plain.level, plain.warnings) == ("point_estimate", None, ())
    perfect = point_estimate(OUT, IN + 20, SETTING, unit="guess")
    assert perfect.epsilon == float("inf")
    assert len(perfect.warnings) == 3


def test_one_run_counts_by_hand() -> None:
    scores, coins = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0]), np.array([True, False, False, True, True, True])
    result = one_run(scores, coins, SETTING, guesses=[(2, 2)])
    assert result.counts == Guesses(canaries=6, guessed=4, correct=2)  # 5 and 4 as IN: one right; 0 and 1 as OUT: one right
    assert (result.kind, result.unit, result.selection) == ("certified", "canary", "guesses")
    assert one_run(SCORES, COINS, with_setting(curve=GaussianCurve()), guesses=[(40, 40)]).kind == "conditional"


def test_several_numbers_of_guesses_share_the_level() -> None:
    alone = one_run(SCORES, COINS, with_setting(level=0.025), guesses=[(40, 40)]).epsilon
    both = one_run(SCORES, COINS, SETTING, guesses=[(40, 40), (1, 0)])
    assert both.epsilon == alone
    assert "Bonferroni" in both.rule


@pytest.mark.slow
def test_equal_scores_are_not_told_apart_by_their_coins() -> None:
    scores, drawn = np.array([1.0] * 99 + [0.0]), np.random.default_rng(1)
    right = [one_run(scores, drawn.random(100) < 0.5, SETTING, guesses=[(50, 0)]).counts.correct for _ in range(200)]  # type: ignore[union-attr]
    assert np.mean(right) == pytest.approx(25, abs=5 * 12.5**0.5 / 200**0.5)  # five standard errors


def test_equal_scores_are_not_told_apart_by_their_place() -> None:
    """Members last, and scores that say nothing: taken in the order of the list, all of the first guesses would be right."""
    coins = np.arange(24) >= 12  # too few to be called sorted
    right = one_run(np.arange(24) % 2 * 1.0, coins, SETTING, guesses=[(6, 6)]).counts
    assert isinstance(right, Guesses)
    assert 2 <= right.correct <= 10


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"out_scores": np.ones(300)}, "all 300 scores are 1"),
        ({"out_scores": [1.0]}, "at least two"),
        ({"in_scores": [1.0, float("nan")]}, "finite"),
        ({"in_scores": [[1.0, 2.0]]}, "shape"),
        ({"in_scores": ["a", "b"]}, "needs"),
        ({"in_scores": [True, False]}, "needs"),
        ({"in_scores": [[1.0], [2.0, 3.0]]}, "needs"),
        ({"rule": 0.5}, "declared before"),
        ({"setting": None}, "setting"),
        ({"seeds": (1, 1)}, "twice"),
        ({"seeds": 1}, "seeds"),
        ({"seeds": (1.0,)}, "seeds"),
        ({"unit": "guess"}, "proves nothing"),
        ({"unit": "step"}, "proves nothing"),
        ({"unit": "canary", "setting": with_setting(curve=GaussianCurve())}, "proves nothing"),
    ],
)
def test_two_world_refuses(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        two_world(**{"out_scores": OUT, "in_scores": IN, "setting": SETTING, "rule": FixedThreshold(threshold=1.0), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"curve": "gaussian"},
        {"level": 0.0},
        {"level": 1e-13},
        {"level": 0.51},
        {"level": float("nan")},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"delta": True},
        {"neighbours": "edit"},
        {"threat": "oracle"},
        {"curves": GaussianCurve()},
    ],
)
def test_what_a_setting_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        AuditSetting(**{"delta": 1e-5, "neighbours": "add_or_remove", "threat": "final_model", **changes})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"included": COINS[:-1]}, "truth values"),
        ({"included": COINS.astype(int)}, "truth values"),
        ({"included": np.arange(400) < 330}, "fair coins"),
        ({"included": np.arange(400) < 200}, "1 of 399 coins differ"),
        ({"included": np.arange(400) % 2 == 0}, "399 of 399 coins differ"),
        ({"guesses": []}, "pairs"),
        ({"guesses": [(0, 0)]}, "1 to 400"),
        ({"guesses": [(300, 101)]}, "1 to 400"),
        ({"guesses": [(1.5, 0)]}, "whole"),
        ({"guesses": [5]}, "pairs"),
        ({"guesses": 5}, "pairs"),
        ({"setting": with_setting(curve=SampledGaussianCurve(sampling_probability=0.5, steps=2))}, "GaussianCurve"),
        ({"setting": {"delta": 1e-5}}, "setting"),
        ({"scores": np.zeros(400)}, "all 400"),
    ],
)
def test_one_run_refuses(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        one_run(**{"scores": SCORES, "included": COINS, "setting": SETTING, "guesses": [(40, 40)], **changes})


def test_runs_with_one_noise_are_noticed() -> None:
    for often in (30, 3):
        result = two_world(np.repeat(OUT[:100], often), IN, SETTING, rule=FixedThreshold(threshold=1.0))
        assert any("same noise" in warning for warning in result.warnings)
    assert not two_world(OUT, IN, SETTING, rule=FixedThreshold(threshold=1.0)).warnings
