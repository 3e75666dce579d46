"""The report as a section of a model card: Markdown below metadata as Hugging Face reads it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from lethe.report.document.formats.html import kind_of
from lethe.report.document.formats.templates import rendered
from lethe.report.document.model import Document

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")
_SPACES = re.compile(r"\s+")
_BEGINS_A_BLOCK = re.compile(r"^(?:[-+=](?=[-+=\s]|$)|\d+[.)](?=\s|$))")


def markdown(document: Document) -> str:
    """The model card section, without pictures: their numbers are in the tables."""
    metadata = yaml.safe_dump(_metadata(document), sort_keys=False, allow_unicode=True, width=100)
    filters = {"md": escaped, "fence": fenced}
    return rendered("report.md.j2", escape=False, filters=filters, metadata=metadata, document=document, kind=kind_of)


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: one line, nothing in it is markup, HTML, a link, or the end of a table's cell."""
    line = _SPACES.sub(" ", text).strip()
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = _SPECIAL.sub(r"\\\1", line).replace("://", ":&#47;/").replace("www.", "www&#46;")
    if (begin := _BEGINS_A_BLOCK.match(line)) is not None:
        return f"{line[: begin.end() - 1]}\\{line[begin.end() - 1 :]}"
    return line


def fenced(text: str) -> str:
    """A block of code whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _metadata(document: Document) -> dict[str, Any]:
    section = document.section("guarantee")
    assert section is not None
    private = bool(document.data["private"])
    return {
        "tags": ["differential-privacy", "lethe"] if private else ["not-private", "lethe"],
        "differential_privacy": {
            "private": private,
            "sealed": bool(document.data["sealed"]),
            "epsilon": section.data["epsilon"],
            "delta": section.data["delta"],
            "neighbours": section.data["neighbours"],
            "release": section.data["release"],
        },
    }
