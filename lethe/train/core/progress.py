"""Progress of a training loop: a bar for people, a callback for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from lethe.errors import InputError

Callback = Callable[[int, int], None]


@contextmanager
def reporting(progress: bool | Callback, steps: int) -> Iterator[Callback]:
    """A function to call with the number of each finished step (from 1), and that of all.

    `progress` is True: a bar on standard error if that is a terminal; False: nothing; or a function of (step, steps); others are refused.
    It is told how far training is and never sees an iterate, which the certificate says is not released.
    """
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise InputError(f"progress: got {progress!r}; it needs True, False or a function of (step, steps).")
    elif progress and sys.stderr.isatty():
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("training", total=steps)
            yield lambda step, steps: bar.update(task, completed=step)
    else:
        yield lambda step, steps: None
