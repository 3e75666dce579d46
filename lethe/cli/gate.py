"""The gate of the verbs that state an epsilon: exit status 1 where nothing is proved, or where more than --max-epsilon is."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from lethe.calculus.upward_formatting import shown
from lethe.cli.console import ERRORS
from lethe.errors import InputError

SHUT = 1

MaxEpsilon = Annotated[float | None, typer.Option("--max-epsilon", help="Exit with status 1 if epsilon is above this; for scripts and CI.")]


def require_limit(limit: float | None) -> float | None:
    """--max-epsilon itself if it is None or a finite number >= 0; call it before the long work.

    Raises:
        InputError: it is something else.
    """
    if limit is not None and not 0.0 <= limit < math.inf:
        raise InputError(f"--max-epsilon: got {limit:g}; it needs a finite number >= 0.", remedy="write --max-epsilon 1.")
    return limit


def why_shut(epsilon: float, limit: float | None) -> str | None:
    """The line that says why an epsilon does not pass; None: it does. What is not a number never passes.

    Args:
        epsilon: what is proved.
        limit: the largest that passes; None: any finite one.
    """
    if not epsilon < math.inf:
        return "NOT PRIVATE: no epsilon is proved."
    if limit is not None and not epsilon <= limit:
        return f"epsilon = {shown(epsilon)} is above --max-epsilon {limit:.17g}."
    return None


def gate(epsilon: float, limit: float | None) -> None:
    """Call it last, after everything is printed and written.

    Raises:
        typer.Exit: with status 1 and the reason on standard error, where `epsilon` does not pass.
    """
    if (reason := why_shut(epsilon, limit)) is not None:
        ERRORS.print(f"lethe: {reason}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(SHUT)
