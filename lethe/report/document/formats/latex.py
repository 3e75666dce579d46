"""The report as a paragraph, a table and lists for a paper's appendix, in plain ASCII and without packages.

What it rests on may be long, and a tabular runs off the end of a page: only the table of the settings, which has a dozen rows, is one.
"""

from __future__ import annotations

import unicodedata

from lethe.report.document.formats.templates import rendered
from lethe.report.document.model import Document, Table

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    "*": "{*}",
    '"': "''",
    "`": r"\textquoteleft{}",
    "[": "{[}",
    "]": "{]}",
    "–": "--",
    "—": "---",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "…": r"\ldots{}",
    "ø": r"{\o}",
    "Ø": r"{\O}",
    "ł": r"{\l}",
    "Ł": r"{\L}",
    "ß": r"{\ss}",
    "æ": r"{\ae}",
    "é": r"\'e",
    "≥": r"\ensuremath{\ge}",
    "≤": r"\ensuremath{\le}",
    "ε": r"\ensuremath{\varepsilon}",
    "δ": r"\ensuremath{\delta}",
    "μ": r"\ensuremath{\mu}",
    "ρ": r"\ensuremath{\rho}",
    "∞": r"\ensuremath{\infty}",
}
_ACCENTS = {"̀": "`", "́": "'", "̂": "^", "̃": "~", "̈": '"', "̄": "=", "̇": ".", "̌": "v", "̧": "c", "̊": "r", "̋": "H"}


def latex(document: Document) -> str:
    """A paragraph with the guarantee, a table of the settings, lists of what it rests on, and the sources; to be read in with \\input."""
    guarantee, rests = document.section("guarantee"), document.section("hypotheses")
    assert guarantee is not None
    assert rests is not None
    glance = tuple(guarantee.data["glance"].items())
    tables = [block for block in rests.blocks if isinstance(block, Table) and block.rows]  # a list without entries is an error
    return rendered(
        "report.tex.j2",
        escape=False,
        filters={"tex": escaped},
        document=document,
        sentence=guarantee.data["sentence"],
        glance=glance,
        tables=tables,
        void=rests.data["void_if"],
    )


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is, in ASCII; a letter that it has no plain way to print is named by its number."""
    return "".join(_letter(letter) for letter in " ".join(text.split()))


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter.isascii():
        return letter if letter.isprintable() else ""
    base, *marks = unicodedata.normalize("NFD", letter)
    if base.isascii() and base.isalpha() and len(marks) == 1 and marks[0] in _ACCENTS:
        return f"\\{_ACCENTS[marks[0]]}{{{base}}}"
    return f"(U+{ord(letter):04X})"
