"""A document as one HTML page, as Markdown and as LaTeX: one template a format, and how each writes words that are only words.

writing.py calls the writer that a file's name asks for; the commands write pages of audits and ledgers by `html`. Text comes from files of
other people, so each format escapes it.
"""

import re
import unicodedata
from collections.abc import Callable
from itertools import count
from typing import Any
from xml.etree import ElementTree

import yaml

from lethe.errors import MissingExtraError
from lethe.report.model import COLOURS, Document, Picture

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup
except ImportError as error:
    raise MissingExtraError("reports need jinja2, which is not installed.", remedy='pip install "lethe-dp[report]"') from error

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$])")
_SPACES = re.compile(r"\s+")
_BEGINS_A_BLOCK = re.compile(r"^(?:[-+=](?=[-+=\s]|$)|\d+[.)](?=\s|$))")
_GREEK = ("ge", "le", "varepsilon", "delta", "mu", "rho", "infty")
_TEX = {
    **{letter: f"\\{letter}" for letter in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textquoteleft{}",
    **{letter: rf"\ensuremath{{{letter}}}" for letter in "<>|"},
    "*": "{*}",
    '"': "''",
    "[": "{[}",
    "]": "{]}",
    **dict(zip("–—“”‘’…", ("--", "---", "``", "''", "`", "'", r"\ldots{}"), strict=True)),
    **{letter: rf"{{\{name}}}" for letter, name in zip("øØłŁßæ", ("o", "O", "l", "L", "ss", "ae"), strict=True)},
    **{letter: rf"\ensuremath{{\{name}}}" for letter, name in zip("≥≤εδμρ∞", _GREEK, strict=True)},
}
_ACCENTS = {"̀": "`", "́": "'", "̂": "^", "̃": "~", "̈": '"', "̄": "=", "̇": ".", "̌": "v", "̧": "c", "̊": "r", "̋": "H"}
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def html(document: Document) -> str:
    """One page that needs nothing but itself; all of it is escaped but the drawings, whose foreign words are escaped as they are drawn."""
    numbers = count()

    def drawing(picture: Picture) -> Markup:
        from lethe.report.drawing import page_svg  # needs the optional matplotlib

        drawn = picture.plot if isinstance(picture.plot, str) else page_svg(picture.plot, picture.height)
        return Markup(_svg_in_page(drawn, f"picture{next(numbers)}", picture.alt))

    return _rendered("report.html.j2", escape=True, document=document, drawing=drawing)


def markdown(document: Document) -> str:
    """A section for a model card, with metadata as Hugging Face reads it; without pictures, whose numbers are in the tables."""
    private, data = bool(document.data["private"]), document.section("guarantee").data
    facts = {name: data[name] for name in ("epsilon", "delta", "neighbours", "release")}
    metadata = {
        "tags": ["differential-privacy" if private else "not-private", "lethe"],
        "differential_privacy": {"private": private, "sealed": bool(document.data["sealed"]), **facts},
    }
    text = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=100)
    return _rendered("report.md.j2", document=document, metadata=text)


def latex(document: Document) -> str:
    r"""A paragraph with the guarantee, a table of the settings, lists of what it rests on, and the sources; to be read in with \input.

    In plain ASCII and without packages. What it rests on may be long, and a tabular runs off the end of a page: only the table of the
    settings, which has a dozen rows, is one.
    """
    return _rendered("report.tex.j2", document=document)


WRITERS: dict[str, Callable[[Document], str]] = {".html": html, ".md": markdown, ".tex": latex}


def _rendered(template: str, *, escape: bool = False, **content: Any) -> str:
    loader = PackageLoader("lethe.report")
    environment = Environment(
        loader=loader, autoescape=escape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters.update(md=in_markdown, fence=fenced, tex=in_latex)
    return environment.get_template(template).render(kind=lambda block: type(block).__name__.lower(), **content)


def in_markdown(text: str) -> str:
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


def in_latex(text: str) -> str:
    """Text that LaTeX prints as it is, in ASCII; a letter that it has no plain way to print is named by its number."""
    return "".join(_letter(letter) for letter in " ".join(text.split()))


def _letter(letter: str) -> str:
    if letter in _TEX:
        return _TEX[letter]
    if letter.isascii():
        return letter if letter.isprintable() else ""
    base, *marks = unicodedata.normalize("NFD", letter)
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"\\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"(U+{ord(letter):04X})"


def _svg_in_page(drawn: str, name: str, alt: str) -> str:
    """An SVG of matplotlib made fit to stand in a page: the page's colours, no names that meet others, nothing that refers outside."""
    root = ElementTree.fromstring(drawn)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("metadata", "style")):
                parent.remove(child)
    used = set(re.findall(r"#([\w-]+)", " ".join(value for element in root.iter() for value in element.attrib.values() if "#" in value)))
    for one in root.iter():
        one.tag = one.tag.removeprefix(_SVG)
        if (link := one.attrib.pop(_LINK, None)) is not None:
            one.set("href", f"#{name}-{link.removeprefix('#')}")
        if (label := one.attrib.pop("id", None)) in used:
            one.set("id", f"{name}-{label}")
        for key in ("style", "clip-path", "fill", "stroke"):
            if (value := one.get(key)) is not None:
                for role, colour in COLOURS.items():
                    value = value.replace(colour, f"var(--{role})")
                one.set(key, value.replace("url(#", f"url(#{name}-"))
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    for key, value in (("role", "img"), ("aria-label", alt), ("focusable", "false")):
        root.set(key, value)
    return ElementTree.tostring(root, encoding="unicode")
