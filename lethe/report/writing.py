"""write: a report in the format that the name of its file asks for.

Called by users (`lethe.report.write`), by a training's result, and by `lethe report`.
"""

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from lethe.audit.page import AuditPage
from lethe.calculus.domains import require_switch
from lethe.certificates.keys import PublicKey
from lethe.documents.strict import as_path, require_place, to_json, write_bytes
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.report.model import Document
from lethe.report.sections.build import document_of
from lethe.report.subject import Curve, Subject, as_curves, described, subject_of, with_extras

FORMATS = (".html", ".md", ".tex", ".json")
"""How the name of a report may end."""


def write(
    subject: object,
    path: str | os.PathLike[str],
    *,
    purpose: str | None = None,
    data_set: str | None = None,
    by: str | None = None,
    delta: float | None = None,
    audits: Iterable[AuditPage] = (),
    curves: Iterable[Curve | Mapping[str, Any]] = (),
    private: bool = False,
    weights: Any = None,
    key: PublicKey | None = None,
    allow_large_delta: bool = False,
) -> None:
    """Write the report of a training: what is promised, to whom, what it rests on, what would make it void.

    Args:
        subject: a Run (with `delta`), a Certificate or Comparison, what training returned (with `delta`), a fitted estimator or its
            statement, what scikit-learn fitted around some (a pipeline, a threshold), a Total; or the path of a run, of a saved
            certificate, statement or total, or of a folder of `lethe train`. What is certified is certified again first.
        path: a file that ends in .html (one page that needs nothing but itself), .md (a section for a model card), .tex (a paragraph and a
            table for a paper) or .json (everything, for programs).
        purpose: the title, such as "Which patients come back within 30 days"; None: that of the folder's configuration, if any.
        data_set: its name, in a few words; None: as in the folder.
        by: who ran it; None: as in the folder.
        delta: in (0, 1), of what has none of its own.
        audits: of the same training.
        curves: quantities recorded during training; those that are `private` are left out unless `private` is true.
        private: whether to show, marked, what was computed on private data and no guarantee covers. Such a report may not be published.
        weights: the released weights, a file or tensors by name, to be held against the seal; None: those in the folder, if any.
        key: whose seals are believed; None: this installation's and its team's.
        allow_large_delta: whether a delta of 1/records or more is meant; the report says so on top.
    Raises:
        InputError: an argument cannot be used, or a certificate does not follow from its run.
        MissingExtraError: jinja2 or matplotlib is not installed.
    """
    require_place(path, *FORMATS)
    require_switch("private", private)
    pages = tuple(audits)
    for page in pages:
        if not isinstance(page, AuditPage):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"audits: one is {type(page).__name__}; it needs an AuditPage.", remedy="load it with AuditPage.load.")
    document_subject = subject_of(subject, delta=delta, key=key, allow_large_delta=allow_large_delta, weights=weights)
    document_subject = described(document_subject, purpose=purpose, data_set=data_set, by=by)
    document_subject = with_extras(document_subject, audits=pages, curves=as_curves(curves), show_private=private)
    write_bytes(path, written(document_subject, as_path(path).suffix.lower()).encode())


def written(subject: Subject, suffix: str) -> str:
    """The text of a report of that suffix, one of `FORMATS`; MissingExtraError if jinja2 or matplotlib is not installed."""
    document = document_of(subject)
    if suffix == ".json":
        return to_json(content(document))
    from lethe.report.formats import WRITERS  # JSON needs neither templates nor pictures

    return WRITERS[suffix](document)


def content(document: Document) -> dict[str, Any]:
    """The report as plain data that JSON can hold: every number of it, and its words; an infinite number is the text "inf"."""
    return _plain(
        {
            "report": 1,
            "title": document.title,
            "about": dict(document.facts),
            "notices": [notice._asdict() for notice in document.notices],
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
