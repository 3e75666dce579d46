"""From counts and scores to epsilon: published digits, printed formulas, laws, and the accountant on the other side."""

import math

import mpmath
import numpy as np
import pytest
from audit_truths import answers
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from lethe.audit import AuditSetting, Ranks, membership_inference, two_world
from lethe.audit.statistics.counts import Guesses, Rates, Tally, clopper_pearson_lower, clopper_pearson_upper, upper_table
from lethe.audit.statistics.curves import AnyMechanism, GaussianCurve, SampledGaussianCurve, gaussian_epsilon, printed_epsilon
from lethe.audit.statistics.one_run import one_run, one_run_epsilon, one_run_gaussian_mu, one_run_p_value
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split, best_threshold
from lethe.audit.statistics.scores import lira_offline, lira_online, rmia, scaled_confidence
from lethe.calculus.conversions import gdp_epsilon


@given(n=st.integers(1, 10**6), share=st.floats(0, 1), log_level=st.floats(-11.9, -0.31))
def test_the_end_is_just_outside_the_exact_quantile(n: int, share: float, log_level: float) -> None:
    k, level = int(share * (n - 1)), 10.0**log_level
    upper = clopper_pearson_upper(k, n, level)
    # At the end itself k or fewer successes have probability `level`, by the binomial law and not the beta law; a little further less.
    assert stats.binom.cdf(k, n, upper) <= level * (1 + 1e-12 * n**0.5)
    assert stats.binom.cdf(k, n, upper * (1 - 1e-8)) > level
    lower = clopper_pearson_lower(k + 1, n, level)
    assert stats.binom.sf(k, n, lower) <= level * (1 + 1e-12 * n**0.5)
    assert lower < (k + 1) / n <= 1


def test_forty_digits() -> None:
    with mpmath.workdps(40):
        for k, n, level in ((3, 50, 1e-9), (400, 1000, 0.025), (0, 10**6, 0.05), (90, 100, 1e-6)):
            upper = clopper_pearson_upper(k, n, level)
            # The tail beyond the end, by the regularised incomplete beta function; 1e-10 of the rate is under 1e-6 of the tail.
            tail = mpmath.betainc(k + 1, n - k, mpmath.mpf(upper), 1, regularized=True)
            assert level * (1 - mpmath.mpf(10) ** -6) <= tail <= level


def test_a_table_holds_every_end() -> None:
    assert upper_table(60, 0.05).tolist() == [clopper_pearson_upper(k, 60, 0.05) for k in range(61)]
    assert (clopper_pearson_upper(60, 60, 0.05), clopper_pearson_lower(0, 60, 0.05)) == (1.0, 0.0)


def rates_of(false_positives: int, out_trials: int, false_negatives: int, in_trials: int) -> Tally:
    return Tally(out_trials=out_trials, false_positives=false_positives, in_trials=in_trials, false_negatives=false_negatives)


