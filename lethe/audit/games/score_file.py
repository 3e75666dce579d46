"""Scores written to a file as trainings end, so that an interrupted audit can be continued."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

from lethe.documents.strict import as_path
from lethe.errors import InputError, LetheError

_KIND = "lethe audit scores 1"


class ScoreFile:
    """A text file of JSON lines: what game it belongs to, then one score a line.

    A line counts once it is there with its newline. One that a kill tore is cut off, and its training repeated: which is the same training,
    because its seed follows from the game's. Nothing signs the lines: whoever edits them has scores of their own.

    Args:
        path: of the file; made if there is none.
        game: names the game, its seed and its number of trainings.
        trials: how many trainings there are in all.
        declared: how the scores are to be judged, in words; a rule that is chosen once they are there would have no level.
    Raises:
        InputError: the file belongs to another game, or is no such file.
    """

    def __init__(self, path: str | os.PathLike[str], *, game: str, trials: int, declared: str | None = None) -> None:
        self._path, self._trials = as_path(path), trials
        self._head = {"kind": _KIND, "game": game, "trials": trials} | ({} if declared is None else {"declared": declared})
        self._scores: dict[int, float] = {}
        if self._path.exists():
            self._read()
        else:
            self._append(json.dumps(self._head) + "\n")

    @property
    def scores(self) -> Mapping[int, float]:
        """Training -> score, of those that ended."""
        return self._scores

    def add(self, scores: Mapping[int, float]) -> None:
        """Keep these too; on disk when it returns.

        Raises:
            LetheError: they cannot be written.
        """
        self._append("".join(f"{json.dumps({'trial': trial, 'score': score})}\n" for trial, score in scores.items()))
        self._scores.update(scores)

    def _append(self, text: str) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise LetheError(
                f"{self._path} cannot be written: {error.strerror or error}.", source="score_file", remedy="give a path you may write to."
            ) from error

    def _read(self) -> None:
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror or error}.", source="score_file") from error
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.decode(errors="replace").splitlines()
        head = _parsed(lines[0]) if lines else {}
        if head.get("kind") != _KIND:
            raise _foreign(self._path, "it holds no scores of an audit")
        if (head.get("game"), head.get("trials")) != (self._head["game"], self._head["trials"]):
            raise _foreign(self._path, "its scores are of another game: other data, settings, seed or number of trainings")
        if head.get("declared") != self._head.get("declared"):
            was, now = (each.get("declared", "nothing") for each in (head, self._head))
            raise InputError(
                f"{self._path}: before its scores were there, this was declared: {was}; now it is {now}.",
                source="score_file",
                remedy="judge them as declared, or give the path of a file that does not exist yet.",
            )
        for number, line in enumerate(lines[1:], start=2):
            entry = _parsed(line)
            trial, score = entry.get("trial"), entry.get("score")
            if not isinstance(trial, int) or isinstance(trial, bool) or not 0 <= trial < self._trials:
                raise _foreign(self._path, f"line {number} is {line[:40]!r}")
            if not isinstance(score, float) or not math.isfinite(score):
                raise _foreign(self._path, f"line {number} is {line[:40]!r}")
            if self._scores.setdefault(trial, score) != score:
                raise _foreign(self._path, f"line {number} gives training {trial} another score: it does not follow from its seed")
        if len(whole) < len(content):
            os.truncate(self._path, len(whole))


def _parsed(line: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _foreign(path: Path, why: str) -> InputError:
    return InputError(f"{path}: {why}.", source="score_file", remedy="give the path of a file that does not exist yet.")
