"""Playing: the same scores in any order and in any number of processes, kept as they come, never mixed with another game's."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lethe.audit import TwoWorldGame
from lethe.audit.games.fingerprint import game_fingerprint
from lethe.audit.games.two_worlds import SingleTrials, play
from lethe.audit.statistics.inputs import Booleans
from lethe.errors import InputError


@dataclass(frozen=True)
class Shifted:
    """A Gaussian mechanism."""

    shift: float = 1.0

    def __call__(self, inside: Booleans, seeds: Sequence[int]) -> list[float]:
        return [float(self.shift * world + np.random.default_rng(seed).normal()) for world, seed in zip(inside, seeds, strict=True)]


class Counted(Shifted):
    """Counts trainings, and stops at one of them."""

    def __init__(self, stop: int | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "done", [])
        object.__setattr__(self, "stop", stop)

    def __call__(self, inside: Booleans, seeds: Sequence[int]) -> list[float]:
        for seed in seeds:
            if len(self.done) == self.stop:  # type: ignore[attr-defined]
                raise KeyboardInterrupt
            self.done.append(seed)  # type: ignore[attr-defined]
        return super().__call__(inside, seeds)


def one(inside: bool, seed: int) -> float:
    return float(inside) + seed / 2**64


def other(inside: bool, seed: int) -> float:
    return float(inside) - seed / 2**64


@pytest.mark.slow
@pytest.mark.parametrize(("chunk", "workers"), [(7, 1), (5, 2), pytest.param(40, None, marks=pytest.mark.nightly(by_day="two workers"))])
def test_chunks_and_processes_change_nothing(chunk: int, workers: int | None) -> None:
    plain = play(Shifted(), TwoWorldGame(runs=20, chunk=1), seed=3)
    again = play(Shifted(), TwoWorldGame(runs=20, chunk=chunk, workers=workers), seed=3)
    assert (again.out_scores == plain.out_scores).all()
    assert (again.in_scores == plain.in_scores).all()
    assert not np.isin(play(Shifted(), TwoWorldGame(runs=20), seed=4).out_scores, plain.out_scores).any()


def test_worlds_have_seeds_of_their_own() -> None:
    played = play(SingleTrials(one), TwoWorldGame(runs=50), seed=0)
    assert (played.out_scores < 1).all()
    assert (played.in_scores >= 1).all()
    assert len({*played.out_scores, *(played.in_scores - 1)}) == 100


def test_an_interrupted_game_goes_on_where_it_was(tmp_path: Path) -> None:
    file, stopped = tmp_path / "scores.jsonl", Counted(stop=12)
    with pytest.raises(KeyboardInterrupt):
        play(stopped, TwoWorldGame(runs=10, chunk=4, score_file=file), seed=1, name="g")
    content = file.read_bytes()
    file.write_bytes(content + b'{"trial": 12, "sc')  # what a kill leaves
    rest = Counted()
    resumed = play(rest, TwoWorldGame(runs=10, chunk=3, score_file=file), seed=1, name="g")
    assert len(rest.done) == 8  # type: ignore[attr-defined]
    assert not set(rest.done) & set(stopped.done)  # type: ignore[attr-defined]
    whole = play(Shifted(), TwoWorldGame(runs=10), seed=1)
    assert (resumed.out_scores == whole.out_scores).all()
    assert (resumed.in_scores == whole.in_scores).all()
    assert len(file.read_text().splitlines()) == 21
    kept = play(Counted(stop=0), TwoWorldGame(runs=10, score_file=file), seed=1, name="g")
    assert kept.in_scores.tolist() == whole.in_scores.tolist()


@pytest.mark.parametrize("change", [{"seed": 2}, {"runs": 11}, {"trials": Shifted(shift=2.0)}])
def test_another_game_s_scores_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    """More trainings after a look at the scores is another game as well."""

    def played(trials: Shifted, runs: int, seed: int) -> None:
        play(trials, TwoWorldGame(runs=runs, score_file=tmp_path / "scores.jsonl"), seed=seed)

    given: dict[str, Any] = {"trials": Shifted(), "runs": 10, "seed": 1}
    played(**given)
    with pytest.raises(InputError, match="another game"):
        played(**{**given, **change})


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[1]",
        json.dumps({"trial": 99, "score": 1.0}),
        json.dumps({"trial": True, "score": 1.0}),
        json.dumps({"trial": 1, "score": "1"}),
        '{"trial": 1, "score": NaN}',
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "scores.jsonl"
    play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(InputError, match="line 6"):
        play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    file.write_text("something else\n")
    with pytest.raises(InputError, match="no scores"):
        play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)


def test_a_fingerprint_knows_data_settings_and_code() -> None:
    assert game_fingerprint(Shifted()) == game_fingerprint(Shifted(shift=1.0))
    assert game_fingerprint(SingleTrials(one)) == game_fingerprint(SingleTrials(one))
    games = [Shifted(), Shifted(shift=2.0), SingleTrials(one), SingleTrials(other), np.zeros(3), np.ones(3)]
    assert len({game_fingerprint(game) for game in games}) == len(games)


def test_changed_code_is_another_game() -> None:
    """Pickles name a function and do not hold it."""
    before, code = game_fingerprint(SingleTrials(one)), one.__code__
    try:
        one.__code__ = other.__code__
        assert game_fingerprint(SingleTrials(one)) != before
    finally:
        one.__code__ = code


def test_changed_methods_are_another_game(monkeypatch: pytest.MonkeyPatch) -> None:
    before = game_fingerprint(Shifted())
    monkeypatch.setattr(Shifted, "__call__", lambda self, inside, seeds: [0.0])
    assert game_fingerprint(Shifted()) != before


def chosen(word: int) -> bool:
    return word in {0, 8}


def test_a_fingerprint_does_not_depend_on_the_order_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    code, other = chosen.__code__, frozenset([8, 0])
    assert list(other) != list(frozenset([0, 8]))
    before = game_fingerprint(chosen)
    constants = tuple(other if isinstance(constant, frozenset) else constant for constant in code.co_consts)
    assert constants.index(other) >= 0
    monkeypatch.setattr(chosen, "__code__", code.replace(co_consts=constants))
    assert game_fingerprint(chosen) == before
    monkeypatch.setattr(chosen, "__code__", code.replace(co_consts=(*constants[:-1], frozenset([0, 9]))))
    assert game_fingerprint(chosen) != before


@pytest.mark.slow
@pytest.mark.nightly(by_day="test_a_fingerprint_does_not_depend_on_the_order_of_sets")
def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """Sets of text are in another order in each."""
    code = "from sets_of_text import chosen\nfrom lethe.audit.games.fingerprint import game_fingerprint\nprint(game_fingerprint(chosen))"
    prints = set()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sets_of_text.py").write_text("def chosen(word):\n    return word in {'a', 'b', 'c', 'd', 'e', 'f'}\n")
        for seed in "12":
            environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": folder}
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
            prints.add(done.stdout)
    assert len(prints) == 1


def test_what_has_no_fingerprint_can_be_named(tmp_path: Path) -> None:
    game = SingleTrials(lambda inside, seed: one(inside, seed))
    with pytest.raises(InputError, match="pickled"):
        play(game, TwoWorldGame(runs=2, score_file=tmp_path / "a.jsonl"), seed=0)
    play(game, TwoWorldGame(runs=2, score_file=tmp_path / "b.jsonl"), seed=0, name="mine")


@pytest.mark.parametrize(("score", "word"), [(float("nan"), "finite"), (float("inf"), "finite")])
def test_a_failed_training_ends_the_game(score: float, word: str) -> None:
    with pytest.raises(InputError, match=word):
        play(SingleTrials(lambda inside, seed: score), TwoWorldGame(runs=2), seed=0)


def test_scores_go_with_what_was_declared_before_them(tmp_path: Path) -> None:
    game = TwoWorldGame(runs=5, score_file=tmp_path / "scores.jsonl")
    first = play(Shifted(), game, seed=1, declared="ranks 1 and 2, level 0.05")
    again = play(Shifted(), game, seed=1, declared="ranks 1 and 2, level 0.05")
    assert (again.in_scores == first.in_scores).all()
    for other in ("ranks 1 and 2, level 0.5", None):
        with pytest.raises(InputError, match=r"declared: ranks 1 and 2, level 0\.05; now it is"):
            play(Shifted(), game, seed=1, declared=other)


def test_a_training_with_two_scores_is_refused(tmp_path: Path) -> None:
    """Edited by hand, or trained twice with noise that does not follow from the seed."""
    file = tmp_path / "scores.jsonl"
    play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    line = json.loads(file.read_text().splitlines()[-1])
    file.write_text(file.read_text() + json.dumps(line) + "\n")
    play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)
    file.write_text(file.read_text() + json.dumps({**line, "score": 9.0}) + "\n")
    with pytest.raises(InputError, match="another score"):
        play(Shifted(), TwoWorldGame(runs=2, score_file=file), seed=1)


def failing(inside: bool, seed: int) -> float:
    raise ZeroDivisionError(f"of {seed}")


def wordy(inside: bool, seed: int) -> str:
    return "much"


class Locked(Shifted):
    """Cannot be handed to another process."""

    def __reduce__(self) -> str:
        raise TypeError("locked")


@pytest.mark.parametrize("workers", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_what_a_training_raises_is_said_with_its_seed_and_its_place(workers: int | None) -> None:
    with pytest.raises(
        InputError, match=r"the training with seed \d+, with.* the record, raised ZeroDivisionError: of \d+\n  From: .*, line"
    ):
        play(SingleTrials(failing), TwoWorldGame(runs=2, workers=workers), seed=0)


def test_what_is_no_score_is_said() -> None:
    with pytest.raises(InputError, match="returned str; it needs a number"):
        play(SingleTrials(wordy), TwoWorldGame(runs=2), seed=0)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="raised ValueError"):
        play(lambda inside, seeds: ["much"] * len(seeds), TwoWorldGame(runs=2), seed=0)  # type: ignore[arg-type]


@pytest.mark.slow
def test_trials_that_cannot_leave_the_process_are_refused() -> None:
    with pytest.raises(InputError, match="handed to another process"):
        play(Locked(), TwoWorldGame(runs=2, workers=2), seed=0)


@pytest.mark.parametrize("seed", [-1, True, 0.5])
def test_seeds_that_are_none(seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        play(Shifted(), TwoWorldGame(runs=3), seed=seed)  # type: ignore[arg-type]


def test_a_wrong_number_of_scores_is_refused() -> None:
    wrong: Callable[[Booleans, Sequence[int]], list[float]] = lambda inside, seeds: [0.0]  # noqa: E731
    with pytest.raises(InputError, match="shape"):
        play(wrong, TwoWorldGame(runs=3), seed=0)