@pytest.mark.parametrize(
    ("counts", "plug_in", "certified", "mu", "gaussian"),
    [
        (rates_of(5, 1000, 120, 1000), 5.170473, 4.301322, 3.341569, 19.192871),
        (rates_of(300, 1000, 320, 1000), 0.818296, 0.679635, 0.826963, 3.517677),
        (rates_of(0, 500, 0, 500), math.inf, 4.905584, None, 31.997408),
        (rates_of(500, 1000, 500, 1000), 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_values(counts: Tally, plug_in: float, certified: float, mu: float | None, gaussian: float) -> None:
    rates = counts.upper_rates(0.05)
    assert max(0.0, printed_epsilon(counts.observed_rates(), 1e-5)) == pytest.approx(plug_in, abs=1e-6)  # six decimals are given
    assert AnyMechanism().epsilon(rates, 1e-5) == pytest.approx(certified, abs=1e-6)
    assert GaussianCurve().epsilon(rates, 1e-5) == pytest.approx(gaussian, abs=1e-6)
    assert mu is None or GaussianCurve().mu(rates) == pytest.approx(mu, abs=1e-6)


@given(mu=st.floats(1e-3, 30), log_delta=st.floats(-12, -0.5))
def test_the_gaussian_epsilon_is_just_below_the_accountant_s(mu: float, log_delta: float) -> None:
    delta = 10.0**log_delta
    below, above = gaussian_epsilon(mu, delta), gdp_epsilon(mu, delta)
    assert below <= above
    assert below == pytest.approx(above, rel=1e-6, abs=1e-6)  # relative 1e-13 of a tail, over the slope of its logarithm


@given(mu=st.floats(0.1, 6), q=st.floats(0.05, 1), threshold=st.floats(-2, 4))
def test_exact_rates_give_back_mu(mu: float, q: float, threshold: float) -> None:
    false_positive = stats.norm.sf(threshold)
    false_negative = (1 - q) * stats.norm.cdf(threshold) + q * stats.norm.cdf(threshold - mu)
    found = SampledGaussianCurve(sampling_probability=q, steps=1).mu(Rates(false_positive, false_negative))
    # Lowered by 1e-12 (1 + mu), and rounding of 1e-16 in the rates, over q and the normal density at threshold - mu.
    assert found == pytest.approx(mu, abs=1e-11 + 1e-14 / (q * stats.norm.pdf(threshold - mu)))
    assert found <= mu + 1e-9


def test_every_step_sampled_is_gaussian_composition() -> None:
    curve, rates = SampledGaussianCurve(sampling_probability=1.0, steps=4), Rates(0.1, 0.2)
    assert curve.epsilon(rates, 1e-5) == pytest.approx(gaussian_epsilon(2 * GaussianCurve().mu(rates), 1e-5), abs=1e-9)  # rounding


@given(p=st.floats(1e-6, 0.999), r=st.floats(1e-6, 0.999), q=st.floats(1e-6, 0.999), s=st.floats(1e-6, 0.999))
def test_strength_orders_as_epsilon_does(p: float, r: float, q: float, s: float) -> None:
    first, second = Rates(p, r), Rates(q, s)
    for curve in (AnyMechanism(), GaussianCurve()):
        if curve.strength(first, 1e-5) <= curve.strength(second, 1e-5):
            assert curve.epsilon(first, 1e-5) <= curve.epsilon(second, 1e-5) + 1e-6  # rounding in the flat part near epsilon 0
    assert curve.strengths(np.array([p, q]), np.array([r, s]), 1e-5).shape == (2,)


WORLDS = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="final_model")
ANY = AnyMechanism()


def test_ranks_value() -> None:
    grid = special.ndtri((np.arange(1000) + 0.5) / 1000)
    assert two_world(grid, grid + 2, WORLDS, rule=Ranks(ranks=(5, 20, 80))).epsilon == pytest.approx(2.997752, abs=1e-6)  # six decimals


def test_rules_count_by_hand_and_ties_are_misses() -> None:
    fixed = FixedThreshold(threshold=2.0).count_errors(np.array([0.0, 1, 2, 3]), np.array([1.0, 2, 5]), WORLDS)
    assert fixed.tally == Tally(out_trials=4, false_positives=2, in_trials=3, false_negatives=1)
    ranks = Ranks(ranks=(2,)).count_errors(np.array([0.0, 3, 2, 1]), np.array([2.0, 2.5, 9]), WORLDS)
    assert ranks.tally == Tally(out_trials=4, false_positives=1, in_trials=3, false_negatives=1)


def test_the_best_threshold_is_the_best_by_search() -> None:
    generator = np.random.default_rng(2)
    out, inside = generator.normal(size=80), generator.normal(size=90) + 1.5
    found = best_threshold(out, inside, WORLDS)
    epsilons = [ANY.epsilon(Tally.at(t, out, inside).upper_rates(0.05), 1e-5) for t in np.concatenate([out, inside])]
    assert ANY.epsilon(Tally.at(found, out, inside).upper_rates(0.05), 1e-5) == pytest.approx(max(epsilons), rel=1e-12)


def test_a_split_does_not_see_its_own_half() -> None:
    """Scores that all differ without any signal: chosen and judged on the same half they would always prove something."""
    drawn = np.random.default_rng(5).normal(size=(200, 2, 40))
    found = [ANY.epsilon(Split(seed=0).count_errors(*worlds, WORLDS.model_copy(update={"delta": 0.0})).rates, 0.0) for worlds in drawn]
    assert np.count_nonzero(found) <= 20  # level 0.05 of 200 is 10


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    generator = np.random.default_rng(6)
    out, inside = generator.normal(size=60), generator.normal(size=60) + 2
    replayed, half = np.random.default_rng(7), WORLDS.model_copy(update={"level": 0.025})
    each = []
    for _ in range(2):
        first, second = replayed.permutation(out), replayed.permutation(inside)
        threshold = best_threshold(first[:30], second[:30], half)
        each.append(ANY.epsilon(Tally.at(threshold, first[30:], second[30:]).upper_rates(0.025), 1e-5))
    assert each[0] != each[1]
    assert ANY.epsilon(MultiSplit(seed=7, splits=2).count_errors(out, inside, WORLDS).rates, 1e-5) == min(each)


SETTING = AuditSetting(delta=1e-5, neighbours="zero_out", threat="average_case")
GENERATOR = np.random.default_rng(0)
COINS = GENERATOR.random(400) < 0.5
SCORES = GENERATOR.normal(size=400) + 2 * COINS


def guesses(canaries: int, guessed: int, correct: int) -> Guesses:
    return Guesses(canaries=canaries, guessed=guessed, correct=correct)


@pytest.mark.parametrize(
    ("counts", "delta", "epsilon"),
    [(guesses(1000, 100, 90), 0.0, 1.630823), (guesses(1000, 100, 100), 1e-5, 3.465376), (guesses(1000, 1000, 500), 1e-5, 0.0)],
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


def test_confidence_is_the_logit_of_the_probability_and_does_not_overflow() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 5))
    labels = np.arange(20) % 5
    probability = special.softmax(logits, axis=1)[np.arange(20), labels]
    assert scaled_confidence(logits, labels) == pytest.approx(special.logit(probability), rel=1e-10)  # cancellation near 1
    assert scaled_confidence([[1000.0, 0.0]], [0])[0] == 1000.0


def test_lira_is_a_ratio_of_normal_densities() -> None:
    generator = np.random.default_rng(1)
    observed, inside, out = generator.normal(size=4), generator.normal(size=(9, 4)) + 1, generator.normal(size=(8, 4))
    for pooled in (False, True):
        first = np.sqrt(inside.var(axis=0).mean()) if pooled else inside.std(axis=0)
        second = np.sqrt(out.var(axis=0).mean()) if pooled else out.std(axis=0)
        expected = stats.norm.logpdf(observed, inside.mean(axis=0), first) - stats.norm.logpdf(observed, out.mean(axis=0), second)
        assert lira_online(observed, inside, out, pooled_variance=pooled) == pytest.approx(expected, rel=1e-12)
    assert lira_offline([2.0], [[-1.0], [0.0], [2.0]])[0] == pytest.approx(-0.095107, abs=5e-7)  # published


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 10**6))
def test_rmia_counts_the_population(records: int, population: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, px, z, pz = (generator.uniform(0.01, 1.0, size) for size in (records, records, population, population))
    marginal = lambda p: (1.3 * p + 0.7) / 2  # noqa: E731
    expected = ((x / marginal(px))[:, None] / (z / marginal(pz)) >= 1.0).mean(axis=1)
    assert rmia(x, px, z, pz) == pytest.approx(expected, abs=1e-12)
