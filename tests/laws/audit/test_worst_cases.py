"""Validity where it is hardest: equal scores, few answers, few trials, events of probability delta, and every rule that can certify."""

from typing import Any

import numpy as np
import pytest
from audit_truths import Generator, Worlds, assert_invalid, assert_powerful, assert_valid, laplace, projected_walk_epsilon, repeated
from how_many import by_night, examples

from lethe.audit import AuditSetting, Ranks, two_world
from lethe.audit.games.verdict import usual_guesses, usual_ranks
from lethe.audit.statistics.curves import SampledGaussianCurve
from lethe.audit.statistics.one_run import one_run
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split, ThresholdRule
from lethe.calculus.sampled.gaussian import sampled_gaussian

KEPT = float(np.e / (1.0 + np.e))
"""How often randomised response with epsilon = 1 tells the truth."""
# A large level and few trials, where a wrong quantile, a shifted count or a lost factor shows most.
LEVEL, RUNS = 0.4, 50
RULES: dict[str, ThresholdRule] = {
    "fixed": FixedThreshold(threshold=0.5),
    "split": Split(seed=0),
    "several splits": MultiSplit(seed=0, splits=3),
    "one rank": Ranks(ranks=(20,)),
    "usual ranks": usual_ranks(RUNS),
}


def at(delta: float, level: float = LEVEL) -> AuditSetting:
    return AuditSetting(delta=delta, level=level, neighbours="replace_one", threat="final_model")


def response(generator: Generator) -> Worlds:
    """Randomised response: two answers, so that nearly all scores are tied. Epsilon is 1 at delta 0."""
    return np.where(generator.random(RUNS) < KEPT, 0.0, 1.0), np.where(generator.random(RUNS) < KEPT, 1.0, 0.0)


def rounded(generator: Generator) -> Worlds:
    """The difference of two geometric numbers, shifted by 1: the discrete Laplace mechanism, with epsilon = 1."""
    out, inside = ((generator.geometric(1 - np.exp(-1), (2, RUNS)) * [[1.0], [-1.0]]).sum(axis=0) for _ in range(2))
    return out, inside + 1.0


def revealing(generator: Generator) -> Worlds:
    """Randomised response that says which world it is with probability 0.1: epsilon = 1 at delta = 0.1, and infinite at 0."""
    out, inside = response(generator)
    return np.where(generator.random(RUNS) < 0.1, -9.0, out), np.where(generator.random(RUNS) < 0.1, 9.0, inside)


def deaf(generator: Generator) -> Worlds:
    """Two answers that do not depend on the record: epsilon is 0."""
    return (generator.random(RUNS) < 0.5) * 1.0, (generator.random(RUNS) < 0.5) * 1.0


