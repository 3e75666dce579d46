"""Many audits of mechanisms whose epsilon is known: what is called certified is wrong no more often than its level, and not feeble."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from audit_truths import (
    Generator,
    answers,
    assert_invalid,
    assert_powerful,
    assert_valid,
    canaries,
    gaussian,
    laplace,
    linear_last_iterate_epsilon,
    repeated,
)
from how_many import by_night, examples
from scipy import stats

from lethe.audit import AuditSetting, Ranks, membership_inference, two_world
from lethe.audit.statistics.counts import Guesses, Tally
from lethe.audit.statistics.curves import AnyMechanism, GaussianCurve, TradeOffCurve, sampled_epsilon
from lethe.audit.statistics.lower_bounds import credible, point_estimate
from lethe.audit.statistics.one_run import one_run, one_run_epsilon
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split, ThresholdRule, best_threshold
from lethe.calculus.conversions import gdp_mu
from lethe.calculus.sampled.gaussian import sampled_gaussian

MEMBERS = AuditSetting(delta=1e-5, neighbours="zero_out", threat="average_case")


def at(delta: float, level: float = 0.05, curve: TradeOffCurve | None = None) -> AuditSetting:
    assumed = AnyMechanism() if curve is None else curve
    return AuditSetting(delta=delta, level=level, curve=assumed, neighbours="add_or_remove", threat="final_model")


# The table these means are from has 2000 repetitions, 300 for the credible limit.
LAPLACE = [
    (FixedThreshold(threshold=1.0), 0.808),
    (Ranks(ranks=tuple(range(25, 401, 25))), 0.748),
    (Split(seed=0), 0.654),
]
PAIRS = [(25 * k, 25 * k) for k in range(1, 21)]


def audited(
    rule: ThresholdRule,
    mechanism: Callable[[Generator], Any],
    *,
    delta: float = 0.0,
    curve: TradeOffCurve | None = None,
    level: float = 0.05,
):
    return lambda generator: two_world(*mechanism(generator), at(delta, level, curve), rule=rule).epsilon


def one_laplace_run(generator: Generator, pairs: list[tuple[int, int]]) -> float:
    coins = generator.random(1000) < 0.5
    return one_run(canaries(generator.laplace(size=1000), coins, 1.0), coins, at(0.0), guesses=pairs).epsilon


def test_one_rank_uses_its_whole_level() -> None:
    """The false-positive rate above the r-th largest score exceeds its bound with probability alpha / 2: exactly, and not less."""

    def exceeded(generator: Generator) -> float:
        out = generator.laplace(size=40)
        threshold = np.sort(out)[-8]
        truth = 0.5 * np.exp(-threshold) if threshold > 0 else 1 - 0.5 * np.exp(threshold)
        return float(truth > Tally(out_trials=40, false_positives=7, in_trials=2, false_negatives=0).upper_rates(0.4).false_positive)

    times = examples(4000)
    missed = repeated(exceeded, times=times, seed=3).mean()
    assert missed == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / times) ** 0.5)  # four standard errors


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("pairs", "mean"), [([(100, 0)], 0.613), (PAIRS, 0.780)])
def test_laplace_one_run(pairs: list[tuple[int, int]], mean: float) -> None:
    epsilons = repeated(lambda generator: one_laplace_run(generator, pairs), times=examples(600 if len(pairs) == 1 else 150), seed=5)
    assert_valid(epsilons, 1.0)
    assert_powerful(epsilons, mean, of=2000)


def test_credible_limits() -> None:
    rule = FixedThreshold(threshold=1.0)
    epsilons = repeated(lambda g: credible(*laplace(g, 1000), at(0.0), rule=rule).epsilon, times=300 if by_night() else 30, seed=6)
    assert_powerful(epsilons, 0.879, of=300)
    assert np.mean(epsilons > 1.0) < 0.12  # a frequency near 0.05, which nothing promises


class TestWhatIsNotValid:
    """Rules that public code uses: each must be caught, or the tests above could not fail."""

    def test_plug_in(self) -> None:
        fixed = repeated(lambda g: point_estimate(*laplace(g, 1000), at(0.0), unit="run", threshold=1.0).epsilon, times=300, seed=7)
        assert_invalid(fixed, 1.0)
        assert np.mean(fixed > 1.0) == pytest.approx(0.509, abs=0.1)  # three standard errors
        chosen = repeated(lambda g: point_estimate(*laplace(g, 1000), at(0.0), unit="run").epsilon, times=50, seed=7)
        assert_invalid(chosen, 1.0)
        assert np.mean(chosen > 1.0) > 0.7

    @pytest.mark.nightly(by_day="test_plug_in")
    def test_the_best_threshold_of_the_same_scores(self) -> None:
        def audit(generator: Generator) -> float:
            out, inside = laplace(generator, 1000)
            threshold = best_threshold(out, inside, at(0.0))
            return AnyMechanism().epsilon(Tally.at(threshold, out, inside).upper_rates(0.05), 0.0)

        epsilons = repeated(audit, times=2000, seed=8)
        assert_invalid(epsilons, 1.0)
        assert_powerful(epsilons, 0.894, of=2000)

    def test_a_gaussian_formula_on_another_mechanism(self) -> None:
        rule, curve = FixedThreshold(threshold=1.0), GaussianCurve()
        epsilons = repeated(
            audited(rule, lambda generator: laplace(generator, 1000), delta=1e-5, curve=curve), times=examples(100), seed=10
        )
        assert (epsilons > 1.0).all()
        assert epsilons.mean() == pytest.approx(3.063, abs=0.1)

    def test_many_guesses_on_one_model(self) -> None:
        """1000 scores of one run share its noise: counted as trials they certify an epsilon that the mechanism does not have."""

        def audit(generator: Generator) -> float:
            out, inside = (
                generator.laplace() + 0.01 * generator.normal(size=1000),
                1 + generator.laplace() + 0.01 * generator.normal(size=1000),
            )
            return two_world(out, inside, at(0.0), rule=FixedThreshold(threshold=1.0)).epsilon

        assert_invalid(repeated(audit, times=examples(300), seed=11), 1.0)


# Epsilon, n, and the means of Clopper-Pearson after a split, of the Gaussian formula at mu / 2, and of one run with 2n canaries and n / 5
# guesses, without and with a Gaussian curve. How many audits each mean is of is not given; 100 fits their spread.
POWER = [
    (1.0, 1000, 0.05, 0.39, 0.20, 0.26),
    (4.0, 100, 0.19, 1.50, 0.60, 0.88),
    (4.0, 1000, 0.95, 3.18, 1.38, 2.02),
    (8.0, 100, 0.87, 4.90, 1.56, 2.46),
    (8.0, 1000, 2.28, 7.00, 2.86, 4.36),
    (1.0, 10000, 0.22, 0.80, 0.40, 0.52),
    (4.0, 10000, 1.71, 3.74, 1.63, 2.19),
    (8.0, 10000, 3.44, 7.67, 3.28, 4.59),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("row", POWER)
def test_gaussian_power(row: tuple[float, int, float, float, float, float]) -> None:
    truth, runs, split, formula, steinke, curve = row
    mu, times = gdp_mu(truth, 1e-5), examples(200 if runs < 10_000 else 60)

    def one(family: TradeOffCurve | None) -> Callable[[Generator], float]:
        def audit(generator: Generator) -> float:
            coins = generator.random(2 * runs) < 0.5
            scores = canaries(generator.normal(size=2 * runs), coins, mu)
            return one_run(scores, coins, at(1e-5, curve=family), guesses=[(runs // 5, 0)]).epsilon

        return audit

    def worlds(generator: Generator) -> Any:
        return gaussian(generator, runs, mu)

    for audit, mean in (
        (audited(Split(seed=0), worlds, delta=1e-5), split),
        (audited(FixedThreshold(threshold=mu / 2), worlds, delta=1e-5, curve=GaussianCurve()), formula),
        (one(None), steinke),
        (one(GaussianCurve()), curve),
    ):
        epsilons = repeated(audit, times=times, seed=12)
        assert_valid(epsilons, truth)
        assert_powerful(epsilons, mean, of=100)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("rule", "mean"), [*LAPLACE, (MultiSplit(seed=0), 0.654)])
def test_laplace_two_worlds(rule: ThresholdRule, mean: float) -> None:
    # Many splits take long, and their median is hardly ever above the truth.
    times = (500 if by_night() else 30) if isinstance(rule, MultiSplit) else examples(2000)
    epsilons = repeated(audited(rule, lambda generator: laplace(generator, 1000)), times=times, seed=13)
    assert_valid(epsilons, 1.0)
    assert_powerful(epsilons, mean, of=2000)


def test_a_sampled_linear_run() -> None:
    truth = linear_last_iterate_epsilon(steps=50, sampling_probability=0.1, noise_multiplier=0.6, delta=1e-5)
    noise = 0.6 * 50**0.5

    def worlds(generator: Generator) -> Any:
        return noise * generator.normal(size=500), noise * generator.normal(size=500) + generator.binomial(50, 0.1, size=500)

    for rule in (FixedThreshold(threshold=4.0), Split(seed=0), MultiSplit(seed=0, splits=5), Ranks(ranks=(10, 50, 100))):
        times = examples(120 if isinstance(rule, MultiSplit) else 400)
        assert_valid(repeated(audited(rule, worlds, delta=1e-5), times=times, seed=15), truth)


def test_a_mechanism_at_its_bound_in_one_run() -> None:
    """Randomised response with epsilon = 1: the guesses are Bin(r, e / (1 + e)) exactly, so the level is all used up."""
    keep = np.e / (1 + np.e)
    found = cache(lambda correct: one_run_epsilon(Guesses(canaries=200, guessed=200, correct=correct), delta=0.0, level=0.05))
    epsilons = repeated(lambda generator: found(int(generator.binomial(200, keep))), times=20_000, seed=16)
    assert_valid(epsilons, 1.0)
    assert 0.02 < np.mean(epsilons > 1.0) <= 0.055  # the lattice of counts leaves some of 0.05 over


def test_the_bound_keeps_its_level_over_several_models_and_the_estimate_keeps_none() -> None:
    """Truth 1, level 0.05, three models of 200 candidates together: at most 5 in 100 bounds above it, and half of the estimates."""
    generator, audits, above, printed_above = np.random.default_rng(3), examples(400), 0, 0
    for _ in range(audits):
        probabilities, coins = answers(3, 200, 1.0, generator)
        found = membership_inference(probabilities, coins, MEMBERS, guesses=[(150, 150)])
        above += found.bound.epsilon > 1.0
        printed_above += np.mean(found.printed) > 1.0
    assert stats.binomtest(above, audits, 0.05, alternative="greater").pvalue > 1e-3
    assert above > 0  # it is not so loose that nothing could fail
    assert printed_above > 0.3 * audits


@pytest.mark.parametrize(
    ("mu", "q", "steps"),
    [
        (1.0, 0.5, 1),
        (3.0, 0.001, 10),
        pytest.param(0.5, 0.1, 1000, marks=pytest.mark.nightly(by_day="the same test of fewer steps")),
    ],
)
def test_sampled_composition_is_just_below_the_accountant_s(mu: float, q: float, steps: int) -> None:
    below = sampled_epsilon(mu, q, steps, 1e-5)
    above = sampled_gaussian(q, [1 / mu] * steps, "add_or_remove", "poisson").epsilon(1e-5)
    # Two discretisations from opposite sides: T / 2^23 of some 120 for this one at T = 1000.
    assert 0.997 * above <= below <= above
