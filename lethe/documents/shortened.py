"""Short forms of results for print, repr and notebooks: few lines, long lists of numbers by their length and range.

Certificates, comparisons, specifications and estimators call these in their `__repr__` and `_repr_html_`.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

MOST_LINES = 12
"""How many lines `print` shows of a result."""
_MOST_ENTRIES = 6
_SURE = ("    checked ", "    enforced ")
_WARNS = ("note:", "NOT PRIVATE", "NOT COVERED", "    FAILS", "    NOT SEALED")
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
        numbers = all(isinstance(entry, int | float) for entry in value)  # pyright: ignore[reportUnknownVariableType]
        span = f" from {min(value):.4g} to {max(value):.4g}" if numbers else ""  # pyright: ignore[reportUnknownArgumentType]
        return _InShort(f"<{len(value)} values{span}>")  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, str) and len(value) > _MOST_LETTERS:
        return value[: _MOST_LETTERS - 3] + "..."
    return value


def few_lines(lines: Sequence[str], *, whole: str) -> str:
    """At most twelve lines, the important ones first; the last then counts those left out, and says how to get the `whole`."""
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[: MOST_LINES - 1], f"and {len(lines) - MOST_LINES + 1} more lines: {whole}"])


def page_in_few_lines(lines: Sequence[str], *, head: int) -> str:
    """A page of a guarantee in few lines: its `head`, and what warns, fails or is declared; of what is sure only the number."""
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    sure = [line for line in lines[head:] if line.startswith(_SURE)]
    warned = [line for line in lines[head:] if line.startswith(_WARNS)]
    rest = [line for line in lines[head:] if line not in (*sure, *warned)]
    counted = [f"    {len(sure)} hypotheses are checked or enforced"] if sure else []
    return few_lines([*lines[:head], *warned, *counted, *rest], whole="explain()")


def thinned(count: int, limit: int) -> list[int]:
    """Indices of at most `limit` >= 2 of `count` entries, evenly, the first and the last among them."""
    if count <= limit:
        return list(range(count))
    return sorted({round(index * (count - 1) / (limit - 1)) for index in range(limit)})


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as an HTML fragment: a head with one entry a column, or none, and rows, the first entry of which names each."""

    def cells(row: Sequence[str], scope: str) -> str:
        tags = [f'th scope="{scope}"', *(["td"] if scope == "row" else [f'th scope="{scope}"']) * (len(row) - 1)]
        return "<tr>" + "".join(f'<{tag} style="{_CELL}">{escape(text)}</{tag[:2]}>' for tag, text in zip(tags, row, strict=True)) + "</tr>"

    top = f"<thead>{cells(head, 'col')}</thead>" if head else ""
    body = "".join(cells(row, "row") for row in rows)
    return f'<table><caption style="{_CAPTION}">{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>'