MECHANISMS: dict[str, tuple[Any, float, float]] = {
    "Laplace": (lambda generator: laplace(generator, RUNS), 0.0, 1.0),
    "randomised response": (response, 0.0, 1.0),
    "discrete Laplace": (rounded, 0.0, 1.0),
    "an event of probability delta": (revealing, 0.1, 1.0),
    "nothing": (deaf, 0.0, 0.0),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_rule_keeps_its_level(rule: str, mechanism: str) -> None:
    draw, delta, truth = MECHANISMS[mechanism]
    times = examples(250 if rule == "several splits" else 500)
    epsilons = repeated(lambda g: two_world(*draw(g), at(delta), rule=RULES[rule]).epsilon, times=times, seed=len(rule + mechanism))
    assert_valid(epsilons, truth, level=LEVEL)


def test_an_event_of_probability_delta_needs_its_delta() -> None:
    """With ten times the runs that event alone certifies more than 1, unless delta is taken off."""

    def certified(generator: Generator, delta: float) -> float:
        worlds = np.concatenate([revealing(generator) for _ in range(10)], axis=1)
        return two_world(*worlds, at(delta), rule=FixedThreshold(threshold=5.0)).epsilon

    assert_invalid(repeated(lambda g: certified(g, 0.0), times=100, seed=2), 1.0, level=LEVEL)
    assert_valid(repeated(lambda g: certified(g, 0.1), times=100, seed=2), 1.0, level=LEVEL)


def canaries(generator: Generator, count: int, *, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Randomised response about each coin, and all coins with probability delta: epsilon = 1 at delta, the worst there is."""
    coins = generator.random(count) < 0.5
    said = np.where(generator.random(count) < KEPT, coins, ~coins)
    return (coins if generator.random() < delta else said) * 1.0, coins


def epsilon_of(generator: Generator, count: int, guesses: list[tuple[int, int]], delta: float, level: float = LEVEL) -> float:
    scores, coins = canaries(generator, count, delta=delta)
    if np.ptp(scores) == 0.0:  # few canaries may all be given the same answer, which says nothing and is refused
        return 0.0
    return one_run(scores, coins, at(delta, level), guesses=guesses).epsilon


@pytest.mark.sampled(2)
@pytest.mark.parametrize("delta", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(
    ("count", "guesses"),
    [
        (4, [(2, 2)]),  # all in one world in one of eight
        (4, usual_guesses(4)),
        (20, [(10, 10)]),
        (20, [(0, 5)]),
        (60, [(5, 0)]),
        (60, usual_guesses(60)),
    ],
)
def test_one_run_keeps_its_level(count: int, guesses: list[tuple[int, int]], delta: float) -> None:
    epsilons = repeated(lambda g: epsilon_of(g, count, guesses, delta), times=examples(500), seed=count + len(guesses))
    assert_valid(epsilons, 1.0, level=LEVEL)


def test_one_run_uses_its_level() -> None:
    epsilons = repeated(lambda g: epsilon_of(g, 60, [(30, 30)], 0.0), times=500, seed=3)
    assert_valid(epsilons, 1.0, level=LEVEL)
    assert np.mean(epsilons > 1.0) > 0.1


def test_an_event_for_all_coins_needs_the_term_with_delta() -> None:
    """All coins are told once in ten runs; at delta = 0 each of those certifies far too much, more often than a level of 0.01 allows."""
    refuted = repeated(
        lambda g: one_run(*canaries(g, 60, delta=0.1), at(0.0, 0.01), guesses=[(20, 20)]).epsilon, times=examples(500), seed=4
    )
    assert_invalid(refuted, 1.0, level=0.01)
    assert_valid(repeated(lambda g: epsilon_of(g, 60, [(20, 20)], 0.1, 0.01), times=examples(500), seed=4), 1.0, level=0.01)


def sampled(generator: Generator, steps: int) -> Worlds:
    """The steps of two runs of a sampled Gaussian, q = 0.3 and mu = 1.5, as whoever sees every gradient has them."""
    return generator.normal(size=steps), generator.normal(size=steps) + 1.5 * (generator.random(steps) < 0.3)


def test_a_sampled_gaussian_seen_by_its_steps() -> None:
    """Its mu, conditional on that family; and what is certified of one step, when nothing is assumed."""
    curve, rule = SampledGaussianCurve(sampling_probability=0.3, steps=1), FixedThreshold(threshold=1.2)
    truth = sampled_gaussian(0.3, [1 / 1.5], "add_or_remove", "poisson").epsilon(1e-3)
    mus = repeated(
        lambda g: curve.mu(rule.count_errors(*sampled(g, 400), at(1e-3).model_copy(update={"curve": curve})).rates),
        times=examples(500),
        seed=6,
    )
    certified = repeated(lambda g: two_world(*sampled(g, 400), at(1e-3), rule=rule).epsilon, times=examples(500), seed=7)
    assert_valid(mus, 1.5, level=LEVEL)
    assert_valid(certified, truth, level=LEVEL)
    assert mus.mean() > 0.9


def test_the_projected_walk_as_published() -> None:
    """Four audits of 20000 + 20000 walks of 100 steps came to 1.634, 1.563, 1.571 and 1.605; the truth is 1.763475."""
    truth = projected_walk_epsilon(steps=100, diameter=1.0, shift=0.05, noise_std=0.2, start=0.5, delta=1e-5)

    def walk(generator: Generator, shift: float) -> np.ndarray:
        place = np.full(20_000, 0.5)
        for _ in range(100):
            place = np.clip(place + shift + 0.2 * generator.normal(size=20_000), 0.0, 1.0)
        return place

    epsilons = repeated(
        lambda g: two_world(walk(g, 0.0), walk(g, 0.05), at(1e-5, 0.05), rule=Split(seed=0)).epsilon, times=4 if by_night() else 2, seed=8
    )
    assert_valid(epsilons, truth)
    assert_powerful(epsilons, 1.593, of=4)
