"""Results as print, repr and notebooks show them: few lines, long lists of numbers by their number and range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

MOST_LINES = 12
"""How many lines `print` shows of a result."""
_MOST_ENTRIES = 6
_SURE = ("    checked ", "    enforced ")
_WARNS = ("note:", "NOT PRIVATE", "    FAILS", "    NOT SEALED")
_MOST_LETTERS = 60
_CAPTION = "text-align:left;font-weight:bold"
_CELL = "text-align:left;vertical-align:top"


class _InShort(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def shortened(value: Any) -> Any:
    """The value for a repr: a long list by its length and range, a long text by its beginning; anything else as it is."""
    if isinstance(value, np.ndarray | list | tuple) and len(value) > _MOST_ENTRIES:  # pyright: ignore[reportUnknownArgumentType]
        numbers = all(isinstance(one, int | float) for one in value)  # pyright: ignore[reportUnknownVariableType]
        span = f" from {min(value):.4g} to {max(value):.4g}" if numbers else ""  # pyright: ignore[reportUnknownArgumentType]
        return _InShort(f"<{len(value)} values{span}>")  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, str) and len(value) > _MOST_LETTERS:
        return value[: _MOST_LETTERS - 3] + "..."
    return value


def few_lines(lines: Sequence[str], *, whole: str, most: int = MOST_LINES) -> str:
    """At most `most` lines of text; the last one then counts those left out.

    Args:
        lines: of the whole text, the important ones first.
        whole: how to get all of it, such as "explain()".
        most: at least 2.
    """
    if len(lines) <= most:
        return "\n".join(lines)
    return "\n".join([*lines[: most - 1], f"and {len(lines) - most + 1} more lines: {whole}"])


def page_in_few_lines(lines: Sequence[str], *, head: int) -> str:
    """A page of a guarantee in few lines: what warns, fails or is declared stays, of what is sure only the number.

    Args:
        lines: of the whole page.
        head: how many of them say what holds and by what.
    """
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    sure = [line for line in lines[head:] if line.startswith(_SURE)]
    warned = [line for line in lines[head:] if line.startswith(_WARNS)]
    rest = [line for line in lines[head:] if line not in (*sure, *warned)]
    counted = [f"    {len(sure)} hypotheses are checked or enforced"] if sure else []
    return few_lines([*lines[:head], *warned, *counted, *rest], whole="explain()")


def thinned(count: int, most: int) -> list[int]:
    """Places of at most `most` >= 2 of `count` entries, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(place * (count - 1) / (most - 1)) for place in range(most)})


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as an HTML fragment.

    Args:
        caption: what it shows.
        head: one entry a column; empty: no head.
        rows: one entry a column each, the first of which names the row.
    """
    heads = "".join(f'<th scope="col" style="{_CELL}">{escape(words)}</th>' for words in head)
    top = f"<thead><tr>{heads}</tr></thead>" if head else ""
    body = "".join(f"<tr>{_row(row)}</tr>" for row in rows)
    return f'<table><caption style="{_CAPTION}">{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>'


def _row(row: Sequence[str]) -> str:
    first, *rest = map(escape, row)
    return f'<th scope="row" style="{_CELL}">{first}</th>' + "".join(f'<td style="{_CELL}">{words}</td>' for words in rest)
