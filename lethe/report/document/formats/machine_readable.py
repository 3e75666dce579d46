"""The report as JSON: every number of it, and its words."""

from __future__ import annotations

import math
from typing import Any

from lethe.documents.version import __version__
from lethe.report.document.model import Document


def content(document: Document) -> dict[str, Any]:
    """The report as plain data that JSON can hold; an infinite number is the text "inf"."""
    return _plain(
        {
            "report": 1,
            "title": document.title,
            "notices": [{"level": one.level, "heading": one.heading, "words": one.words} for one in document.notices],
            **document.data,
            "sections": {section.key: {"title": section.title, **section.data} for section in document.sections},
            "sources": dict(document.sources),
            "lethe": __version__,
        }
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return "inf" if isinstance(value, float) and value == math.inf else value
