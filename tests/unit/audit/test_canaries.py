"""Canaries, the neighbours they make, trainings with and without them, and what their scores say."""

from typing import Any

import numpy as np
import pytest

from lethe.audit import AuditSetting, TwoWorldGame
from lethe.audit.games.canaries import CanaryRun, RecordTrial, blank, mislabelled, random_directions, replaced
from lethe.audit.games.trainings import TwoWorldScores
from lethe.audit.games.two_worlds import play
from lethe.audit.games.verdict import audit_worlds, usual_guesses, usual_ranks
from lethe.audit.page import AuditPage
from lethe.errors import InputError

DATA = (np.arange(12.0).reshape(4, 3), np.array([0, 1, 2, 2]))
PAGE = AuditPage(subject="a mechanism", canary="a record")
SETTING = AuditSetting(delta=1e-5, neighbours="replace_one", threat="final_model")


def noisy_sum(data: tuple[np.ndarray, ...], seed: int) -> float:
    return float(data[0].sum()) + np.random.default_rng(seed).normal()


def noisy_rows(data: tuple[np.ndarray, ...], seed: int) -> np.ndarray:
    return data[0] + np.random.default_rng(seed).normal(size=len(data[0]))


def identity(model: Any) -> Any:
    return model


def test_a_wrong_label_is_the_next_one_and_a_blank_record_zeros() -> None:
    features, label = mislabelled(DATA, 3, classes=3)
    assert (features.tolist(), label) == ([9.0, 10.0, 11.0], 0)
    assert mislabelled((DATA[0], np.array([0.0, 1.0, 0.0, 1.0])), 1, classes=2)[1] == 0
    features, label = blank(DATA, label=1)
    assert (features.tolist(), label) == ([0.0, 0.0, 0.0], 1)


def test_neighbours_differ_in_one_record_and_the_data_stay() -> None:
    before = [column.copy() for column in DATA]
    changed = replaced(DATA, {1: (np.ones(3), 2)})
    assert [row for row in range(4) if (changed[0][row] != DATA[0][row]).any() or changed[1][row] != DATA[1][row]] == [1]
    assert all((old == new).all() for old, new in zip(before, DATA, strict=True))


def test_random_directions_are_orthonormal_as_far_as_there_is_room_and_favour_no_side() -> None:
    few, many = random_directions(5, 8, seed=1), random_directions(20, 8, seed=1)
    assert np.allclose(few @ few.T, np.eye(5))
    assert np.allclose(np.linalg.norm(many, axis=1), 1.0)
    assert np.allclose(many[8:16] @ many[8:16].T, np.eye(8))
    # The mean of 1000 independent unit vectors of dimension 2 has coordinates of standard deviation 0.022.
    first = np.array([random_directions(1, 2, seed=seed)[0] for seed in range(1000)])
    assert np.abs(first.mean(axis=0)).max() < 0.11


def test_two_data_sets() -> None:
    data = (np.zeros(5),)
    trial = RecordTrial(train=noisy_sum, without=data, including=replaced(data, {2: (3.0,)}), score=identity)
    played = play(trial, TwoWorldGame(runs=200), seed=1)
    assert played.in_scores.mean() - played.out_scores.mean() == pytest.approx(3.0, abs=0.5)
    page = audit_worlds(PAGE, played, SETTING, conditional=True)
    assert [result.kind for result in page.audits] == ["certified", "conditional"]
    assert page.audits[0].seeds == (1,)
    assert 1 < page.audits[0].epsilon < page.audits[1].epsilon


def test_canaries_are_there_as_their_coins_say() -> None:
    run = CanaryRun(data=(np.zeros(6),), positions=[1, 4, 5], inside=[(1.0,), (2.0,), (3.0,)], outside=[(-1.0,), (-2.0,), (-3.0,)])
    assert run.drawn(np.array([True, False, True]))[0].tolist() == [0, 1, 0, 0, -2, 3]
    bare = CanaryRun(data=(np.full(6, 9.0),), positions=[1, 4], inside=[(1.0,), (2.0,)])
    assert bare.drawn(np.array([False, True]))[0].tolist() == [9, 9, 9, 9, 2, 9]
    assert (bare.play(noisy_rows, identity, seed=4).scores == bare.play(noisy_rows, identity, seed=4).scores).all()


@pytest.mark.parametrize("use", [lambda seed: seed, lambda seed: [seed, 0], lambda seed: [seed, 1]])
def test_coins_are_not_those_that_drew_the_canaries(use: Any) -> None:
    """Labels drawn with the seed of the game would be its coins, and a model that ignores its data would be found to know all of them."""
    run = CanaryRun(data=(np.zeros(2000),), positions=range(2000), inside=[(1.0,)] * 2000)
    for seed in (0, 7):
        same = run.coins(seed) == (np.random.default_rng(use(seed)).random(2000) < 0.5)
        assert same.mean() == pytest.approx(0.5, abs=5 * 0.5 / 2000**0.5)  # five standard errors


@pytest.mark.parametrize(
    ("train", "score", "word"),
    [
        (lambda data, seed: {}["gone"], identity, "raised KeyError: 'gone'"),
        (noisy_rows, lambda model: 1.0, "scores"),
        (noisy_rows, lambda model: [np.nan, 1.0], "finite"),
    ],
)
def test_one_run_that_fails_says_so(train: Any, score: Any, word: str) -> None:
    with pytest.raises(InputError, match=word):
        CanaryRun(data=(np.zeros(4),), positions=[0, 1], inside=[(1.0,), (2.0,)]).play(train, score, seed=0)


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
