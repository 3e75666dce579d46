"""Progress of a training loop: a bar for people, a callback for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as Bar

from lethe.errors import InputError

Progress = Callable[[int, int], None]
"""Is given the number of each finished step, from 1, and that of all."""


@contextmanager
def reporting(progress: bool | Progress, steps: int) -> Iterator[Progress]:
    """A function to call with the number of each finished step (from 1), and that of all.

    `progress` is True: a bar on standard error if that is a terminal; False: nothing; or a function of (step, steps); others are refused.
    It is told how far training is and never sees an iterate, which the certificate says is not released.
    """
    finished = progress_of(progress)
    if progress is True and sys.stderr.isatty():
        with Bar(console=Console(stderr=True)) as bar:
            task = bar.add_task("training", total=steps)
            yield lambda step, steps: bar.update(task, completed=step)
    else:
        yield finished


def progress_of(progress: bool | Progress) -> Progress:
    """The function that was given, or one that does nothing.

    Raises:
        InputError: neither a function nor True or False.
    """
    if callable(progress):
        return progress
    if not isinstance(progress, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"progress: got {progress!r}; it needs True, False or a function of (step, steps).")
    return lambda step, steps: None
