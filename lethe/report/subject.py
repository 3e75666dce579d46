"""Subject: what a report is about, read from a file or folder where it is one, and certified again before anything is said of it.

writing.py and `lethe report` make one of a certificate, statement, file or folder; all sections read it. What a file claims is recomputed,
so a report cannot repeat a false epsilon.
"""

from __future__ import annotations

import hashlib
import math
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from lethe.accounting.certify import certify
from lethe.accounting.totals import Total
from lethe.accounting.verify import Answer, load, verify
from lethe.audit.page import AuditPage
from lethe.calculus.large_delta import is_large, usual_delta
from lethe.certificates.certificate import Certificate
from lethe.certificates.comparison import Comparison
from lethe.certificates.findings import FRESH_NOISE, Finding, holds, uncovered
from lethe.certificates.keys import PublicKey
from lethe.certificates.records import Recorded
from lethe.certificates.seal import Seal
from lethe.certificates.statement import Statement
from lethe.documents.specification import Specification
from lethe.documents.strict import DOCUMENTS, as_path, read_document
from lethe.errors import InputError, quoted
from lethe.report.wording import day
from lethe.run.participation import NOUNS
from lethe.run.run import Run

_SOME_DELTA = 1e-5  # where neither a delta nor a number of records is known
_MOST = 10_000
_LONGEST = 300
NOT_USED = "not used"  # what `lethe train` writes of a column that it drops
_CERTIFICATE, _RUN, _WEIGHTS = "certificate.json", "run.json", "weights.npz"
_CONFIG, _TRAINED, _CURVES = "config.json", "report.json", "curves.json"
_BESIDES = ("certificate", "lethe")  # what `lethe audit --json` writes beside the page


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
        return self


