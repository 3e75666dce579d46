"""Playing: the same scores in any order and any number of processes, kept as they come, never mixed with another game's, none dropped."""

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

joblib = pytest.importorskip("joblib")
from joblib.parallel import ThreadingBackend  # noqa: E402

from lethe.audit import TwoWorldGame  # noqa: E402  # after the optional joblib is seen to be there
from lethe.audit.games import trainings, two_worlds  # noqa: E402
from lethe.audit.games.trainings import all_trained  # noqa: E402
from lethe.audit.games.two_worlds import game_fingerprint, play  # noqa: E402
from lethe.errors import InputError, LetheError  # noqa: E402


@dataclass(frozen=True)
class Shifted:
    """A Gaussian mechanism."""

    shift: float = 1.0

    def __call__(self, inside: bool, seed: int) -> float:
        return float(self.shift * inside + np.random.default_rng(seed).normal())


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


BAD_LINES = [
    "no json",
    "[1]",
    '{"trial": 99, "score": 1.0}',
    '{"trial": true, "score": 1.0}',
    '{"trial": 1, "score": "1"}',
    '{"trial": 1, "score": NaN}',
]


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_damaged_file_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "scores.jsonl"
    play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(InputError, match="line 6"):
        play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    file.write_text("something else\n")
    with pytest.raises(InputError, match="no scores"):
        play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)


def test_a_training_with_two_scores_is_refused(tmp_path: Path) -> None:
    """Edited by hand, or trained twice with noise that does not follow from the seed."""
    file = tmp_path / "scores.jsonl"
    game = TwoWorldGame(runs=2, score_file=file)
    play(Shifted(), game, seed=1)
    line = json.loads(file.read_text().splitlines()[-1])
    file.write_text(file.read_text() + json.dumps(line) + "\n")
    play(Shifted(), game, seed=1)
    file.write_text(file.read_text() + json.dumps({**line, "score": 9.0}) + "\n")
    with pytest.raises(InputError, match="another score"):
        play(Shifted(), game, seed=1)


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


def failing(inside: bool, seed: int) -> float:
    raise ZeroDivisionError(f"of {seed}")


@pytest.mark.parametrize(
    ("trial", "options", "word"),
    [
        (failing, {}, r"the training with seed \d+, with.* the record, raised ZeroDivisionError: of \d+\n  From: .*, line"),
        (lambda inside, seed: "much", {}, "returned str; it needs a number"),
        (lambda inside, seed: float("nan"), {}, "finite"),
        (lambda inside, seed: float("inf"), {}, "finite"),
        (lambda inside, seed: 1.0, {"score_file": "scores.jsonl"}, "pickled"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: Any, options: dict[str, Any], word: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=word):
        play(trial, TwoWorldGame(runs=2, **options), seed=0)


def squared(number: int) -> tuple[int, int]:
    return number**2, threading.get_ident()


class AllAtOnce(ThreadingBackend):
    """A backend that hands over all results when the last is there, as Ray's does."""

    supports_return_generator = False


@pytest.mark.parametrize("backend", ["threading", "all at once"])
def test_results_stand_in_the_order_of_the_jobs(backend: str) -> None:
    joblib.register_parallel_backend("all at once", AllAtOnce)
    ended, meeting = list[None](), threading.Barrier(2)

    def together(number: int) -> tuple[int, int]:
        if number < 2:
            meeting.wait(60)  # on a busy machine one thread might do all
        return squared(number)

    with joblib.parallel_config(backend=backend, n_jobs=3):
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
