"""Independent trainings through joblib, in this process, in others, or on whatever cluster `joblib.parallel_config` names; their scores.

The games (two_worlds.py, canaries.py, shadow_models.py) run their trainings here: hundreds of them need many processes, and one that fails
must not lose the others or be left out unseen.
"""

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import joblib
import numpy as np

from lethe.audit.statistics.counts import Booleans
from lethe.calculus.domains import FloatArray
from lethe.errors import InputError, LetheError

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TwoWorldScores:
    """Scores of trainings without and with the record, shapes (n0,) and (n1,); higher where it seems to have been there."""

    out_scores: FloatArray
    in_scores: FloatArray
    seed: int

    @property
    def repeats(self) -> bool:
        """Whether no more than half of a world's scores are distinct: with continuous noise, that noise was used again."""
        return min(np.unique(world).size / world.size for world in (self.out_scores, self.in_scores)) <= 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OneRunScores:
    """Scores of the canaries of one run, higher where one seems to have been there, and the coins, shapes (m,)."""

    scores: FloatArray
    included: Booleans
    seed: int


@contextmanager
def errors_of(whose: str) -> Iterator[None]:
    """Turn what a user's code raises into an InputError that says in which training, and where; Lethe's own errors and interrupts pass."""
    try:
        yield
    except LetheError:
        raise
    except Exception as error:  # whatever the user's code raises
        at = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"{whose} raised {type(error).__name__}: {error}",
            source=f"{at.filename}, line {at.lineno}",
            remedy="mend it, and play again: an audit leaves out no training.",
        ) from error


def as_score(value: Any, whose: str) -> float:
    """The float that it is, or InputError; whether it is finite is asked where scores are gathered."""
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{whose} returned {type(value).__name__}; it needs a number.") from error


def as_they_end(tasks: Iterable[Any], workers: int | None = None, *, what: str = "trials", ordered: bool = False) -> Iterator[Any]:
    """What each of `joblib.delayed` tasks gave, as it ends; what goes wrong between processes is said in a sentence.

    Tasks are asked for as workers need them. No `workers`: as many as `joblib.parallel_config` says, or one.
    """
    try:
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator" if ordered else "generator_unordered")
    except ValueError:  # a backend that hands over all results at once, such as Ray's
        parallel = joblib.Parallel(n_jobs=workers)
    try:
        yield from parallel(tasks)  # pyright: ignore[reportReturnType]
    except pickle.PicklingError as error:
        raise InputError(
            f"{what}: they cannot be handed to another process: {error}",
            source="the argument workers, or joblib.parallel_config",
            remedy=f"train in one process, or give {what} that can be pickled",
        ) from error
    except Exception as error:
        if not isinstance(error, BrokenExecutor) and type(error).__module__.partition(".")[0] not in ("distributed", "ray"):
            raise
        source, remedy = "the argument workers, or joblib.parallel_config", "use fewer workers: memory may be short; see their logs"
        raise LetheError(f"a process that trained, or the cluster, gave up: {error}", source=source, remedy=remedy) from error


def all_trained(
    train: Callable[..., Result], jobs: Iterable[tuple[Any, ...]], *, finished: Callable[[], None] = lambda: None
) -> list[Result]:
    """What each of some independent trainings gave, in the order of the jobs (their arguments), wherever they were carried out."""
    results, arguments = list[Result](), list(jobs)
    for result in as_they_end((joblib.delayed(train)(*each) for each in arguments), what="trainings", ordered=True):
        results.append(result)
        finished()
    require_all(len(results), len(arguments))
    return results


def require_all(results: int, trainings: int) -> None:
    """Refuse results of fewer trainings than there were by a LetheError: nothing is said of the others alone."""
    if results < trainings:
        lost = f"{trainings - results} of {trainings} trainings gave no result; nothing is said of the others alone."
        remedy = "start again; of an audit with a score file, what has ended is not repeated"
        raise LetheError(lost, source="what carries out the trainings for joblib", remedy=remedy)
