"""Progress of a long computation: a function that is called with each part done, or a bar on a terminal. The localised solvers, which may
take hours, call it with the parts done so far.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.errors import LiveError
from rich.progress import Progress as Bar

from lethe.errors import InputError

Progress = Callable[[int, int], None]
"""Is given how many parts are done, from 1, such as steps, and how many there are in all."""


@contextmanager
def reporting(progress: bool | Progress, total: int, what: str) -> Generator[Progress]:
    """A function to call with the number of parts done, and that of all.

    `progress` is True: a bar on standard error, if that is a terminal, which says `what` is done; False: nothing; or a function of (done,
    total); others are refused. It is told how far the computation is and never sees an iterate, which may not be released.
    """
    if not isinstance(progress, bool):
        if not callable(progress):
            raise InputError(f"progress: got {progress!r}; it needs True, False or a function of (done, total).")
        yield progress
        return
    if not progress or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    bar = Bar(console=Console(stderr=True))
    task = bar.add_task(what, total=total)
    with suppress(LiveError):  # another bar is there already, which this computation is a part of
        bar.start()
    try:
        yield lambda done, total: bar.update(task, completed=done)
    finally:
        bar.stop()
