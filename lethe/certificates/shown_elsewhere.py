"""A comparison or a sweep as a pandas frame, and as a picture that somebody else draws.

Drawing is done above, in `lethe.report`, and nothing here may know of it: `import lethe` tells who draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from lethe.errors import LetheError, MissingExtraError

_COLUMNS = ("theorem", "epsilon", "status", "proves", "reason", "covers", "ours")
_drawers: list[Callable[[Any], Any]] = []


def drawn_by(drawer: Callable[[Any], Any]) -> None:
    """Name the function that makes a matplotlib Figure of a comparison or a sweep; the last one named is used."""
    _drawers.append(drawer)


def figure_of(shown: Any) -> Any:
    """The figure of a comparison or a sweep.

    Raises:
        MissingExtraError: matplotlib is not installed.
        LetheError: nobody draws.
    """
    if not _drawers:
        raise LetheError("plot: nobody draws.", remedy="import lethe, which names lethe.report")
    return _drawers[-1](shown)


def frame_of(rows: Iterable[tuple[dict[str, Any], Any]], *, title: str) -> Any:
    """A pandas DataFrame with a line a row.

    Args:
        rows: columns that stand first, and a ComparisonRow.
        title: kept in `attrs`.
    Raises:
        MissingExtraError: pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("a frame needs pandas, which is not installed.", remedy="pip install pandas; or take to_dict()") from error
    lines = [
        {**first, **{name: getattr(row, name) for name in _COLUMNS}, "epsilon": math.nan if row.epsilon is None else row.epsilon}
        for first, row in rows
    ]
    frame: Any = pandas.DataFrame(lines)
    frame.attrs["title"] = title
    return frame
