"""Subject: what a report is about, certified again before anything is said of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field, model_validator

from lethe.accounting.certify import certify
from lethe.accounting.recheck import recheck, recheck_statement
from lethe.accounting.totals import Total
from lethe.accounting.verify import Answer, verify
from lethe.audit.page import AuditPage
from lethe.calculus.guarantees import Guarantee
from lethe.calculus.large_delta import is_large, usual_delta
from lethe.certificates.certificate import Certificate
from lethe.certificates.comparison import Comparison
from lethe.certificates.findings import Finding, holds
from lethe.certificates.keys import PublicKey
from lethe.certificates.records import Recorded
from lethe.certificates.seal import Seal
from lethe.certificates.statement import Statement
from lethe.documents.specification import Specification
from lethe.errors import InputError
from lethe.run.neighbours import NOUNS, Unit
from lethe.run.run import Run

_SOME_DELTA = 1e-5  # where neither a delta nor a number of records is known
_MOST = 10_000


class Curve(Specification):
    """A quantity at some steps of a training.

    Args:
        name: what it is.
        steps: at which steps, ascending.
        values: one a step.
        private: True unless it is known to be covered by the guarantee, or to come from public data alone: a curve of the loss of
            private records tells of them, and no certificate covers it. A private curve is shown only where that is asked for.
    """

    name: str = Field(min_length=1, max_length=200)
    steps: tuple[int, ...] = Field(min_length=1, max_length=_MOST, strict=False)
    values: tuple[float, ...] = Field(min_length=1, max_length=_MOST, strict=False)
    private: bool = True

    @model_validator(mode="after")
    def _one_value_a_step(self) -> Curve:
        if len(self.steps) != len(self.values):
            raise InputError(f"values: {len(self.values)} for {len(self.steps)} steps.", remedy="give one value a step.")
        if list(self.steps) != sorted(set(self.steps)) or self.steps[0] < 0:
            raise InputError("steps: they need to ascend from 0 or more.", remedy="give each step once, in order.")
        if not all(math.isfinite(value) for value in self.values):
            raise InputError("values: one is no finite number.", remedy="leave that step out.")
        return self


def as_curves(value: object, *, source: str | None = None) -> tuple[Curve, ...]:
    """Curves from themselves or from mappings with their fields, of which errors say that they are from `source`."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise InputError(f"curves: got {type(value).__name__}; it needs a list.", source=source)
    curves: list[Curve] = []
    for one in value:
        if not isinstance(one, Curve | Mapping):
            raise InputError(f"curves: one is {type(one).__name__}; it needs name, steps and values.", source=source)
        try:
            curves.append(one if isinstance(one, Curve) else Curve(**{str(key): entry for key, entry in one.items()}))
        except InputError as error:
            raise InputError(f"curves: {error.what}", source=source, remedy=error.remedy) from error
    return tuple(curves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything that a report says something of."""

    what: str  # was trained or released, in words
    proof: Certificate | Statement | Total  # as this version of Lethe writes it: of a run, of a release that is none, or of several
    delta: float  # asked for
    findings: tuple[Finding, ...]  # the hypotheses
    answers: tuple[Answer, ...] = ()  # what was verified when the report was made
    note: str = ""  # on words of another version
    audits: tuple[AuditPage, ...] = ()  # of the same training
    curves: tuple[Curve, ...] = ()
    scores: tuple[tuple[str, str], ...] = ()  # (name, value) of what was computed on private data
    show_private: bool = False  # whether what no guarantee covers is shown, marked
    commands: tuple[str, ...] = ()  # to be typed to repeat and to check it
    digests: tuple[tuple[str, str], ...] = ()  # (what, SHA-256)

    @property
    def certificate(self) -> Certificate | None:
        """Of a run; None of a release that is none."""
        return self.proof if isinstance(self.proof, Certificate) else None

    @property
    def run(self) -> Run | None:
        """The run, where there is one."""
        return None if self.certificate is None else self.certificate.run

    @property
    def guarantee(self) -> Guarantee:
        """What is proved."""
        return self.proof.guarantee

    @property
    def neighbours(self) -> str:
        """Which two data sets must be hard to tell apart."""
        return self.proof.run.neighbours if isinstance(self.proof, Certificate) else self.proof.neighbours

    @property
    def records(self) -> int | None:
        """Their public number, where it is known."""
        return self.proof.run.records if isinstance(self.proof, Certificate) else self.proof.records

    @property
    def unit(self) -> Unit:
        """What is protected: a record or a user."""
        return self.proof.run.unit if isinstance(self.proof, Certificate) else self.proof.unit

    @property
    def epsilon(self) -> float:
        """Proved at the delta asked for; inf: nothing is."""
        return self.guarantee.epsilon(self.delta) if isinstance(self.proof, Statement) else self.proof.epsilon

    @property
    def private(self) -> bool:
        """Whether anything is proved."""
        return self.epsilon < math.inf

    @property
    def release(self) -> str:
        """What may be seen: "last", "all", or "released" of what is no run."""
        return "released" if self.run is None else self.run.release

    @property
    def seal(self) -> Seal[Any] | None:
        """Of the training or of the release, believed or not; None of a total, whose parts have theirs."""
        return None if isinstance(self.proof, Total) else self.proof.seal

    @property
    def sealed(self) -> bool:
        """Whether a key that is believed vouches for the training, or for all of several releases."""
        if isinstance(self.proof, Total):
            return all(part.sealed for part in self.proof.parts)
        return self.seal is not None and self.seal.holds

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
    """The subject of a report, of whatever `lethe.report.write` takes but a path; a certificate is certified again first."""
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
    return _certified(found.certificate if isinstance(found.certificate, Certificate) else recheck(judged), found.answers, found.note)


def _certified(again: Certificate, answers: tuple[Answer, ...], note: str = "") -> Subject:
    run = again.run
    return Subject(
        what="a model with an unknown loss" if run.loss.kind == "unknown" else run.loss.summary,
        proof=again,
        delta=again.delta,
        findings=again.findings,
        answers=answers,
        note=note,
        digests=(("run (the first 8 digits of its SHA-256)", run.run_id), *_sealed_digests(again.seal)),
    )


def _sealed_digests(seal: Seal[Any] | None) -> list[tuple[str, str]]:
    """Of the weights that a seal names, and its key."""
    if seal is None or seal.record is None or seal.signer is None:
        return []
    weights = [(f"released weights: {one.name} (SHA-256 of the numbers)", one.sha256) for one in seal.record.released]
    return [*weights, ("key of the seal", seal.signer.fingerprint)]


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
        proof=stated,
        delta=asked,
        findings=(*again.declared, *(one for one in stated.findings if one.evidence != "declared")),
        answers=verify(judged, weights=weights, key=key, allow_large_delta=True).answers,
        digests=tuple(_sealed_digests(stated.seal)),
    )


def _of_total(given: Total, key: PublicKey | None, weights: Any) -> Subject:
    again = Total.from_dict(given.to_dict(), key=key)
    lines = [line.partition(": ") for line in again.declared]
    return Subject(
        what=f"{len(again.parts)} releases from the same {NOUNS[again.unit][1]}",
        proof=again,
        delta=again.delta,
        findings=tuple(holds(name, words, evidence="declared") for name, _, words in lines),
        answers=verify(again, weights=weights, key=key, allow_large_delta=True).answers,
    )


def with_extras(subject: Subject, **extras: Any) -> Subject:
    """A copy with more `audits`, `curves`, `scores`, `commands` or `digests`, and another `show_private`."""
    joined = {name: more if name == "show_private" else (*getattr(subject, name), *more) for name, more in extras.items()}
    return replace(subject, **joined)
