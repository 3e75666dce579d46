"""Canaries, shadow models and the game of two worlds: what is trained, that nothing is dropped, mixed up or looked at too early."""

import pytest

pytest.importorskip("joblib")
import threading
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from audit_truths import Shifted
from scipy import stats

from lethe.audit import AuditSetting, TwoWorldGame, shadow_attack
from lethe.audit.games import trainings, two_worlds
from lethe.audit.games.canaries import CanaryRun, RecordTrial, blank, mislabelled, random_directions, replaced
from lethe.audit.games.shadow_models import Candidates, draw_candidates
from lethe.audit.games.trainings import TwoWorldScores, all_trained
from lethe.audit.games.two_worlds import game_fingerprint, play
from lethe.audit.games.verdict import audit_worlds
from lethe.audit.page import AuditPage
from lethe.errors import InputError, LetheError


class Stopped(Shifted):
    """Counts trainings, and stops at one of them; every process takes it for the same game."""

    done: list[int]
    stop: int | None = None

    def __call__(self, inside: bool, seed: int) -> float:
        if len(type(self).done) == type(self).stop:
            raise KeyboardInterrupt
        type(self).done.append(seed)
        return super().__call__(inside, seed)


def one(inside: bool, seed: int) -> float:
    return float(inside) + seed / 2**64


def other(inside: bool, seed: int) -> float:
    return float(inside) - seed / 2**64


def test_worlds_have_seeds_of_their_own() -> None:
    played = play(one, TwoWorldGame(runs=50), seed=0)
    assert (played.out_scores < 1).all()
    assert (played.in_scores >= 1).all()
    assert len({*played.out_scores, *(played.in_scores - 1)}) == 100


def test_an_interrupted_game_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scores.jsonl"
    game = TwoWorldGame(runs=10, score_file=file)
    monkeypatch.setattr(Stopped, "done", first := list[int](), raising=False)
    monkeypatch.setattr(Stopped, "stop", 12)
    with pytest.raises(KeyboardInterrupt):
        play(Stopped(), game, seed=1)
    file.write_bytes(file.read_bytes() + b'{"trial": 12, "sc')  # what a kill leaves
    monkeypatch.setattr(Stopped, "done", rest := list[int]())
    monkeypatch.setattr(Stopped, "stop", None)
    resumed, whole = play(Stopped(), game, seed=1), play(Shifted(), TwoWorldGame(runs=10), seed=1)
    assert (len(first), len(rest), set(first) & set(rest)) == (12, 8, set())
    assert (resumed.out_scores == whole.out_scores).all()
    assert (resumed.in_scores == whole.in_scores).all()
    assert len(file.read_text().splitlines()) == 21
    monkeypatch.setattr(Stopped, "stop", 8)  # nothing is trained again
    assert play(Stopped(), game, seed=1).in_scores.tolist() == whole.in_scores.tolist()


@pytest.mark.parametrize("change", [{"seed": 2}, {"runs": 11}, {"trial": Shifted(shift=2.0)}, {"trial": one}])
def test_another_game_s_scores_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """More trainings after a look at the scores is another game as well."""

    def played(trial: Any, runs: int, seed: int) -> None:
        play(trial, TwoWorldGame(runs=runs, score_file=tmp_path / "scores.jsonl"), seed=seed)

    fields: dict[str, Any] = {"trial": Shifted(), "runs": 10, "seed": 1}
    played(**fields)
    with pytest.raises(InputError, match="another game"):
        played(**{**fields, **change})


@pytest.mark.parametrize("line", ["[1]", '{"trial": 99, "score": 1.0}', '{"trial": 1, "score": "1"}', '{"trial": 1, "score": NaN}'])
def test_a_damaged_file_is_refused(tmp_path: Path, line: str) -> None:
    """So is another score of the same training: edited by hand, or trained twice with noise that does not follow from the seed."""
    file = tmp_path / "scores.jsonl"
    play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    whole = file.read_text()
    for text, word in (
        (f"{whole}{line}\n", "line 6"),
        (f'{whole}{{"trial": 1, "score": 9.0}}\n', "another score"),
        ("something else\n", "no scores"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=word):
            play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)


def test_scores_go_with_what_was_declared_before_them(tmp_path: Path) -> None:
    game = TwoWorldGame(runs=5, score_file=tmp_path / "scores.jsonl")
    first = play(Shifted(), game, seed=1, declared="ranks 1 and 2, level 0.05")
    assert (play(Shifted(), game, seed=1, declared="ranks 1 and 2, level 0.05").in_scores == first.in_scores).all()
    for declared in ("ranks 1 and 2, level 0.5", None):
        with pytest.raises(InputError, match=r"declared: ranks 1 and 2, level 0\.05; now it is"):
            play(Shifted(), game, seed=1, declared=declared)


