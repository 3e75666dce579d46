"""From a subject to the document: every section that applies, in order."""

from __future__ import annotations

from lethe.documents.version import __version__
from lethe.report.document.model import Document, Section
from lethe.report.document.sections.attacks import attacks
from lethe.report.document.sections.audits import audits
from lethe.report.document.sections.deltas import deltas
from lethe.report.document.sections.guarantee import guarantee, notices
from lethe.report.document.sections.hypotheses import hypotheses
from lethe.report.document.sections.noise import noise
from lethe.report.document.sections.protection import protection
from lethe.report.document.sections.provenance import provenance, sources_of
from lethe.report.document.sections.signing import signing
from lethe.report.document.sections.steps import steps
from lethe.report.document.sections.theorems import theorems
from lethe.report.document.sections.training import training
from lethe.report.document.subject import Subject
from lethe.report.document.tradeoff import lines_of


def document_of(subject: Subject) -> Document:
    """The report of a subject, in words and numbers."""
    lines = lines_of(subject.guarantee, subject.epsilon)
    sections: list[Section | None] = [
        guarantee(subject, lines),
        protection(subject),
        hypotheses(subject),
        attacks(subject, lines),
        deltas(subject),
        steps(subject),
        noise(subject),
        training(subject),
        theorems(subject),
        audits(subject),
        signing(subject),
        provenance(subject),
    ]
    kinds = {"certificate": subject.certificate, "statement": subject.statement, "total": subject.total}
    about = "" if subject.run is None else f", run {subject.run.run_id}"
    return Document(
        title=f"Privacy report: {subject.what}",
        subtitle=f"written by Lethe {__version__}{about}",
        notices=notices(subject),
        sections=tuple(section for section in sections if section is not None),
        data={
            "private": subject.private,
            "sealed": subject.sealed,
            **{kind: proof.to_dict() for kind, proof in kinds.items() if proof is not None},
        },
        sources=sources_of(subject),
    )
