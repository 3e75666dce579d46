"""Where the threshold may be: counting by hand, and what each rule leaves unused."""

import numpy as np
import pytest
from scipy import special

from lethe.audit import AuditSetting, Ranks, two_world
from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.curves import AnyMechanism, GaussianCurve
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split, ThresholdRule, best_threshold
from lethe.errors import InputError

SETTING = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="final_model")


def grid(size: int) -> np.ndarray:
    return special.ndtri((np.arange(size) + 0.5) / size)


def judge(rule: ThresholdRule, out: np.ndarray, inside: np.ndarray, level: float = 0.05):
    return rule.count_errors(out, inside, curve=AnyMechanism(), delta=1e-5, level=level)


def test_ranks_value() -> None:
    result = two_world(grid(1000), grid(1000) + 2, SETTING, rule=Ranks(ranks=(5, 20, 80)))
    assert result.epsilon == pytest.approx(2.997752, abs=1e-6)  # six decimals are given


def test_a_fixed_threshold_counts_by_hand() -> None:
    tally = judge(FixedThreshold(threshold=2.0), np.array([0.0, 1, 2, 3]), np.array([1.0, 2, 5])).tally
    assert tally == Tally(out_trials=4, false_positives=2, in_trials=3, false_negatives=1)


def test_ranks_count_by_hand_and_ties_are_misses() -> None:
    tally = judge(Ranks(ranks=(2,)), np.array([0.0, 3, 2, 1]), np.array([2.0, 2.5, 9])).tally
    assert tally == Tally(out_trials=4, false_positives=1, in_trials=3, false_negatives=1)


def test_one_rank_is_the_whole_level_and_two_are_half_each() -> None:
    out, inside = grid(200), grid(200) + 1
    one, two = judge(Ranks(ranks=(20,)), out, inside), judge(Ranks(ranks=(20, 1)), out, inside)
    assert one.rates == one.tally.upper_rates(0.05)
    assert two.rates == two.tally.upper_rates(0.025)


def test_the_best_threshold_is_the_best_by_search() -> None:
    generator = np.random.default_rng(2)
    out, inside = generator.normal(size=80), generator.normal(size=90) + 1.5
    found = best_threshold(out, inside, curve=AnyMechanism(), delta=1e-5, level=0.05)
    epsilons = [AnyMechanism().epsilon(Tally.at(t, out, inside).upper_rates(0.05), 1e-5) for t in np.concatenate([out, inside])]
    assert AnyMechanism().epsilon(Tally.at(found, out, inside).upper_rates(0.05), 1e-5) == pytest.approx(max(epsilons), rel=1e-12)


@pytest.mark.parametrize("rule", [Split(seed=4), MultiSplit(seed=4, splits=4)])
def test_a_split_judges_on_the_other_half(rule: ThresholdRule) -> None:
    generator = np.random.default_rng(3)
    out, inside = generator.normal(size=41), generator.normal(size=50) + 1
    tally = judge(rule, out, inside).tally
    assert (tally.out_trials, tally.in_trials) == (21, 25)
    assert judge(rule, out, inside) == judge(rule, out, inside)


def test_a_split_does_not_see_its_own_half() -> None:
    """Scores that all differ without any signal: chosen and judged on the same half they would always prove something."""
    generator = np.random.default_rng(5)
    found = [
        AnyMechanism().epsilon(judge(Split(seed=0), generator.normal(size=40), generator.normal(size=40)).rates, 0.0) for _ in range(200)
    ]
    assert np.count_nonzero(found) <= 20  # level 0.05 of 200 is 10


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    generator = np.random.default_rng(6)
    out, inside = generator.normal(size=60), generator.normal(size=60) + 2
    rule = MultiSplit(seed=7, splits=2)
    replayed = np.random.default_rng(7)
    each = []
    for _ in range(2):
        first, second = replayed.permutation(out), replayed.permutation(inside)
        threshold = best_threshold(first[:30], second[:30], curve=AnyMechanism(), delta=1e-5, level=0.025)
        each.append(AnyMechanism().epsilon(Tally.at(threshold, first[30:], second[30:]).upper_rates(0.025), 1e-5))
    assert each[0] != each[1]
    assert AnyMechanism().epsilon(judge(rule, out, inside).rates, 1e-5) == min(each)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="10 OUT runs"):
        judge(Ranks(ranks=(11,)), grid(10), grid(10))
    with pytest.raises(InputError, match="once"):
        Ranks(ranks=(3, 3))
    with pytest.raises(InputError, match="at least four"):
        judge(Split(seed=0), grid(3), grid(9))
    for wrong in ({"ranks": ()}, {"ranks": (0,)}, {"ranks": (1.5,)}):
        with pytest.raises(InputError):
            Ranks(**wrong)
    for wrong in (float("nan"), float("inf"), True, "1"):
        with pytest.raises(InputError):
            FixedThreshold(threshold=wrong)
    with pytest.raises(InputError):
        MultiSplit(seed=1, splits=0)


def test_every_rule_describes_itself() -> None:
    assert "0.5" in FixedThreshold(threshold=0.5).describe()
    assert "seed 3" in Split(seed=3).describe()
    assert "21" in MultiSplit(seed=3).describe()
    assert "5, 20" in Ranks(ranks=(5, 20)).describe()
    assert GaussianCurve().family == "Gaussian"