def test_a_fingerprint_knows_data_settings_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert game_fingerprint(Shifted()) == game_fingerprint(Shifted(shift=1.0))
    games = [Shifted(), Shifted(shift=2.0), one, other, np.zeros(3), np.ones(3)]
    assert len({game_fingerprint(game) for game in games}) == len(games)
    monkeypatch.syspath_prepend(tmp_path)
    for words in ("return 1.0", "return 2.0"):  # pickles name a function and do not hold it
        (tmp_path / f"code_of_{len(games)}.py").write_text(f"def train(inside, seed):\n    {words}\n")
        games.append(__import__(f"code_of_{len(games)}").train)
        games[-1].__module__ = "code_of_6"
    monkeypatch.setattr(__import__("code_of_6"), "train", games[-1])
    changed = game_fingerprint(games[-1])
    monkeypatch.setattr(__import__("code_of_6"), "train", games[-2])
    assert game_fingerprint(games[-2]) != changed


def squared(number: int) -> tuple[int, int]:
    return number**2, threading.get_ident()


def test_results_stand_in_the_order_of_the_jobs() -> None:
    ended, meeting = list[None](), threading.Barrier(2)

    def together(number: int) -> tuple[int, int]:
        if number < 2:
            meeting.wait(60)  # on a busy machine one thread might do all
        return squared(number)

    with joblib.parallel_config(backend="threading", n_jobs=3):
        found = all_trained(together, ((number,) for number in range(9)), finished=lambda: ended.append(None))
    assert [number for number, _ in found] == [number**2 for number in range(9)]
    assert len({thread for _, thread in found}) > 1
    assert len(ended) == 9
    assert all_trained(squared, []) == []


def test_a_training_that_is_lost_or_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        all_trained(lambda number: 1 // number, [(1,), (0,)])
    for module in (trainings, two_worlds):
        monkeypatch.setattr(module, "as_they_end", lambda *tasks, **options: iter([(0, 1.0)]))
    for call in (lambda: all_trained(squared, [(1,), (2,)]), lambda: play(one, TwoWorldGame(runs=2), seed=0)):
        with pytest.raises(LetheError, match="trainings gave no result; nothing is said of the others alone"):
            call()


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


def test_repeated_noise_voids_the_page() -> None:
    few = np.random.default_rng(0).normal(size=100)
    played = TwoWorldScores(out_scores=np.repeat(few, 2), in_scores=np.repeat(few, 2) + 1, seed=0)
    page = audit_worlds(PAGE, played, SETTING)
    assert (page.verdict, page.audits) == ("void", ())
    assert audit_worlds(PAGE, played, SETTING, continuous=False).verdict == "no_claim"


LABELS = np.arange(60) % 3


def test_shadow_models_share_nothing_with_the_audited_one() -> None:
    for seed in range(20):
        target, shadows = draw_candidates(60, 25, 4, seed=seed)
        assert len(shadows) == 4
        for each in (target, *shadows):
            assert each.rows.shape == each.included.shape == (25,)
            assert len(set(each.rows.tolist())) == 25
            assert 0 <= each.rows.min() <= each.rows.max() < 60
        assert not any(np.isin(target.rows, shadow.rows).any() for shadow in shadows)


def test_coins_are_fair_and_say_nothing_of_each_other() -> None:
    """Heads over 400 draws of 25 candidates, and agreement of neighbours; each has mean 1/2."""
    flags = np.array([draw_candidates(60, 25, 1, seed=seed)[0].included for seed in range(400)])
    assert stats.binomtest(int(flags.sum()), flags.size).pvalue > 1e-4
    assert stats.binomtest(int((flags[:, 1:] == flags[:, :-1]).sum()), flags[:, 1:].size).pvalue > 1e-4
    assert np.ptp(flags.sum(axis=1)) > 0


def test_the_attack_learns_from_shadow_models_and_judges_the_audited_one() -> None:
    target, shadows = draw_candidates(60, 20, 2, seed=4)
    asked: list[tuple[Any, ...]] = []

    def train(candidates: Candidates, seed: int) -> np.ndarray:
        asked.append((candidates.rows.tolist(), seed))
        logits = np.zeros((2, candidates.rows.size, 3))
        logits[:, :, 0], logits[1, :, 1] = candidates.rows, candidates.included
        return logits

    def learn(*arguments: Any):
        asked.append(arguments)
        return lambda others, classes: others[:, :, 1] * 0.5 + classes * 0.1

    probabilities, logits = shadow_attack(LABELS, target, shadows, train=train, learn=learn, seeds=[1, 2, 3, 4])
    assert asked[:3] == [(each.rows.tolist(), seed) for each, seed in zip((target, *shadows), (1, 2, 3), strict=True)]
    seen, labels, included, seed = asked[3]
    rows = np.concatenate([shadow.rows for shadow in shadows])
    assert np.array_equal(seen[0, :, 0], rows)
    assert np.array_equal(labels, LABELS[rows])
    assert np.array_equal(included, np.concatenate([shadow.included for shadow in shadows]))
    assert seed == 4
    assert np.array_equal(logits[0, :, 0], target.rows)
    assert np.allclose(probabilities, logits[:, :, 1] * 0.5 + LABELS[target.rows] * 0.1)
