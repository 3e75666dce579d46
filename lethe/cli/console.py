"""What the verbs share: where messages and pages go, and the options that several have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console, RenderableType

ERRORS = Console(stderr=True)
INTERRUPTED = 130
_PIPE_WIDTH = 140  # of what is no terminal: nobody sees where its lines end, and names must be found whole

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


class Interrupted(Exception):
    """Ctrl-C where something was kept: its text says what, and how to go on."""


def page_console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for them where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, _PIPE_WIDTH))


def print_tables(tables: Iterable[RenderableType]) -> None:
    """Print each."""
    page = page_console()
    for table in tables:
        page.print(table)
