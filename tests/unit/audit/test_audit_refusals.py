"""What an audit cannot use is refused by name: one table of calls, and the field or the remedy that the error names."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from audit_truths import failing

from lethe.audit import AuditConfig, AuditSetting, Claim, Ranks, TwoWorldGame, membership_inference, shadow_attack, two_world
from lethe.audit.config import OneRunGame
from lethe.audit.games.canaries import CanaryRun, mislabelled, replaced
from lethe.audit.games.shadow_models import draw_candidates
from lethe.audit.games.two_worlds import play
from lethe.audit.page import AuditPage
from lethe.audit.statistics.counts import Guesses, Rates, Tally, clopper_pearson_lower, clopper_pearson_upper
from lethe.audit.statistics.curves import GaussianCurve, SampledGaussianCurve, gaussian_epsilon, printed_epsilon
from lethe.audit.statistics.lower_bounds import credible
from lethe.audit.statistics.one_run import one_run, one_run_epsilon, one_run_gaussian_mu, one_run_p_value
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Split
from lethe.audit.statistics.scores import lira_offline, rmia, scaled_confidence
from lethe.errors import HypothesisError, InputError
from lethe.jobs.audit import AuditJob

NAN, INF = math.nan, math.inf
SETTING = AuditSetting(delta=1e-5, neighbours="add_or_remove", threat="final_model")
SAMPLED = SampledGaussianCurve(sampling_probability=0.1, steps=10)
GENERATOR = np.random.default_rng(0)
OUT, IN = GENERATOR.normal(size=300), GENERATOR.normal(size=300) + 2
COINS = GENERATOR.random(400) < 0.5
SCORES = GENERATOR.normal(size=400) + 2 * COINS
DATA = (np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 2]))
GOOD = Guesses(canaries=10, guessed=5, correct=5)
FLAGS, VALUES = np.arange(20) % 2 == 0, np.linspace(0.1, 0.9, 20)
NATURAL = SETTING.model_copy(update={"threat": "average_case"})
TARGET, SHADOWS = draw_candidates(60, 20, 2, seed=4)


def of(call: Callable[..., Any], **defaults: Any) -> Callable[..., Callable[[], Any]]:
    """The call with some of its arguments changed."""
    return lambda **changes: lambda: call(**{**defaults, **changes})


def setting(**changes: Any) -> AuditSetting:
    return SETTING.model_copy(update=changes)


worlds = of(two_world, out_scores=OUT, in_scores=IN, setting=SETTING, rule=FixedThreshold(threshold=1.0))
canaries = of(one_run, scores=SCORES, included=COINS, setting=SETTING, guesses=[(40, 40)])
members = of(membership_inference, probabilities=[VALUES], included=[FLAGS], setting=NATURAL, guesses=[(2, 2)])
config = of(AuditConfig, delta=1e-5)
claim = of(Claim, epsilon=1.0, delta=1e-5, neighbours="replace_one", release="last", source="a theorem")
page = of(AuditPage, subject="a trainer", canary="a record")
stated = of(AuditSetting, delta=1e-5, neighbours="add_or_remove", threat="final_model")
run = of(CanaryRun, data=(np.zeros(4),), positions=[0, 1], inside=[(1.0,), (2.0,)])
attack = of(
    shadow_attack,
    labels=np.arange(60) % 3,
    target=TARGET,
    shadows=SHADOWS,
    train=lambda candidates, seed: np.zeros((2, 20, 3)),
    learn=lambda logits, labels, included, seed: lambda others, classes: np.zeros((2, 20)),
    seeds=[1, 2, 3, 4],
)


played = of(play, game=TwoWorldGame(runs=2), seed=0)
one_run_of = of(
    CanaryRun(data=(np.zeros(4),), positions=[0, 1], inside=[(1.0,), (2.0,)]).play,
    train=lambda data, seed: 0,
    score=lambda model: [0.0, 1.0],
    seed=0,
)


def drawn(flags: int = 2, **changes: Any) -> Callable[[], Any]:
    return lambda: run(**changes)().drawn(np.arange(flags) == flags - 1)


def each(call: Callable[..., Callable[[], Any]], field: str, *values: Any, word: str | None = None) -> list[tuple[Callable[[], Any], str]]:
    """A case for each value of a field, which the error names."""
    return [(call(**{field: value}), field if word is None else word) for value in values]


def refused(*cases: tuple[Callable[[], Any], str]) -> Any:
    return pytest.mark.parametrize(("call", "word"), cases)


def counted(kind: type[Tally | Guesses], *counts: Any) -> Callable[[], Any]:
    return lambda: kind(**dict(zip(kind.model_fields, counts, strict=True)))


game, one = of(TwoWorldGame), of(OneRunGame)
p_value, epsilon_of = of(one_run_p_value, guesses=GOOD, epsilon=1.0, delta=0.0), of(one_run_epsilon, guesses=GOOD, delta=0.0, level=0.1)
upper, lower = (of(end, successes=1, trials=5, level=0.05) for end in (clopper_pearson_upper, clopper_pearson_lower))
candidates = of(draw_candidates, records=60, candidates=20, shadows=1, seed=0)
printed = of(printed_epsilon, rates=Rates(0.1, 0.1), delta=1e-5)
confidence = of(scaled_confidence, logits=[[1.0, 2.0]], labels=[0])


@refused(
    *each(config, "delta", 1.0, -1e-9, NAN, "1e-5", None),
    (config(game={"kind": "three_worlds"}), "did you mean 'two_world'|needs one of two_world, one_run"),
    (config(game={"kind": "two_world", "canaries": 5}), "canaries: unknown key"),
    *each(config, "level", 0.6, 0.0, NAN),
    *each(config, "seed", -1, 2**64 + 1, True),
    *each(game, "runs", 1, 2.0, 1_000_001, True),
    *each(game, "workers", 0, 1.5, "two", True),
    *each(one, "canaries", 3),
    *each(one, "guesses", (), 5, [(1, 2, 3)], [(1.5, 0)], [(0, 0)], [(-1, 2)]),
    *each(claim, "epsilon", -1.0, NAN, "1"),
    *each(page, "claim", 3, {"epsilon": 1.0}),
    *each(stated, "level", 0.0, 1e-13, 0.51, NAN),
)
def test_descriptions(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        call()


@refused(
    (counted(Tally, 5, 6, 5, 0), "false_positives"),
    (counted(Tally, 0, 0, 5, 0), "out_trials"),
    *((counted(Guesses, *counts), "guessed") for counts in ((10, 11, 3), (10, 0, 0), (10, True, 1), (10, 5.0, 1))),
    *((counted(Guesses, *counts), "correct|canaries") for counts in ((10, 5, 6), (0, 1, 1), (10, 5, -1))),
    *(case for end in (upper, lower) for case in each(end, "successes", -1, 6, 1.0, True)),
    *(case for end in (upper, lower) for case in each(end, "level", 0.0, 0.6, NAN, "a")),
    *each(upper, "trials", 0),
    *each(printed, "delta", -1e-9, 1.0, NAN, "0", True),
    *each(printed, "rates", (-0.1, 0.5), (0.5, 1.1), (NAN, 0.5), (True, 0.5), word="false_"),
    *each(of(gaussian_epsilon, delta=1e-5), "mu", -1.0, INF, NAN),
    (lambda: GaussianCurve().epsilon(Rates(0.1, 0.1), 0.0), "above 0"),
    (lambda: SAMPLED.model_copy(update={"sampling_probability": 0.5}).epsilon(Rates(0.1, 0.6), 0.0), "above 0"),
    *each(p_value, "epsilon", -1.0, NAN, INF, "1"),
    *each(epsilon_of, "level", 0.0, 0.7, NAN, True),
    *each(of(one_run_gaussian_mu, guesses=GOOD), "level", 0.0, 0.7, NAN, True),
    *each(of(Ranks), "ranks", (3, 3), (), (0,), (1.5,)),
    (worlds(rule=Ranks(ranks=(301,))), "300 OUT runs"),
    (worlds(rule=Split(seed=0), out_scores=OUT[:3]), "at least four"),
    (worlds(out_scores=np.ones(300)), "all 300 scores are 1"),
    (worlds(out_scores=[1.0]), "at least two"),
    (worlds(in_scores=[1.0, NAN]), "finite"),
    *each(worlds, "in_scores", ["a", "b"], [True, False], [[1.0], [2.0, 3.0]], word="needs"),
    *each(worlds, "rule", 0.5, word="declared before"),
    *each(worlds, "seeds", (1, 1), 1, (1.0,)),
    *each(worlds, "unit", "guess", "step", word="proves nothing"),
    (worlds(unit="canary", setting=setting(curve=GaussianCurve())), "proves nothing"),
    (lambda: credible(OUT, IN, SETTING, rule=MultiSplit(seed=0)), "FixedThreshold or a Split"),
    (lambda: credible(OUT, IN, setting(curve=GaussianCurve()), rule=Split(seed=0)), "assumes none"),
    *each(canaries, "included", COINS[:-1], COINS.astype(int), word="truth values"),
    *each(canaries, "included", np.arange(400) < 330, word="fair coins"),
    (canaries(included=np.arange(400) < 200), "1 of 399 coins differ"),
    (canaries(included=np.arange(400) % 2 == 0), "399 of 399 coins differ"),
    *each(canaries, "guesses", [], [(0, 0)], [(300, 101)], [(1.5, 0)], [5], 5),
    (canaries(setting=setting(curve=SAMPLED)), "GaussianCurve"),
    *each(canaries, "scores", np.zeros(400), word="all 400"),
    *each(members, "included", [], [FLAGS, FLAGS], [FLAGS[:19]], [FLAGS.astype(float)], [FLAGS | True], [FLAGS & False]),
    *each(members, "probabilities", [VALUES + 0.2], [VALUES - 0.2], [np.where(FLAGS, NAN, VALUES)]),
    *each(members, "setting", SETTING, word="average_case"),
    *each(confidence, "labels", [2], [-1], [0.0], [0, 1]),
    *each(confidence, "logits", [[1.0]], word="labels"),
    (lambda: lira_offline([1.0], [[2.0], [2.0]]), "same score"),
    (lambda: lira_offline([1.0], [[2.0]]), "two models"),
    (lambda: rmia([1.2], [0.5], [0.5], [0.5]), "probabilities"),
)
def test_statistics(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        call()


def test_misses_that_no_gaussian_allows_refute_the_sampling() -> None:
    tally = Tally(out_trials=1000, false_positives=100, in_trials=1000, false_negatives=100)
    with pytest.raises(HypothesisError, match=r"q = 0\.1"):
        SAMPLED.mu(tally.upper_rates(0.05))


@refused(
    (lambda: replaced(DATA, {4: (np.ones(3), 2)}), "position"),
    (lambda: replaced(DATA, {0: (np.ones(2), 2)}), "shape"),
    (lambda: replaced(DATA, {0: (np.ones(3),)}), "2 entries"),
    (lambda: replaced((DATA[0], DATA[1][:2]), {0: (np.ones(3), 1)}), "length"),
    (lambda: mislabelled(DATA, 0, classes=1), "classes"),
    (lambda: mislabelled(DATA, 3, classes=2), "label"),
    (lambda: mislabelled((DATA[0], DATA[0][:, 0] + 0.5), 0, classes=2), "label"),
    (drawn(positions=[0, 0]), "positions"),
    (drawn(inside=[(1.0,)]), "positions"),
    (drawn(positions=[0, 9]), "position"),
    (drawn(outside=[(1.0, 2.0)] * 2), "record"),
    *each(of(play, trial=lambda inside, number: 1.0, game=TwoWorldGame(runs=3)), "seed", -1, True, 0.5),
    (played(trial=failing), r"the training with seed \d+, with.* the record, raised ZeroDivisionError: of \d+\n  From: .*, line"),
    (played(trial=lambda inside, seed: "much"), "returned str; it needs a number"),
    (played(trial=lambda inside, seed: NAN), "finite"),
    (played(trial=lambda inside, seed: INF), "finite"),
    (played(trial=lambda inside, seed: 1.0, game=TwoWorldGame(runs=2, score_file="scores.jsonl")), "pickled"),
    (one_run_of(train=failing), "raised ZeroDivisionError"),
    (one_run_of(score=lambda model: 1.0), "scores"),
    (one_run_of(score=lambda model: [NAN, 1.0]), "finite"),
    *each(attack, "seeds", [1, 2, 3], [1, 2, 3, 3], [1, 2, 3, -4], [1, 2, 3, 4.0]),
    *((attack(train=lambda *_, shape=shape: np.zeros(shape)), "train") for shape in ((2, 19, 3), (20, 3))),
    (attack(train=lambda *_: np.full((2, 20, 3), NAN)), "finite"),
    (attack(learn=lambda *_: lambda others, classes: np.zeros((2, 19))), "attack"),
    (attack(shadows=[TARGET], seeds=[1, 2, 3]), "the target's"),
    *each(candidates, "records", 39),
    *each(candidates, "candidates", 1, 20.0),
    *each(candidates, "shadows", 0, True),
)
def test_games(call: Callable[[], Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        call()


def test_the_command_describes_the_same() -> None:
    subject = {"kind": "run", "run": "run.json"}
    assert AuditJob(subject=subject).config(1e-5) == AuditConfig(delta=1e-5)
    assert AuditJob(subject=subject, game="one_run").config(1e-5) == AuditConfig(delta=1e-5, game=OneRunGame())
    fields: dict[str, Any] = {"threat": "black_box", "canary": "blank", "level": 0.2, "conditional": False, "seed": 3}
    job = AuditJob(subject=subject, **fields, runs=7, workers=2, score_file="s.jsonl")
    assert job.config(0.1) == AuditConfig(delta=0.1, game=TwoWorldGame(runs=7, workers=2, score_file="s.jsonl"), **fields)
    job = AuditJob(subject=subject, **fields, game="one_run", canaries=9, guesses=[[2, 1]])
    assert job.config(0.1) == AuditConfig(delta=0.1, game=OneRunGame(canaries=9, guesses=((2, 1),)), **fields)
