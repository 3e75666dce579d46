"""Progress of passes over blocks: a bar for people, a callback for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn

from lethe.errors import InputError

# The number of the pass, from 1; blocks done; blocks of the pass.
BlockCallback = Callable[[int, int, int], None]


@contextmanager
def blocks_told(
    progress: bool | BlockCallback, number: int, blocks: int, *, seconds_before: float | None = None
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of finished blocks of a pass.

    Args:
        progress: True: a bar on standard error if that is a terminal; False: nothing; or a function of (pass, blocks done, blocks).
        number: of the pass, from 1.
        blocks: how many it has.
        seconds_before: what the pass before took, which the bar shows; None: there was none.
    """
    if callable(progress):
        yield lambda done: progress(number, done, blocks)
    elif progress and sys.stderr.isatty():
        with Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
            before = "" if seconds_before is None else f" (the one before took {seconds_before:.0f} s)"
            task = bar.add_task(f"pass {number}{before}", total=blocks)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield lambda done: None


def require_progress(progress: object) -> None:
    """Refuse what is neither a truth value nor a function.

    Raises:
        InputError: see above.
    """
    if not isinstance(progress, bool) and not callable(progress):
        raise InputError(f"progress: got {progress!r}; it needs True, False or a function of (pass, blocks done, blocks).")
