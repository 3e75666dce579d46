"""The report as one HTML file that needs nothing but itself."""

from __future__ import annotations

from markupsafe import Markup

from lethe.report.document.formats.templates import rendered
from lethe.report.document.model import Block, Document, Picture
from lethe.report.document.svg import for_page


def html(document: Document) -> str:
    """The page. Everything in it is escaped but the drawings, whose only foreign words are escaped as they are drawn."""
    names = iter(range(10**6))

    def drawing(picture: Picture) -> Markup:
        return Markup(for_page(picture.draw(), f"picture{next(names)}", picture.alt))

    return rendered("report.html.j2", escape=True, document=document, kind=kind_of, drawing=drawing)


def kind_of(block: Block) -> str:
    """The name of a block's kind, for templates."""
    return type(block).__name__.lower()
