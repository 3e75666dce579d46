"""One run with many canaries: published digits, laws of the test, and the estimate of membership attacks beside the bound."""

import math

import numpy as np
import pytest
from audit_truths import answers
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lethe.audit import AuditSetting, membership_inference
from lethe.audit.statistics.counts import Guesses, Rates
from lethe.audit.statistics.curves import GaussianCurve, gaussian_epsilon, printed_epsilon
from lethe.audit.statistics.one_run import gaussian_guesses_refuted, one_run, one_run_epsilon, one_run_gaussian_mu, one_run_p_value

SETTING = AuditSetting(delta=1e-5, neighbours="zero_out", threat="average_case")
GENERATOR = np.random.default_rng(0)
COINS = GENERATOR.random(400) < 0.5
SCORES = GENERATOR.normal(size=400) + 2 * COINS


def guesses(canaries: int, guessed: int, correct: int) -> Guesses:
    return Guesses(canaries=canaries, guessed=guessed, correct=correct)


@pytest.mark.parametrize(
    ("counts", "delta", "epsilon"),
    [
        (guesses(1000, 100, 90), 0.0, 1.630823),
        (guesses(1000, 100, 100), 1e-5, 3.465376),
        (guesses(10000, 500, 490), 1e-5, 3.313549),
        (guesses(1000, 1000, 500), 1e-5, 0.0),
    ],
)
def test_epsilons(counts: Guesses, delta: float, epsilon: float) -> None:
    assert one_run_epsilon(counts, delta=delta, level=0.05) == pytest.approx(epsilon, abs=1e-6)  # six decimals are given


@pytest.mark.parametrize(
    ("counts", "mu", "epsilon"),
    [
        (guesses(1000, 100, 90), 0.602504, 2.456405),
        (guesses(1000, 100, 100), 1.225533, 5.549028),
        (guesses(1000, 1000, 750), 0.460625, 1.818896),
        (guesses(10000, 500, 490), 1.047201, 4.617660),
    ],
)
def test_gaussian_mus(counts: Guesses, mu: float, epsilon: float) -> None:
    found = one_run_gaussian_mu(counts, level=0.05)
    assert found == pytest.approx(mu, abs=1e-6)  # six decimals are given
    assert gaussian_epsilon(found, 1e-5) == pytest.approx(epsilon, abs=1e-6)


counts = st.tuples(st.integers(1, 300), st.floats(0, 1), st.floats(0, 1)).map(
    lambda t: guesses(t[0], g := 1 + int(t[1] * (t[0] - 1)), int(t[2] * g))
)


@given(counts, st.floats(0, 6), st.floats(0, 0.02))
def test_the_p_value_against_the_printed_theorem(counts: Guesses, epsilon: float, delta: float) -> None:
    law = stats.binom(counts.guessed, math.exp(epsilon) / (1 + math.exp(epsilon)))
    v = counts.correct
    terms = [(law.cdf(v - 1) - law.cdf(v - i - 1)) / i for i in range(1, v + 1)]
    printed = law.sf(v - 1) + 2 * counts.canaries * delta * max(terms, default=0.0)
    assert one_run_p_value(counts, epsilon=epsilon, delta=delta) == pytest.approx(min(printed, 1.0), rel=1e-8, abs=1e-13)


@given(counts, st.floats(0, 0.3))
def test_everything_below_the_bound_is_refuted(counts: Guesses, delta: float) -> None:
    """Also where 2 m delta is above 1 and the p-value is not monotone."""
    bound = one_run_epsilon(counts, delta=delta, level=0.05)
    for share in np.linspace(0, 1, 7):
        if bound > 0:
            assert one_run_p_value(counts, epsilon=share * bound, delta=delta) <= 0.05
    assert one_run_p_value(counts, epsilon=bound + 1e-8, delta=delta) > 0.05 * (1 - 1e-6)


@given(counts)
def test_more_right_guesses_prove_more(counts: Guesses) -> None:
    if counts.correct < counts.guessed:
        better = guesses(counts.canaries, counts.guessed, counts.correct + 1)
        assert one_run_epsilon(better, delta=1e-5, level=0.05) >= one_run_epsilon(counts, delta=1e-5, level=0.05) - 1e-9
        assert one_run_gaussian_mu(better, level=0.05) >= one_run_gaussian_mu(counts, level=0.05) - 1e-8


