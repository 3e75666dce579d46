"""What all commands share: options, names that a shell completes, output, and the gate (a bound on epsilon above which a command fails).

Every file of verbs imports it, so that all have the same options and the same output. The gate makes a verb fail if its epsilon is above
`--max-epsilon`, for use in scripts.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import Progress

from lethe.documents.strict import require_place, to_json
from lethe.errors import InputError, LargeDeltaWarning

ERRORS = Console(stderr=True)
SHUT, INTERRUPTED = 1, 130
_PIPE_WIDTH = 140  # of what is no terminal: nobody sees where its lines end, and names must be found whole


def file_option(text: str, *suffixes: str, output: bool = True) -> Any:
    """An option, -o or its parameter's name, of a file with such a suffix; what cannot be written is refused before the long work."""

    def check(context: typer.Context, file: Path | None) -> Path | None:
        if file is not None and not context.resilient_parsing:
            require_place(file, *suffixes)
        return file

    return typer.Option(*(("-o", "--output") if output else ()), help=text, callback=check)


def _limit(limit: float | None) -> float | None:
    if limit is not None and not 0.0 <= limit < math.inf:
        raise InputError(f"--max-epsilon: got {limit:g}; it needs a finite number >= 0.", remedy="write --max-epsilon 1.")
    return limit


def beginning_with(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """What a shell offers when Tab is pressed."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


RunFile = Annotated[Path, typer.Argument(metavar="RUN", help="A run: .yaml or .json.")]
ProofFile = Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="A certificate, a statement or a total: .json.")]
Delta = Annotated[float, typer.Option("--delta", help="The delta of (epsilon, delta)-DP, in (0, 1), and below 1/records.")]
AllowLargeDelta = Annotated[
    bool, typer.Option("--allow-large-delta", help="Take a delta of 1/records or more, which promises next to nothing; it is told.")
]
MaxEpsilon = Annotated[
    float | None, typer.Option("--max-epsilon", help="Exit with status 1 if epsilon is above this; for scripts and CI.", callback=_limit)
]
KeyFile = Annotated[
    Path | None, typer.Option("--key", help="The public key, in PEM, of who must have sealed it; default: this installation's.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress; results, warnings and errors are shown all the same.")]


class Interrupted(Exception):
    """Ctrl-C where something was kept: its text says what, and how to go on."""


def say(text: object, style: str | None = None) -> None:
    """A line on standard error."""
    ERRORS.print(str(text), style=style, markup=False, highlight=False, soft_wrap=True)


def gate(epsilon: float, limit: float | None = None) -> None:
    """Call it last, after everything is printed and written: exit status 1, with the reason on standard error, where nothing is proved, or
    more than `limit` is; what is not a number never passes.
    """
    if not epsilon < math.inf:
        say("lethe: NOT PRIVATE: no epsilon is proved.", "red")
    elif limit is not None and not epsilon <= limit:
        say(f"lethe: epsilon = {float(epsilon)!r} is above --max-epsilon {limit!r}.", "red")
    else:
        return
    raise typer.Exit(SHUT)


@contextmanager
def working(task: str, quiet: bool) -> Iterator[None]:
    """A sign on standard error that something is being done, unless it is to be quiet."""
    with nullcontext() if quiet else ERRORS.status(task):
        yield


@contextmanager
def progress_bar(task: str, quiet: bool, **options: Any) -> Iterator[Callable[[int, int], None]]:
    """What is to be told (parts done, parts in all), for rich's bar on standard error, unless that is no terminal or is to be quiet."""
    with Progress(transient=True, console=ERRORS, disable=quiet or not ERRORS.is_terminal, **options) as bar:
        running = bar.add_task(task, total=None)
        yield lambda done, parts: bar.update(running, completed=done, total=parts)


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """A line on standard error for each warning of a large delta, and never twice the same."""
    printed: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", LargeDeltaWarning)
        original = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *location: Any) -> None:
            text = f"lethe: warning: {message}"
            if not issubclass(category, LargeDeltaWarning):
                original(message, category, *location)
            elif text not in printed:
                printed.add(text)
                say(text, "yellow")

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


def print_json(content: object) -> None:
    """Print one JSON object."""
    print(to_json(content), end="")
