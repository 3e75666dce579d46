"""The two-world game: many trainings, half of them without the record, each with its own seed, whose scores a file can keep.

`audit` calls `play` with a trial that trains once and returns its score; a game that was stopped goes on from its file.
"""

import hashlib
import inspect
import io
import json
import marshal
import math
import os
import pickle
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import joblib
import numpy as np
from rich.console import Console
from rich.progress import Progress

from lethe.audit.config import TwoWorldGame
from lethe.audit.games.trainings import TwoWorldScores, as_score, as_they_end, errors_of, require_all
from lethe.calculus.domains import require_count
from lethe.documents.strict import as_path
from lethe.documents.version import __version__
from lethe.errors import InputError, LetheError

Trial = Callable[[bool, int], float]
"""(whether the record is there, seed) -> the score of one training, higher where the record seems to have been there."""
_KIND = "lethe audit scores 1"
_SYNC = 0.5  # seconds of trainings that a failure of the machine may lose: they would be repeated


def play(trial: Trial, game: TwoWorldGame, *, seed: int, declared: str | None = None, progress: bool = False) -> TwoWorldScores:
    """Train `game.runs` times in each world, the worlds in turn.

    It may be interrupted at any moment; with a score file, what has ended is not repeated.

    Args:
        trial: must be picklable where there are several workers, or a score file.
        game: how many trainings, in how many processes, and where scores are kept; its rule and its position are not looked at.
        seed: >= 0; whoever audits with it knows the noise of these trainings, so none of their models may be released.
        declared: rule, level and delta in words, for the score file, which then goes with no other; None: it does not hold you to any.
        progress: a bar on standard error, if that is a terminal.
    Raises:
        InputError: the seed is outside its range, the score file is another game's, or a score is not a finite number.
    """
    count, root = 2 * game.runs, require_count("seed", seed, low=0, high=2**63)
    seeds = [int(number) for number in np.random.SeedSequence(root).generate_state(count, np.uint64)]
    if len(set(seeds)) != count:
        raise InputError(f"seed: got {seed}; two of the {count} seeds it gives are equal.", remedy="take another.")
    file, scores = None if game.score_file is None else as_path(game.score_file), dict[int, float]()
    if file is not None:
        head = {"kind": _KIND, "game": f"{game_fingerprint(trial)}, seed {root}", "trials": count}
        head |= {} if declared is None else {"declared": declared}
        if file.exists():
            scores = _read_scores(file, head)
        else:
            _append(file, head, sync=True)
    done = frozenset(scores)
    tasks = (joblib.delayed(_scored)(trial, number, seeds[number]) for number in range(count) if number not in done)
    console = Console(stderr=True)
    with Progress(console=console, disable=not (progress and console.is_terminal)) as bar:
        task, synced = bar.add_task("trainings", total=count, completed=len(scores)), time.monotonic()
        for number, score in as_they_end(tasks, game.workers):
            scores[number] = score
            if file is not None:
                due = time.monotonic() - synced > _SYNC
                _append(file, {"trial": number, "score": score}, sync=due)
                synced = time.monotonic() if due else synced
            bar.update(task, completed=len(scores))
    require_all(len(scores), count)
    ordered = np.array([scores[number] for number in range(count)])
    return TwoWorldScores(out_scores=ordered[0::2], in_scores=ordered[1::2], seed=root)


def _scored(trial: Trial, number: int, seed: int) -> tuple[int, float]:
    """The number and the score of one training, with the record where the number is odd."""
    inside = number % 2 == 1  # the worlds in turn, so that whatever changes while an audit runs changes both
    whose = f"the training with seed {seed}, {'with' if inside else 'without'} the record,"
    with errors_of(whose):
        score = as_score(trial(inside, seed), whose)
    if not math.isfinite(score):
        needed, remedy = "it needs a finite number.", "leave out no run: find out why it failed"
        raise InputError(f"scores: got {score} from {whose[:-1]}; {needed}", source="the argument trial", remedy=remedy)
    return number, score


def _read_scores(file: Path, head: Mapping[str, object]) -> dict[int, float]:
    """Training -> score, of those that ended: JSON lines, the first of which says what game they belong to.

    A line counts once it is there with its newline. One that a kill tore is cut off, and its training repeated: which is the same training,
    because its seed follows from the game's. Nothing signs the lines: whoever edits them has scores of their own.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.", source="score_file") from error
    whole = content[: content.rfind(b"\n") + 1]
    first, *lines = [_parsed(line) for line in whole.decode(errors="replace").splitlines()] or [{}]
    if first.get("kind") != head["kind"]:
        raise _foreign(file, "it holds no scores of an audit")
    if any(first.get(name) != head[name] for name in ("game", "trials")):
        raise _foreign(file, "its scores are of another game: other data, settings, seed or number of trainings")
    if first.get("declared") != head.get("declared"):
        was, now = (each.get("declared", "nothing") for each in (first, head))
        raise InputError(
            f"{file}: before its scores were there, this was declared: {was}; now it is {now}.",
            source="score_file",
            remedy="judge them as declared, or give the path of a file that does not exist yet.",
        )
    scores: dict[int, float] = {}
    for number, line in enumerate(lines, start=2):
        trial, score = line.get("trial"), line.get("score")
        if type(trial) is not int or not 0 <= trial < first["trials"] or type(score) is not float or not math.isfinite(score):
            raise _foreign(file, f"line {number} holds no score")
        if scores.setdefault(trial, score) != score:
            raise _foreign(file, f"line {number} gives training {trial} another score: it does not follow from its seed")
    if len(whole) < len(content):
        os.truncate(file, len(whole))
    return scores


def _append(file: Path, line: Mapping[str, object], *, sync: bool) -> None:
    """Write a line; a kill does not lose it, and a failure of the machine only if it is not synced."""
    try:
        with file.open("ab") as opened:
            opened.write(f"{json.dumps(line)}\n".encode())
            opened.flush()
            if sync:
                os.fsync(opened.fileno())
    except OSError as error:
        why = f"{file} cannot be written: {error.strerror or error}."
        raise LetheError(why, source="score_file", remedy="give a path you may write to.") from error


def _parsed(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _foreign(file: Path, why: str) -> InputError:
    return InputError(f"{file}: {why}.", source="score_file", remedy="give the path of a file that does not exist yet.")


def game_fingerprint(game: object) -> str:
    """A hash of a picklable object: of its data, its settings, the code of its functions and classes, and the version of Lethe.

    What those functions call is not in it, nor what a class inherits, nor the machine: rounding may differ between two.
    """
    codes = _Sources(io.BytesIO())
    try:
        codes.dump(game)
        content = joblib.hash(game)
    except Exception as error:  # whatever an object's own pickling raises
        raise InputError(
            f"this game has no fingerprint, since it cannot be pickled: {error}",
            source="the argument score_file",
            remedy="define its functions at the top of a module",
        ) from error
    return hashlib.sha256(repr((__version__, content, codes.seen)).encode()).hexdigest()[:16]


class _Sources(pickle.Pickler):
    """Takes down the source of all functions and classes that pickling refers to: pickles name them only."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.seen: list[object] = []

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType):
            try:
                self.seen.append(inspect.getsource(obj))
            except (OSError, TypeError):  # typed at a prompt, or written in C
                parts = vars(obj).values() if isinstance(obj, type) else (obj,)
                self.seen += [marshal.dumps(part.__code__) for part in parts if isinstance(part, FunctionType)]
        return NotImplemented
