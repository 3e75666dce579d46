"""Published figures and tables, computed again, with Lethe's own bound beside them."""

from __future__ import annotations

from collections.abc import Callable

from lethe.errors import InputError
from lethe.reproduce.base import Progress, Reproduction
from lethe.reproduce.bok_tables import bok_figure_1, bok_table_1, bok_table_3, bok_table_4, bok_table_7
from lethe.reproduce.kong_ribero_figure_1 import kong_ribero_figure_1

__all__ = ["REPRODUCTIONS", "Progress", "Reproduction", "describe", "require_reproduction"]

REPRODUCTIONS: dict[str, Callable[[Progress | None], Reproduction]] = {
    "kong-ribero-figure-1": kong_ribero_figure_1,
    "bok-table-1": bok_table_1,
    "bok-table-3": bok_table_3,
    "bok-table-4": bok_table_4,
    "bok-table-7": bok_table_7,
    "bok-figure-1": bok_figure_1,
}
"""What `lethe reproduce` knows."""


def describe(name: str) -> str:
    """What `name` is, in a line.

    Raises:
        InputError: there is none of that name.
    """
    return (require_reproduction(name).__doc__ or name).splitlines()[0]


def require_reproduction(name: str) -> Callable[[Progress | None], Reproduction]:
    """The function that computes `name` again.

    Raises:
        InputError: there is none of that name.
    """
    if name not in REPRODUCTIONS:
        raise InputError(f"{name!r} is nothing that can be reproduced.", remedy=f"choose one of {', '.join(REPRODUCTIONS)}.")
    return REPRODUCTIONS[name]
