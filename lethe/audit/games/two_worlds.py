"""The two-world game: many trainings, half of them without the record, each with its own seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress

from lethe.audit.config import TwoWorldGame
from lethe.audit.games.error_context import errors_of, number
from lethe.audit.games.fingerprint import game_fingerprint
from lethe.audit.games.score_file import ScoreFile
from lethe.audit.games.scores import TwoWorldScores
from lethe.audit.games.trainings import as_they_end, refuse_lost
from lethe.audit.statistics.inputs import Booleans
from lethe.calculus.domains import require_count
from lethe.errors import InputError

Trials = Callable[[Booleans, Sequence[int]], ArrayLike]
"""Some trainings, each in one of two worlds: (inside, seeds) -> one score each, higher where the record seems to have been there. A score
depends on its own entry of both and on nothing else."""


@dataclass(frozen=True, slots=True)
class SingleTrials:
    """Trials from a function of one training: (inside, seed) -> score."""

    trial: Callable[[bool, int], float]

    def __call__(self, inside: Booleans, seeds: Sequence[int]) -> list[float]:
        """See `Trials`."""
        return [self._score(bool(world), seed) for world, seed in zip(inside, seeds, strict=True)]

    def _score(self, world: bool, seed: int) -> float:
        with errors_of(f"the training with seed {seed}, {'with' if world else 'without'} the record,"):
            return number(self.trial(world, seed), "the trial")


def play(
    trials: Trials, game: TwoWorldGame, *, seed: int, name: str | None = None, declared: str | None = None, progress: bool = False
) -> TwoWorldScores:
    """Train `game.runs` times in each world, the worlds in turn.

    It may be interrupted at any moment; with a score file, what has ended is not repeated.

    Args:
        trials: must be picklable where there are several workers, or a score file and no `name`.
        game: how many trainings, in how many processes, and where scores are kept; its rule and its position are not looked at.
        seed: >= 0; whoever audits with it knows the noise of these trainings, so none of their models may be released.
        name: tells these trials from others in the score file; None: a hash of `trials`.
        declared: rule, level and delta in words, for the score file, which then goes with no other; None: it does not hold you to any.
        progress: a bar on standard error, if that is a terminal.
    Raises:
        InputError: the seed is outside its range, the score file is another game's, or a score is not a finite number.
    """
    count, root = 2 * game.runs, require_count("seed", seed, low=0, high=2**63)
    seeds = trial_seeds(root, count)
    kept = None
    if game.score_file is not None:
        named = game_fingerprint(trials) if name is None else name
        kept = ScoreFile(game.score_file, game=f"{named}, seed {root}", trials=count, declared=declared)
    scores = dict(kept.scores) if kept is not None else {}
    left = [trial for trial in range(count) if trial not in scores]
    chunks = [left[first : first + game.chunk] for first in range(0, len(left), game.chunk)]
    tasks = (joblib.delayed(_scores)(trials, each, [seeds[trial] for trial in each]) for each in chunks)
    with _bar(progress, count) as finished:
        finished(len(scores))
        for part in as_they_end(tasks, game.workers):
            scores.update(part)
            if kept is not None:
                kept.add(part)
            finished(len(scores))
    refuse_lost(count, scores, seeds)
    ordered = np.array([scores[trial] for trial in range(count)])
    return TwoWorldScores(out_scores=ordered[0::2], in_scores=ordered[1::2], seed=root)


def trial_seeds(seed: int, count: int) -> list[int]:
    """Seeds of so many trainings, all different."""
    seeds = [int(number) for number in np.random.SeedSequence(seed).generate_state(count, np.uint64)]
    if len(set(seeds)) != count:
        raise InputError(f"seed: got {seed}; two of the {count} seeds it gives are equal.", remedy="take another.")
    return seeds


def _scores(trials: Trials, numbers: list[int], seeds: list[int]) -> dict[int, float]:
    # The worlds in turn, so that whatever changes while an audit runs changes both.
    inside = np.array([number % 2 == 1 for number in numbers])
    with errors_of(f"the trainings with seeds {seeds[0]}..."):
        scores: Any = np.asarray(trials(inside, seeds), dtype=np.float64)
    if scores.shape != (len(numbers),) or not np.isfinite(scores).all():
        got = f"shape {scores.shape}" if scores.shape != (len(numbers),) else f"{scores[~np.isfinite(scores)][0]}"
        raise InputError(
            f"scores: got {got} from the trainings with seeds {seeds[0]}...; it needs {len(numbers)} finite numbers.",
            source="the argument trials",
            remedy="leave out no run: find out why it failed",
        )
    return dict(zip(numbers, scores.tolist(), strict=True))


@contextmanager
def _bar(progress: bool, total: int) -> Iterator[Callable[[int], None]]:
    console = Console(stderr=True)
    if not progress or not console.is_terminal:
        yield lambda done: None
        return
    with Progress(console=console) as bar:
        task = bar.add_task("trainings", total=total)
        yield lambda done: bar.update(task, completed=done)
