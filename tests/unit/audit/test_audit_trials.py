"""Trainings in two worlds and canaries in one run, on mechanisms whose privacy is known."""

from typing import Any

import numpy as np
import pytest
from audit_truths import assert_valid
from how_many import examples

from lethe.audit import AuditSetting, Claim, TwoWorldGame
from lethe.audit.games.canaries import replaced
from lethe.audit.games.scores import TwoWorldScores
from lethe.audit.games.trials import CanaryRun, FinalTrial, Observations, RecordTrial, StepsTrial
from lethe.audit.games.two_worlds import SingleTrials, play
from lethe.audit.games.verdict import audit_canaries, audit_worlds, usual_guesses, usual_ranks
from lethe.audit.page import AuditPage
from lethe.errors import InputError

PAGE = AuditPage(subject="a mechanism", canary="a record")
SETTING = AuditSetting(delta=1e-5, neighbours="replace_one", threat="final_model")


def noisy_sum(data: tuple[np.ndarray, ...], seed: int) -> float:
    return float(data[0].sum()) + np.random.default_rng(seed).normal()


def identity(model: Any) -> Any:
    return model


def noisy_rows(data: tuple[np.ndarray, ...], seed: int) -> np.ndarray:
    return data[0] + np.random.default_rng(seed).normal(size=len(data[0]))


def walk(inside: bool, seed: int) -> Observations:
    steps = np.random.default_rng(seed).normal(size=(4, 2)) + np.array([2.0 * inside, 0.0])
    return Observations(start=np.ones(2), final=np.ones(2) - steps.sum(axis=0), steps=steps)


def test_two_data_sets() -> None:
    data = (np.zeros(5),)
    trial = RecordTrial(train=noisy_sum, without=data, including=replaced(data, {2: (3.0,)}), score=identity)
    played = play(SingleTrials(trial), TwoWorldGame(runs=500), seed=1)
    assert played.in_scores.mean() - played.out_scores.mean() == pytest.approx(3.0, abs=0.3)
    page = audit_worlds(PAGE, played, SETTING, conditional=True)
    assert [result.kind for result in page.audits] == ["certified", "conditional"]
    assert page.audits[0].seeds == (1,)
    assert 1 < page.audits[0].epsilon < page.audits[1].epsilon


def test_the_final_model_and_every_step() -> None:
    along = np.array([1.0, 0.0])
    final, steps = FinalTrial(world=walk, direction=along), StepsTrial(world=walk, directions=along)
    assert final(True, 3) == pytest.approx(steps(True, 3))
    late = StepsTrial(world=walk, directions=np.array([[0.0, 0], [0, 0], [0, 0], [1, 0]]))
    assert late(True, 3) == walk(True, 3).steps[3, 0]  # pyright: ignore[reportOptionalSubscript]


def test_a_world_without_steps_has_no_scores_of_them() -> None:
    def closed(inside: bool, seed: int) -> Observations:
        return Observations(start=np.zeros(1), final=np.zeros(1))

    with pytest.raises(InputError, match="does not show"):
        StepsTrial(world=closed, directions=np.ones(1))(True, 0)


def test_canaries_are_there_as_their_coins_say() -> None:
    run = CanaryRun(data=(np.zeros(6),), positions=[1, 4, 5], inside=[(1.0,), (2.0,), (3.0,)], outside=[(-1.0,), (-2.0,), (-3.0,)])
    assert run.drawn(np.array([True, False, True]))[0].tolist() == [0, 1, 0, 0, -2, 3]
    bare = CanaryRun(data=(np.full(6, 9.0),), positions=[1, 4], inside=[(1.0,), (2.0,)])
    assert bare.drawn(np.array([False, True]))[0].tolist() == [9, 9, 9, 9, 2, 9]


