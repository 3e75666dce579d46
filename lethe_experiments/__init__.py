"""Published figures and tables, computed again, with Lethe's own bound beside them."""

from __future__ import annotations

from collections.abc import Callable

from lethe.errors import InputError
from lethe_experiments.base import Options, Progress, Reproduction
from lethe_experiments.bok_tables import bok_figure_1, bok_table_1, bok_table_3, bok_table_4, bok_table_7
from lethe_experiments.hong.figure_1 import hong_figure_1
from lethe_experiments.hong.figure_1_left import hong_figure_1_left
from lethe_experiments.hong.tables import hong_tables
from lethe_experiments.kong_ribero_figure_1 import kong_ribero_figure_1
from lethe_experiments.kong_ribero_tables import kong_ribero_tables
from lethe_experiments.liang.figures import liang_figure_1, liang_figure_2
from lethe_experiments.liang.table_1 import liang_table_1
from lethe_experiments.lowy_razaviyayn.figure_1 import lowy_razaviyayn_figure_1
from lethe_experiments.matrix_mechanisms import matrix_mechanisms

__all__ = [
    "EXPERIMENTS",
    "REPRODUCTIONS",
    "Options",
    "Progress",
    "Reproduction",
    "describe",
    "reproduce",
    "require_options",
    "require_reproduction",
]

EXPERIMENTS: dict[str, Callable[[Progress | None, Options], Reproduction]] = {
    "hong-figure-1": hong_figure_1,
    "hong-figure-1-left": hong_figure_1_left,
    "liang-figure-1": liang_figure_1,
    "liang-figure-2": liang_figure_2,
}
"""Those that train, and so take options."""

REPRODUCTIONS: dict[str, Callable[[Progress | None], Reproduction]] = {
    "kong-ribero-figure-1": kong_ribero_figure_1,
    "kong-ribero-tables": kong_ribero_tables,
    "bok-table-1": bok_table_1,
    "bok-table-3": bok_table_3,
    "bok-table-4": bok_table_4,
    "bok-table-7": bok_table_7,
    "bok-figure-1": bok_figure_1,
    "hong-figure-1": hong_figure_1,
    "hong-figure-1-left": hong_figure_1_left,
    "hong-tables": hong_tables,
    "liang-figure-1": liang_figure_1,
    "liang-figure-2": liang_figure_2,
    "liang-table-1": liang_table_1,
    "lowy-razaviyayn-figure-1": lowy_razaviyayn_figure_1,
    "matrix-mechanisms": matrix_mechanisms,
}
"""What `lethe reproduce` knows."""


def reproduce(name: str, progress: Progress | None = None, options: Options | None = None) -> Reproduction:
    """Compute `name` again.

    Args:
        name: one of REPRODUCTIONS.
        progress: told (parts done, parts in all).
        options: for those in EXPERIMENTS only.
    Raises:
        InputError: there is none of that name, it takes no options and some were given, or it cannot use them.
        MissingExtraError: it trains, and PyTorch is not installed.
    """
    chosen = options or Options()
    require_options(name, chosen)
    return EXPERIMENTS[name](progress, chosen) if chosen.given() else REPRODUCTIONS[name](progress)


def require_options(name: str, options: Options) -> None:
    """Refuse a name that there is not, and options for one that takes none.

    Raises:
        InputError: there is none of that name, or it takes no options and some were given.
    """
    require_reproduction(name)
    if options.given() and name not in EXPERIMENTS:
        raise InputError(
            f"{', '.join(options.given())}: {name} takes no such options, because it trains nothing.",
            remedy=f"leave them out, or reproduce {', '.join(EXPERIMENTS)}.",
        )


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
