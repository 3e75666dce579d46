"""Small HTML tables for notebooks: everything in them is escaped, and they need nothing but themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CAPTION = "text-align:left;font-weight:bold"
_CELL = "text-align:left;vertical-align:top"


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
    cells = "".join(f'<td style="{_CELL}">{words}</td>' for words in rest)
    return f'<th scope="row" style="{_CELL}">{first}</th>{cells}'