@given(counts, st.floats(0, 4), st.floats(0, 4))
def test_a_larger_mu_is_never_refuted_first(counts: Guesses, mu: float, more: float) -> None:
    if gaussian_guesses_refuted(counts, mu=mu + more, level=0.05):
        assert gaussian_guesses_refuted(counts, mu=mu, level=0.05)


def test_one_run_counts_by_hand() -> None:
    scores, coins = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0]), np.array([True, False, False, True, True, True])
    result = one_run(scores, coins, SETTING, guesses=[(2, 2)])
    assert result.counts == Guesses(canaries=6, guessed=4, correct=2)  # 5 and 4 as IN: one right; 0 and 1 as OUT: one right
    assert (result.kind, result.unit, result.selection) == ("certified", "canary", "guesses")
    assert one_run(SCORES, COINS, SETTING.model_copy(update={"curve": GaussianCurve()}), guesses=[(40, 40)]).kind == "conditional"


def test_several_numbers_of_guesses_share_the_level() -> None:
    alone = one_run(SCORES, COINS, SETTING.model_copy(update={"level": 0.025}), guesses=[(40, 40)]).epsilon
    both = one_run(SCORES, COINS, SETTING, guesses=[(40, 40), (1, 0)])
    assert both.epsilon == alone
    assert "Bonferroni" in both.rule


@pytest.mark.parametrize("curve", [None, GaussianCurve()])
def test_all_guesses_right_are_the_best(curve: GaussianCurve | None) -> None:
    setting = SETTING if curve is None else SETTING.model_copy(update={"curve": curve})
    blind, seeing = (
        one_run(scores, COINS, setting, guesses=[(20, 20), (50, 50)]) for scores in (GENERATOR.normal(size=400), SCORES + 9 * COINS)
    )
    assert blind.at_best == seeing.at_best == seeing.epsilon
    assert blind.epsilon < seeing.epsilon


def test_equal_scores_are_told_apart_neither_by_their_coins_nor_by_their_place() -> None:
    scores, drawn = np.array([1.0] * 99 + [0.0]), np.random.default_rng(1)
    right = [one_run(scores, drawn.random(100) < 0.5, SETTING, guesses=[(50, 0)]).counts.correct for _ in range(40)]  # type: ignore[union-attr]
    assert np.mean(right) == pytest.approx(25, abs=5 * 12.5**0.5 / 40**0.5)  # five standard errors
    # Members last, and scores that say nothing: taken in the order of the list, all of the first guesses would be right.
    coins = np.arange(24) >= 12  # too few to be called sorted
    counts = one_run(np.arange(24) % 2 * 1.0, coins, SETTING, guesses=[(6, 6)]).counts
    assert isinstance(counts, Guesses)
    assert 2 <= counts.correct <= 10


def test_what_is_said_of_a_membership_attack() -> None:
    probabilities, coins = answers(2, 300, 3.0, np.random.default_rng(0))
    found = membership_inference(probabilities, coins, SETTING, guesses=[(60, 60), (30, 0)], seeds=[5, 7])
    assert (found.bound.kind, found.bound.level, found.bound.unit, found.bound.seeds) == ("certified", 0.05, "canary", (5, 7))
    assert "600 canaries with a coin each" in found.bound.describe()
    assert found.bound == one_run(np.concatenate(probabilities), np.concatenate(coins), SETTING, guesses=[(60, 60), (30, 0)], seeds=[5, 7])
    assert 1.0 < found.bound.epsilon < 3.0
    for values, flags, estimate, printed in zip(probabilities, coins, found.estimates, found.printed, strict=True):
        assert (estimate.kind, estimate.level, estimate.unit) == ("point_estimate", None, "guess")
        assert any("not independent" in warning for warning in estimate.warnings)
        wrong = Rates(np.mean(values[~flags] >= 0.5), np.mean(values[flags] < 0.5))
        assert printed == pytest.approx(printed_epsilon(wrong, 1e-5), rel=1e-12)
        assert estimate.epsilon == pytest.approx(max(0.0, printed), rel=1e-12)


def test_a_guess_worse_than_chance_is_negative_as_printed_and_zero_as_a_result() -> None:
    flags = np.random.default_rng(2).random(100) < 0.5
    probabilities = np.where(flags, 0.4, 0.6) + np.arange(100) * 1e-4 * (1 - 2 * flags)
    found = membership_inference([probabilities], [flags], SETTING, guesses=[(10, 10)])
    assert found.printed == (-math.inf,)
    assert found.estimates[0].epsilon == found.bound.epsilon == 0.0
