"""Independent trainings through joblib: in this process, in others, or on whatever cluster `joblib.parallel_config` names."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from typing import Any, TypeVar

import joblib

from lethe.errors import InputError, LetheError

Result = TypeVar("Result")


def as_they_end(tasks: Iterable[Any], workers: int | None = None, *, what: str = "trials") -> Iterator[Any]:
    """What each task gave, as it ends; what goes wrong between processes is said in a sentence.

    Args:
        tasks: made by `joblib.delayed`; they are asked for as workers need them.
        workers: joblib's n_jobs; None: what `joblib.parallel_config` says, or one.
        what: they are of, for errors.
    Raises:
        InputError: a task cannot be handed to another process.
        LetheError: a process or a cluster gave one up.
    """
    try:
        yield from _parallel(workers)(tasks)  # pyright: ignore[reportReturnType]
    except pickle.PicklingError as error:
        raise InputError(
            f"{what}: they cannot be handed to another process: {error}",
            source="the argument workers, or joblib.parallel_config",
            remedy=f"train in one process, or give {what} that can be pickled",
        ) from error
    except BrokenExecutor as error:
        raise LetheError(
            f"a process that trained has died: {error}",
            source="the argument workers, or joblib.parallel_config",
            remedy="use fewer workers; memory may be short",
        ) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("distributed", "ray"):
            raise
        raise LetheError(
            f"the cluster gave up a training: {error}", source="joblib's backend", remedy="look at the logs of its workers"
        ) from error


def _parallel(workers: int | None) -> joblib.Parallel:
    try:
        return joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    except ValueError:  # a backend that hands over all results at once, such as Ray's
        return joblib.Parallel(n_jobs=workers)


def all_trained(
    train: Callable[..., Result], jobs: Iterable[tuple[Any, ...]], *, finished: Callable[[], None] = lambda: None
) -> list[Result]:
    """What each of some independent trainings gave, in the order of the jobs, wherever and in whatever order they were carried out.

    Args:
        train: one training; whatever is random in it must follow from its arguments. It must pickle where it leaves this process.
        jobs: the arguments of each.
        finished: is told of each training's end.
    Raises:
        InputError, LetheError: as `as_they_end`; or a training gave nothing, and the others alone would be another result.
    """
    found, count = dict[int, Result](), [0]

    def tasks() -> Iterator[Any]:
        for place, job in enumerate(jobs):
            count[0] = place + 1
            yield joblib.delayed(_numbered)(place, train, job)

    for place, result in as_they_end(tasks(), what="trainings"):
        found[place] = result
        finished()
    refuse_lost(count[0], found)
    return [found[place] for place in range(count[0])]


def refuse_lost(count: int, found: dict[int, Any], seeds: list[int] | None = None) -> None:
    """Refuse results some of which are missing.

    Args:
        count: how many there should be, numbered from 0.
        found: by number.
        seeds: of the trainings, for the error; None: it says their number.
    Raises:
        LetheError: a training gave nothing.
    """
    if lost := [place for place in range(count) if place not in found]:
        first = f"number {lost[0] + 1}" if seeds is None else f"with seed {seeds[lost[0]]}"
        raise LetheError(
            f"{len(lost)} of {count} trainings gave no result, the first {first}; nothing is said of the others alone.",
            source="what carries out the trainings for joblib",
            remedy="start again; of an audit with a score file, what has ended is not repeated",
        )


def _numbered(place: int, train: Callable[..., Result], job: tuple[Any, ...]) -> tuple[int, Result]:
    return place, train(*job)