def as_curves(value: Any, *, source: str | None = None) -> tuple[Curve, ...]:
    """Curves from themselves or from mappings with their fields, of which errors say that they are from `source`."""
    try:
        return tuple(curve if isinstance(curve, Curve) else Curve(**curve) for curve in value)
    except TypeError as error:
        raise InputError("curves: it needs a list, each with name, steps and values.", source=source) from error
    except InputError as error:
        raise InputError(f"curves: {error.what}", source=source, remedy=error.remedy) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything that a report says something of."""

    what: str  # was trained or released, in words
    proof: Certificate | Statement | Total  # as this version of Lethe writes it: of a run, of a release that is none, or of several
    run: Run | None  # None of a release that is none
    theorem: str  # that it is proved by; "" of a release that is no run
    stated: Run | Statement | Total  # what says whom it protects: neighbours, unit, and the number of records, where it is known
    delta: float  # asked for
    epsilon: float  # proved at it; inf: nothing is
    private: bool  # whether anything is proved of the records
    large_delta: bool  # whether delta is 1/records or more
    release: str  # what may be seen: "last", "all", or "released" of what is no run
    seal: Seal[Any] | None  # believed or not; None of a total, whose parts have theirs
    sealed: bool  # whether a key that is believed vouches for all of it
    findings: tuple[Finding, ...]  # the hypotheses
    failing: tuple[Finding, ...]  # those that fail
    fresh_noise: bool  # whether the code that trained made it so that nobody can foresee the noise
    answers: tuple[Answer, ...] = ()  # what was verified when the report was made
    note: str = ""  # on words of another version
    audits: tuple[AuditPage, ...] = ()  # of the same training
    curves: tuple[Curve, ...] = ()
    scores: tuple[tuple[str, str], ...] = ()  # (name, value) of what was computed on private data
    purpose: str = ""  # of the training, as somebody stated it
    about: tuple[tuple[str, str], ...] = ()  # the data set, when it was trained, who ran it, as far as stated
    columns: tuple[tuple[str, str], ...] = ()  # (name, what is taken as public of it)
    show_private: bool = False  # whether what no guarantee covers is shown, marked
    commands: tuple[str, ...] = ()  # to be typed to repeat and to check it
    digests: tuple[tuple[str, str], ...] = ()  # (what, SHA-256)

    def known(self, evidence: str) -> tuple[Finding, ...]:
        """The hypotheses that hold and are known in that way."""
        return tuple(finding for finding in self.findings if finding.status == "holds" and finding.evidence == evidence)

    def matches(self, page: AuditPage) -> bool:
        """Whether an audit held its trainings against this very claim."""
        claim = page.claim
        if claim is None or self.run is None:
            return False
        same = math.isclose(claim.epsilon, self.epsilon, rel_tol=1e-6) and math.isclose(claim.delta, self.delta, rel_tol=1e-6)
        return same and (claim.neighbours, claim.release) == (self.run.neighbours, self.release)


def subject_of(
    value: object, *, delta: float | None = None, key: PublicKey | None = None, allow_large_delta: bool = False, weights: Any = None
) -> Subject:
    """The subject of a report, of whatever `lethe.report.write` takes; a certificate is certified again first.

    Raises:
        InputError: it cannot be used, a certificate does not follow from its run, or a folder contradicts itself.
    """
    options: dict[str, Any] = {"delta": delta, "key": key, "allow_large_delta": allow_large_delta}
    if isinstance(value, str | os.PathLike):
        path = as_path(value)
        return (_of_folder if path.is_dir() else _of_file)(path, weights, options)
    if isinstance(value, Comparison):
        value = value.certificate
    if type(value).__module__.startswith("sklearn."):
        stated = import_module("lethe.estimators.pipelines.stated_columns").stated_columns(value)
        return with_extras(subject_of(_of_pipeline(value), weights=weights, **options), columns=stated)
    if not hasattr(value, "certificate_") and isinstance(stated := getattr(value, "statement", None), Statement):
        value = stated  # of a training that is no run, and of a mechanism's weights
    if not isinstance(value, Run | Certificate | Statement | Total | Recorded) and hasattr(value, "certificate_"):
        value = value.certificate_  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, Run) or (isinstance(value, Recorded) and not isinstance(value, type)):
        if delta is None:
            raise InputError("delta: missing; a run has none of its own.", remedy="give delta, such as 1e-6 (--delta 1e-6).")
        value = certify(value, delta, allow_large_delta=allow_large_delta)
        if weights is None and key is None:  # what was certified just now is not certified again
            return _of(value, (Answer(question="follows from its run", yes=True, why="it was certified for this report"),), delta)
    if not isinstance(value, Certificate | Statement | Total):
        raise InputError(
            f"report: got {type(value).__name__}; it needs a run, a certificate, a training result, a statement or a fitted estimator.",
            remedy="give what lethe.certify takes or returns.",
        )
    if not isinstance(value, Statement) and delta not in (None, value.delta):
        raise InputError(
            f"delta: got {delta:g}; this certificate is at delta = {value.delta:g}.",
            remedy="leave delta out, or certify it at the other one.",
        )
    # Whether a large delta is meant was asked where the certificate was made; the report says it on top.
    verification = verify(value, weights=weights, key=key, allow_large_delta=True)
    if verification.certificate is None:
        raise InputError(verification.follows.why, remedy="do not rely on it; ask for it, or certify the run, again.")
    return _of(verification.certificate, verification.answers, delta, verification.declared, verification.note)


def _of_pipeline(pipeline: Any) -> Statement:
    """What is proved of all its steps or branches; where nothing is, what its last step says of itself and of those before it."""
    try:
        return import_module("lethe.estimators").privacy_of(pipeline)  # a pipeline of scikit-learn has loaded what this needs
    except InputError:
        statement = getattr(pipeline[-1] if hasattr(pipeline, "steps") else pipeline, "statement_", None)
        if not isinstance(statement, Statement) or not uncovered(statement.findings):
            raise
        return statement


def _of(
    proof: Certificate | Statement | Total, answers: tuple[Answer, ...], delta: float | None, declared: Iterable[str] = (), note: str = ""
) -> Subject:
    run, seal = proof.run if isinstance(proof, Certificate) else None, None if isinstance(proof, Total) else proof.seal
    # A file may leave out what it rests on; what was computed again says all of it.
    words = (line.partition(": ") for line in declared)
    findings = tuple(holds(name, detail, evidence="declared") for name, _, detail in words)
    if isinstance(proof, Certificate):
        what, delta, epsilon, findings = proof.run.loss.summary, proof.delta, proof.epsilon, proof.findings
        what = "a model with an unknown loss" if proof.run.loss.kind == "unknown" else what
    elif isinstance(proof, Statement):
        usual = _SOME_DELTA if proof.records is None else usual_delta(proof.records)
        what, delta = proof.name, next(candidate for candidate in (delta, proof.target_delta, usual) if candidate is not None)
        findings, epsilon = (*findings, *(finding for finding in proof.findings if finding.evidence != "declared")), proof.epsilon(delta)
    else:
        what, delta, epsilon = f"{len(proof.parts)} releases from the same {NOUNS[proof.unit][1]}", proof.delta, proof.epsilon
    digests = [] if run is None else [("run (the first 8 digits of its SHA-256)", run.run_id)]
    if seal is not None and seal.record is not None and seal.signer is not None:
        digests += [
            (f"released weights: {released_file.name} (SHA-256 of the numbers)", released_file.sha256)
            for released_file in seal.record.released
        ]
        digests.append(("key of the seal", seal.signer.fingerprint))
    return Subject(
        what=what,
        proof=proof,
        run=run,
        theorem=proof.theorem if isinstance(proof, Certificate) else "",
        stated=proof.run if isinstance(proof, Certificate) else proof,
        delta=delta,
        epsilon=epsilon,
        private=epsilon < math.inf and not uncovered(findings),
        large_delta=proof.records is not None and is_large(delta, proof.records),
        release="released" if run is None else run.release,
        seal=seal,
        sealed=all(part.sealed for part in proof.parts) if isinstance(proof, Total) else seal is not None and seal.holds,
        findings=findings,
        failing=tuple(finding for finding in findings if finding.status == "fails"),
        fresh_noise=any(finding.name == FRESH_NOISE and finding.evidence == "enforced" for finding in findings),
        answers=answers,
        note=note,
        digests=tuple(digests),
    )


def with_extras(subject: Subject, **extras: Any) -> Subject:
    """A copy with more `audits`, `curves`, `scores`, `commands` or `digests`, and another `show_private`."""
    joined = {name: more if name == "show_private" else (*getattr(subject, name), *more) for name, more in extras.items()}
    return replace(subject, **joined)


def described(
    subject: Subject, *, purpose: str | None = None, data_set: str | None = None, by: str | None = None, trained_on: str | None = None
) -> Subject:
    """A copy with these words of what it was for, the data, who ran it and when; None: as it is. InputError of what is no short text."""
    words = {"purpose": purpose, "data_set": data_set, "by": by, "trained_on": trained_on}
    for name, text in words.items():
        short: Any = "" if text is None else text
        if not isinstance(short, str) or len(short) > _LONGEST or (text is not None and not short.strip()):
            raise InputError(f"{name}: got {quoted(text)}; it needs a text of at most {_LONGEST} letters.")
    terms = {"Data set": data_set, "Trained on": trained_on, "Who ran it": by}
    about = dict.fromkeys(terms, "") | dict(subject.about) | {term: text for term, text in terms.items() if text is not None}
    return replace(subject, purpose=purpose or subject.purpose, about=tuple((term, text) for term, text in about.items() if text))


def _of_file(file: Path, weights: Any, options: dict[str, Any]) -> Subject:
    content, name = read_document(file), shlex.quote(str(file))
    if "batches" in content and "guarantee" not in content:
        subject = subject_of(Run.from_document(content, source=str(file)), weights=weights, **options)
        commands = [f"lethe certify {name} --delta {subject.delta!r}", f"lethe report {name} --delta {subject.delta!r} -o report.html"]
    else:
        subject = subject_of(load(file, key=options["key"]), weights=weights, **options)
        commands = [f"lethe explain {name}", f"lethe verify {name}", f"lethe report {name} -o report.html"]
    return with_extras(subject, commands=commands, digests=[_digest(file)])


def _of_folder(folder: Path, weights: Any, options: dict[str, Any]) -> Subject:
    proof, run, released = folder / _CERTIFICATE, folder / _RUN, folder / _WEIGHTS
    if not proof.is_file():
        raise InputError(
            f"{folder} holds no {_CERTIFICATE}.", source=str(folder), remedy="give a folder of `lethe train`, a certificate or a run."
        )
    certificate = load(proof, key=options["key"])  # of an estimator, it may be a statement
    if isinstance(certificate, Certificate) and run.is_file() and Run.load(run) != certificate.run:
        what, remedy = f"{_RUN} is another run than that of {_CERTIFICATE} beside it.", "give the certificate by itself."
        raise InputError(what, source=str(folder), remedy=f"do not rely on this folder; {remedy}")
    subject = subject_of(certificate, weights=released if weights is None and released.is_file() else weights, **options)
    at = shlex.quote(str(folder))
    weights_option = f" --weights {at}/{_WEIGHTS}" if released.is_file() else ""
    commands = [f"lethe train {at}/{_CONFIG} -o again"] if (folder / _CONFIG).is_file() else []
    commands += [f"lethe certify {at}/{_RUN} --delta {subject.delta!r}"] if run.is_file() else []
    commands += [f"lethe verify {at}/{_CERTIFICATE}{weights_option}", f"lethe report {at} -o report.html"]
    config, trained = (read_document(file) if file.is_file() else {} for file in (folder / _CONFIG, folder / _TRAINED))
    data, ledger = (config.get(name) or {} for name in ("data", "ledger"))
    subject = described(
        subject,
        purpose=config.get("purpose"),
        data_set=data.get("path") and f"{Path(data['path']).name}, to predict {data.get('target')}",
        by=config.get("by") or ledger.get("by"),
        trained_on=trained.get("date") and day(date.fromisoformat(trained["date"])),
    )
    return with_extras(
        subject,
        columns=_columns(config, trained),
        audits=_audits(folder),
        curves=_curves(folder / _CURVES),
        scores=_scores(trained),
        commands=commands,
        digests=[_digest(file) for file in (proof, run, released) if file.is_file()],
    )


def _columns(config: dict[str, Any], trained: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, what is taken as public of it), as `lethe train` wrote it down."""
    names, lines = config.get("columns") or (), trained.get("public") or ()
    return [(name, line.removeprefix(f"{name}: ")) for name, line in zip(names, lines, strict=False)]


