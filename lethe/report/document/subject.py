"""Subject: what a report is about, certified again before anything is said of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck, recheck_statement
from lethe.accounting.totals import Total
from lethe.accounting.verification import Answer
from lethe.accounting.verify import verify
from lethe.audit.page import AuditPage
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import is_large, usual_delta
from lethe.certificates.certificate import Certificate
from lethe.certificates.comparison import Comparison
from lethe.certificates.findings import Finding, holds
from lethe.certificates.parts import Citation
from lethe.certificates.sealing.seal import Seal
from lethe.certificates.signing.keys import PublicKey
from lethe.certificates.statement import Statement
from lethe.certificates.training_record import Recorded
from lethe.errors import InputError
from lethe.report.document.curves import Curve
from lethe.run.neighbours import NOUNS, Unit
from lethe.run.run import Run

_SOME_DELTA = 1e-5  # where neither a delta nor a number of records is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything that a report says something of.

    Args:
        what: what was trained or released, in words.
        guarantee: what is proved of it.
        delta: the delta asked for.
        neighbours: which two data sets must be hard to tell apart.
        records: their public number, where it is known.
        findings: the hypotheses.
        citations: the sources.
        certificate: as this version of Lethe writes it; None of a release that is no run.
        statement: of a release that is no run; else None.
        total: of several releases together; else None.
        answers: what was verified when the report was made.
        note: on words of another version; empty where there is nothing to say.
        audits: of the same training.
        curves: recorded during training.
        scores: (name, value) of what was computed on private data.
        show_private: whether what no guarantee covers is shown, marked.
        commands: to be typed to repeat and to check it.
        digests: (what, SHA-256).
        unit: of privacy.
    """

    what: str
    guarantee: Guarantee
    delta: float
    neighbours: str
    records: int | None
    findings: tuple[Finding, ...]
    citations: tuple[Citation, ...]
    certificate: Certificate | None = None
    statement: Statement | None = None
    total: Total | None = None
    answers: tuple[Answer, ...] = ()
    note: str = ""
    audits: tuple[AuditPage, ...] = ()
    curves: tuple[Curve, ...] = ()
    scores: tuple[tuple[str, str], ...] = ()
    show_private: bool = False
    commands: tuple[str, ...] = ()
    digests: tuple[tuple[str, str], ...] = field(default=())
    unit: Unit = "record"

    @property
    def epsilon(self) -> float:
        """Proved at the delta asked for; inf: nothing is."""
        proof = self.certificate or self.total
        return self.guarantee.epsilon(self.delta) if proof is None else proof.epsilon

    @property
    def private(self) -> bool:
        """Whether anything is proved."""
        return self.epsilon < math.inf

    @property
    def run(self) -> Run | None:
        """The run, where there is one."""
        return None if self.certificate is None else self.certificate.run

    @property
    def release(self) -> str:
        """What may be seen: "last", "all", or "released" of what is no run."""
        return "released" if self.run is None else self.run.release

    @property
    def sealed(self) -> bool:
        """Whether a key that is believed vouches for the training, or for all of several releases."""
        if self.total is not None:
            return all(part.sealed for part in self.total.parts)
        return self.seal is not None and self.seal.holds

    @property
    def seal(self) -> Seal[Any] | None:
        """Of the training or of the release, believed or not; None of a total, whose parts have theirs."""
        proof = self.certificate or self.statement
        return None if proof is None else proof.seal

    @property
    def large_delta(self) -> bool:
        """Whether delta is 1/records or more."""
        return self.records is not None and is_large(self.delta, self.records)

    def known(self, evidence: str) -> tuple[Finding, ...]:
        """The hypotheses that hold and are known in that way."""
        return tuple(one for one in self.findings if one.status == "holds" and one.evidence == evidence)

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The hypotheses that fail."""
        return tuple(one for one in self.findings if one.status == "fails")

    def matches(self, page: AuditPage) -> bool:
        """Whether an audit held its trainings against this very claim."""
        claim = page.claim
        if claim is None or self.certificate is None:
            return False
        same = math.isclose(claim.epsilon, self.epsilon, rel_tol=1e-6) and math.isclose(claim.delta, self.delta, rel_tol=1e-6)
        return same and (claim.neighbours, claim.release) == (self.neighbours, self.release)


def subject_of(
    value: object, *, delta: float | None = None, key: PublicKey | None = None, allow_large_delta: bool = False, weights: Any = None
) -> Subject:
    """The subject of a report; a certificate is certified again first.

    Args:
        value: a Run, a Certificate, a Comparison, a training result or its record, a Statement or what has one, a Total, or a fitted
            estimator.
        delta: of a run or training result, which have none; of a statement the one to show.
        key: whose seals are believed; None: this installation's and its team's.
        allow_large_delta: whether a delta of 1/records or more is meant.
        weights: the released weights, a file or tensors, to be held against the seal; None: not asked.
    Raises:
        InputError: it is something else, or a certificate that does not follow from its run, or delta is missing or not wanted.
    """
    if isinstance(value, Comparison):
        value = value.certificate
    if not hasattr(value, "certificate_") and isinstance(stated := getattr(value, "statement", None), Statement):
        value = stated  # of a training that is no run, and of a mechanism's weights
    if not isinstance(value, Run | Certificate | Statement | Total | Recorded) and hasattr(value, "certificate_"):
        value = value.certificate_  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, Statement):
        return _of_statement(value, delta, key, weights)
    if isinstance(value, Certificate | Total):
        if delta is not None and delta != value.delta:
            raise InputError(
                f"delta: got {delta:g}; this certificate is at delta = {value.delta:g}.",
                remedy="leave delta out, or certify it at the other one.",
            )
        return _of_total(value, key, weights) if isinstance(value, Total) else _of_certificate(value, key, weights)
    if isinstance(value, Run) or (isinstance(value, Recorded) and not isinstance(value, type)):
        if delta is None:
            raise InputError("delta: missing; a run has none of its own.", remedy="give delta, such as 1e-6 (--delta 1e-6).")
        certificate = certify(value, delta, allow_large_delta=allow_large_delta)
        if weights is None and key is None:  # what was certified just now is not certified again
            return _certified(certificate, (Answer(question="follows from its run", yes=True, why="it was certified for this report"),))
        return _of_certificate(certificate, key, weights)
    raise InputError(
        f"report: got {type(value).__name__}; it needs a run, a certificate, a training result, a statement or a fitted estimator.",
        remedy="give what lethe.certify takes or returns.",
    )


def _of_certificate(given: Certificate, key: PublicKey | None, weights: Any) -> Subject:
    judged = given.trusting(key)
    # Whether a large delta is meant was asked where the certificate was made; the report says it on top.
    found = verify(judged, weights=weights, key=key, allow_large_delta=True)
    # Where it does not follow, the first refuses it and says why.
    again = found.certificate if isinstance(found.certificate, Certificate) else recheck(judged)
    return _certified(again, found.answers, found.note)


def _certified(again: Certificate, answers: tuple[Answer, ...], note: str = "") -> Subject:
    run = again.run
    digests = [("run (the first 8 digits of its SHA-256)", run.run_id), *_sealed_digests(again.seal)]
    return Subject(
        what=_model(run),
        guarantee=again.guarantee,
        delta=again.delta,
        neighbours=run.neighbours,
        records=run.records,
        findings=again.findings,
        citations=again.citations,
        certificate=again,
        answers=answers,
        note=note,
        digests=tuple(digests),
        unit=run.unit,
    )


def _sealed_digests(seal: Seal[Any] | None) -> list[tuple[str, str]]:
    """Of the weights that a seal names, and its key."""
    if seal is None or seal.record is None or seal.signer is None:
        return []
    weights = [(f"released weights: {one.name} (SHA-256 of the numbers)", one.sha256) for one in seal.record.released]
    return [*weights, ("key of the seal", seal.signer.fingerprint)]


def _model(run: Run) -> str:
    return "a model with an unknown loss" if run.loss.kind == "unknown" else run.loss.summary


def _of_statement(given: Statement, delta: float | None, key: PublicKey | None, weights: Any) -> Subject:
    judged = given.trusting(key)
    again = recheck_statement(judged)
    stated = again.statement
    asked = stated.target_delta if delta is None else delta
    if asked is None:
        asked = _SOME_DELTA if stated.records is None else usual_delta(stated.records)
    stated.guarantee.epsilon(asked)  # refuses a delta out of range
    return Subject(
        what=stated.name,
        guarantee=stated.guarantee,
        delta=asked,
        neighbours=stated.neighbours,
        unit=stated.unit,
        records=stated.records,
        findings=(*again.declared, *(one for one in stated.findings if one.evidence != "declared")),
        citations=stated.citations,
        statement=stated,
        answers=verify(judged, weights=weights, key=key, allow_large_delta=True).answers,
        digests=tuple(_sealed_digests(stated.seal)),
    )


def _of_total(given: Total, key: PublicKey | None, weights: Any) -> Subject:
    again = Total.from_dict(given.to_dict(), key=key)
    lines = [line.partition(": ") for line in again.declared]
    return Subject(
        what=f"{len(again.parts)} releases from the same {NOUNS[again.unit][1]}",
        unit=again.unit,
        guarantee=again.guarantee,
        delta=again.delta,
        neighbours=again.neighbours,
        records=again.records,
        findings=tuple(holds(name, words, evidence="declared") for name, _, words in lines),
        citations=again.citations,
        total=again,
        answers=verify(again, weights=weights, key=key, allow_large_delta=True).answers,
    )


def with_extras(
    subject: Subject,
    *,
    audits: Sequence[AuditPage] = (),
    curves: Sequence[Curve] = (),
    scores: Sequence[tuple[str, str]] = (),
    show_private: bool = False,
    commands: Sequence[str] = (),
    digests: Sequence[tuple[str, str]] = (),
) -> Subject:
    """A copy with what was found besides.

    Args:
        subject: what it is added to.
        audits, curves, scores, show_private, commands, digests: as of `Subject`.
    """
    return replace(
        subject,
        audits=(*subject.audits, *audits),
        curves=(*subject.curves, *curves),
        scores=(*subject.scores, *scores),
        show_private=show_private,
        commands=(*subject.commands, *commands),
        digests=(*subject.digests, *digests),
    )