@pytest.mark.slow
def test_one_run_of_independent_canaries() -> None:
    """Shifted by 2 under standard noise: 2-GDP, epsilon 10.5 at this delta; 1000 coins prove at most 5.8."""
    count = 1000
    run = CanaryRun(data=(np.zeros(count),), positions=range(count), inside=[(2.0,)] * count)
    scores = run.play(noisy_rows, identity, seed=4)
    assert abs(scores.included.mean() - 0.5) < 0.08
    page = audit_canaries(PAGE, scores, SETTING, conditional=True)
    assert 1.5 < page.audits[0].epsilon < 10.5
    assert page.audits[0].unit == "canary"
    again = run.play(noisy_rows, identity, seed=4)
    assert (again.scores == scores.scores).all()
    assert (run.coins(5) != scores.included).any()


@pytest.mark.parametrize("use", [lambda seed: seed, lambda seed: [seed, 0], lambda seed: [seed, 1]])
def test_coins_are_not_those_that_drew_the_canaries(use: Any) -> None:
    """Labels drawn with the seed of the game would be its coins, and a model that ignores its data would be found to know all of them."""
    count = 2000
    run = CanaryRun(data=(np.zeros(count),), positions=range(count), inside=[(1.0,)] * count)
    for seed in (0, 7):
        same = run.coins(seed) == (np.random.default_rng(use(seed)).random(count) < 0.5)
        assert same.mean() == pytest.approx(0.5, abs=5 * 0.5 / count**0.5)  # five standard errors


def test_one_run_that_fails_says_so() -> None:
    run = CanaryRun(data=(np.zeros(4),), positions=[0, 1], inside=[(1.0,), (2.0,)])
    for train, score, word in (
        (lambda data, seed: {}["gone"], identity, "raised KeyError: 'gone'"),
        (noisy_rows, lambda model: 1.0, "scores"),
        (noisy_rows, lambda model: [np.nan, 1.0], "finite"),
    ):
        with pytest.raises(InputError, match=word):
            run.play(train, score, seed=0)


@pytest.mark.parametrize(
    "change", [{"positions": [0, 0]}, {"positions": [0, 1, 2]}, {"inside": [(1.0,)]}, {"positions": [0, 9]}, {"outside": [(1.0, 2.0)] * 2}]
)
def test_what_a_run_with_canaries_refuses(change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"data": (np.zeros(4),), "positions": [0, 1], "inside": [(1.0,), (2.0,)], **change}
    with pytest.raises(InputError):
        CanaryRun(**fields).drawn(np.arange(len(fields["positions"])) == len(fields["positions"]) - 1)


def test_repeated_noise_voids_the_page() -> None:
    few = np.random.default_rng(0).normal(size=100)
    played = TwoWorldScores(out_scores=np.repeat(few, 2), in_scores=np.repeat(few, 2) + 1, seed=0)
    page = audit_worlds(PAGE, played, SETTING)
    assert (page.verdict, page.audits) == ("void", ())
    assert audit_worlds(PAGE, played, SETTING, continuous=False).verdict == "no_claim"


def test_the_usual_choices_are_those_of_a_thousand() -> None:
    assert usual_ranks(1000).ranks == (2, 5, 10, 20, 50, 100, 200, 400)
    assert usual_ranks(100).ranks == (1, 2, 5, 10, 20, 40)
    assert usual_guesses(1000) == [(50, 50), (100, 100), (200, 200), (400, 400)]
    assert all(top + bottom <= 4 for top, bottom in usual_guesses(4))


@pytest.mark.slow
def test_a_mechanism_that_ignores_the_data_is_rarely_accused() -> None:
    generator = np.random.default_rng(7)
    claim = Claim(epsilon=0.0, delta=1e-5, neighbours="replace_one", release="last", source="nothing")
    found = []
    for seed in range(examples(400)):
        played = TwoWorldScores(out_scores=generator.normal(size=100), in_scores=generator.normal(size=100), seed=seed)
        page = audit_worlds(PAGE.model_copy(update={"claim": claim}), played, SETTING)
        found.append(page.audits[0].epsilon)
        assert (page.verdict == "refuted") == (found[-1] > 0)
    assert_valid(np.array(found), 0.0)