def _audits(folder: Path) -> list[AuditPage]:
    """The documents that are audits; others may lie there too."""
    pages: list[AuditPage] = []
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in DOCUMENTS and file.name not in (_CERTIFICATE, _RUN, _CONFIG, _TRAINED, _CURVES) and file.is_file():
            content = read_document(file)
            if content.keys() >= {"subject", "canary", "audits"}:
                plain = {name: value for name, value in content.items() if name not in _BESIDES}
                pages.append(AuditPage.from_document(plain, source=str(file)))
    return pages


def _curves(file: Path) -> tuple[Curve, ...]:
    content = read_document(file) if file.is_file() else {"curves": ()}
    if set(content) != {"curves"}:
        raise InputError(f"{file.name}: it needs one key, curves.", source=str(file), remedy="see docs/report.md.")
    return as_curves(content["curves"], source=str(file))


def _scores(content: dict[str, Any]) -> list[tuple[str, str]]:
    """What `lethe train` noted of the data itself; the guarantee covers none of it."""
    score = content.get("score")
    parts: Mapping[str, Any] = score if isinstance(score, dict) else {}
    kind, named = parts.get("kind", "score"), ((part, parts.get(part)) for part in ("train", "test"))
    scores = [(f"{kind} on the {part} records", f"{value:.4f}") for part, value in named if isinstance(value, float)]
    for one in content.get("scores") or ():
        named = ((part, one.get(part)) for part in ("train", "test") if one["name"] != kind)
        scores += [(f"{one['name']} on the {part} records", f"{value:.4f}") for part, value in named if isinstance(value, float)]
    # How many records the batches leave over is public, as the number of records is, and stands in the first section.
    if type(value := content.get("projected")) is int:
        scores.append(("records whose features were shortened", f"{value:,}"))
    return scores


def _digest(file: Path) -> tuple[str, str]:
    try:
        return f"{file.name} (SHA-256 of the file)", hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}.", source=str(file)) from error
