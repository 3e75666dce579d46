"""Console output and options shared by all verbs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import Progress

from lethe.errors import LargeDeltaWarning

ERRORS = Console(stderr=True)
INTERRUPTED = 130
_PIPE_WIDTH = 140  # of what is no terminal: nobody sees where its lines end, and names must be found whole

RunFile = Annotated[Path, typer.Argument(metavar="RUN", help="A run: .yaml or .json.")]
Delta = Annotated[float, typer.Option("--delta", help="The delta of (epsilon, delta)-DP, in (0, 1), and below 1/records.")]
AllowLargeDelta = Annotated[
    bool, typer.Option("--allow-large-delta", help="Take a delta of 1/records or more, which promises next to nothing; it is told.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress; results, warnings and errors are shown all the same.")]


@contextmanager
def working(task: str, quiet: bool) -> Iterator[None]:
    """A sign on standard error that something is being done, unless it is to be quiet."""
    with nullcontext() if quiet else ERRORS.status(task):
        yield


@contextmanager
def progress_bar(task: str, quiet: bool, **options: Any) -> Iterator[Callable[[int, int], None]]:
    """What is to be told (parts done, parts in all), for a bar on standard error where that is a terminal and nobody wants it quiet.

    Args:
        task: its name.
        quiet: whether there is none.
        options: of rich's Progress.
    """
    with Progress(transient=True, console=ERRORS, disable=quiet or not ERRORS.is_terminal, **options) as bar:
        running = bar.add_task(task, total=None)
        yield lambda done, parts: bar.update(running, completed=done, total=parts)


class Interrupted(Exception):
    """Ctrl-C where something was kept: its text says what, and how to go on."""


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """A line on standard error for each warning of a large delta, and never twice the same."""
    told: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", LargeDeltaWarning)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any) -> None:
            text = f"lethe: warning: {message}"
            if not issubclass(category, LargeDeltaWarning):
                others(message, category, *place)
            elif text not in told:
                told.add(text)
                ERRORS.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

        warnings.showwarning = show
        yield


def page_console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for them where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _PIPE_WIDTH))


def print_tables(tables: Iterable[RenderableType]) -> None:
    """Print each."""
    page = page_console()
    for table in tables:
        page.print(table)
