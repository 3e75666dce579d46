"""Where the threshold may be: counting by hand, and what each rule leaves unused."""

import numpy as np
import pytest
from scipy import special

from lethe.audit import AuditSetting, Ranks, two_world
from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.curves import AnyMechanism
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split, ThresholdRule, best_threshold

SETTING = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="final_model")
ANY = AnyMechanism()


def grid(size: int) -> np.ndarray:
    return special.ndtri((np.arange(size) + 0.5) / size)


def test_ranks_value() -> None:
    result = two_world(grid(1000), grid(1000) + 2, SETTING, rule=Ranks(ranks=(5, 20, 80)))
    assert result.epsilon == pytest.approx(2.997752, abs=1e-6)  # six decimals are given


def test_rules_count_by_hand_and_ties_are_misses() -> None:
    fixed = FixedThreshold(threshold=2.0).count_errors(np.array([0.0, 1, 2, 3]), np.array([1.0, 2, 5]), SETTING)
    assert fixed.tally == Tally(out_trials=4, false_positives=2, in_trials=3, false_negatives=1)
    ranks = Ranks(ranks=(2,)).count_errors(np.array([0.0, 3, 2, 1]), np.array([2.0, 2.5, 9]), SETTING)
    assert ranks.tally == Tally(out_trials=4, false_positives=1, in_trials=3, false_negatives=1)


def test_the_best_threshold_is_the_best_by_search() -> None:
    generator = np.random.default_rng(2)
    out, inside = generator.normal(size=80), generator.normal(size=90) + 1.5
    found = best_threshold(out, inside, SETTING)
    epsilons = [ANY.epsilon(Tally.at(t, out, inside).upper_rates(0.05), 1e-5) for t in np.concatenate([out, inside])]
    assert ANY.epsilon(Tally.at(found, out, inside).upper_rates(0.05), 1e-5) == pytest.approx(max(epsilons), rel=1e-12)


@pytest.mark.parametrize("rule", [Split(seed=4), MultiSplit(seed=4, splits=4)])
def test_a_split_judges_on_the_other_half(rule: ThresholdRule) -> None:
    generator = np.random.default_rng(3)
    out, inside = generator.normal(size=41), generator.normal(size=50) + 1
    counted = rule.count_errors(out, inside, SETTING)
    assert (counted.tally.out_trials, counted.tally.in_trials) == (21, 25)
    assert counted == rule.count_errors(out, inside, SETTING)


def test_a_split_does_not_see_its_own_half() -> None:
    """Scores that all differ without any signal: chosen and judged on the same half they would always prove something."""
    drawn = np.random.default_rng(5).normal(size=(200, 2, 40))
    found = [ANY.epsilon(Split(seed=0).count_errors(*worlds, SETTING.model_copy(update={"delta": 0.0})).rates, 0.0) for worlds in drawn]
    assert np.count_nonzero(found) <= 20  # level 0.05 of 200 is 10


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    generator = np.random.default_rng(6)
    out, inside = generator.normal(size=60), generator.normal(size=60) + 2
    replayed, half = np.random.default_rng(7), SETTING.model_copy(update={"level": 0.025})
    each = []
    for _ in range(2):
        first, second = replayed.permutation(out), replayed.permutation(inside)
        threshold = best_threshold(first[:30], second[:30], half)
        each.append(ANY.epsilon(Tally.at(threshold, first[30:], second[30:]).upper_rates(0.025), 1e-5))
    assert each[0] != each[1]
    assert ANY.epsilon(MultiSplit(seed=7, splits=2).count_errors(out, inside, SETTING).rates, 1e-5) == min(each)
