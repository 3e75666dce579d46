"""What lies in a file or folder: a run, a certificate, what `lethe train` wrote, audits and curves beside it."""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path
from typing import Any

from lethe.accounting.verify import load
from lethe.audit.page import AuditPage
from lethe.certificates.certificate import Certificate
from lethe.certificates.keys import PublicKey
from lethe.documents.strict import DOCUMENTS, as_path, read_document
from lethe.errors import InputError
from lethe.report.subject import Curve, Subject, as_curves, subject_of, with_extras
from lethe.run.run import Run

_CERTIFICATE, _RUN, _WEIGHTS = "certificate.json", "run.json", "weights.npz"
_CONFIG, _TRAINED, _CURVES = "config.json", "report.json", "curves.json"
_OF_AN_AUDIT = frozenset({"subject", "canary", "audits"})
_BESIDES = ("certificate", "lethe")  # what `lethe audit --json` writes beside the page


def read_subject(
    path: str | os.PathLike[str],
    *,
    delta: float | None = None,
    key: PublicKey | None = None,
    allow_large_delta: bool = False,
    weights: Any = None,
) -> Subject:
    """The subject in a file or folder; InputError where a certificate does not follow from its run, or the folder contradicts itself."""
    place = as_path(path)
    return (_of_folder if place.is_dir() else _of_file)(place, delta, key, allow_large_delta, weights)


def _of_file(file: Path, delta: float | None, key: PublicKey | None, allow: bool, weights: Any) -> Subject:
    content, named = read_document(file), shlex.quote(str(file))
    if "batches" in content and "guarantee" not in content:
        run = Run.from_document(content, source=str(file))
        subject = subject_of(run, delta=delta, key=key, allow_large_delta=allow, weights=weights)
        commands = [f"lethe certify {named} --delta {subject.delta!r}", f"lethe report {named} --delta {subject.delta!r} -o report.html"]
    else:
        subject = subject_of(load(file, key=key), delta=delta, key=key, weights=weights)
        commands = [f"lethe explain {named}", f"lethe verify {named}", f"lethe report {named} -o report.html"]
    return with_extras(subject, commands=commands, digests=[_digest(file)])


def _of_folder(folder: Path, delta: float | None, key: PublicKey | None, allow: bool, weights: Any) -> Subject:
    proof, weights_file = folder / _CERTIFICATE, folder / _WEIGHTS
    if not proof.is_file():
        raise InputError(
            f"{folder} holds no {_CERTIFICATE}.", source=str(folder), remedy="give a folder of `lethe train`, a certificate or a run."
        )
    released = weights_file if weights is None and weights_file.is_file() else weights
    certificate = load(proof, key=key)  # of an estimator, it may be a statement
    if isinstance(certificate, Certificate) and (folder / _RUN).is_file() and Run.load(folder / _RUN) != certificate.run:
        what, remedy = f"{_RUN} is another run than that of {_CERTIFICATE} beside it.", "give the certificate by itself."
        raise InputError(what, source=str(folder), remedy=f"do not rely on this folder; {remedy}")
    subject = subject_of(certificate, delta=delta, key=key, allow_large_delta=allow, weights=released)
    at = shlex.quote(str(folder))
    beside = f" --weights {at}/{_WEIGHTS}" if weights_file.is_file() else ""
    commands = [f"lethe train {at}/{_CONFIG} -o again"] if (folder / _CONFIG).is_file() else []
    commands += [f"lethe certify {at}/{_RUN} --delta {subject.delta!r}"] if (folder / _RUN).is_file() else []
    commands += [f"lethe verify {at}/{_CERTIFICATE}{beside}", f"lethe report {at} -o report.html"]
    files = [file for file in (proof, folder / _RUN, weights_file) if file.is_file()]
    return with_extras(
        subject,
        audits=_audits(folder),
        curves=_curves(folder / _CURVES),
        scores=_scores(folder / _TRAINED),
        commands=commands,
        digests=[_digest(file) for file in files],
    )


def _audits(folder: Path) -> list[AuditPage]:
    """The documents that are audits; others may lie there too."""
    pages: list[AuditPage] = []
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() not in DOCUMENTS or file.name in (_CERTIFICATE, _RUN, _CONFIG, _TRAINED, _CURVES) or not file.is_file():
            continue
        content = read_document(file)
        if content.keys() >= _OF_AN_AUDIT:
            plain = {name: value for name, value in content.items() if name not in _BESIDES}
            pages.append(AuditPage.from_document(plain, source=str(file)))
    return pages


def _curves(file: Path) -> tuple[Curve, ...]:
    if not file.is_file():
        return ()
    content = read_document(file)
    if set(content) != {"curves"}:
        raise InputError(f"{file.name}: it needs one key, curves.", source=str(file), remedy="see docs/report.md.")
    return as_curves(content["curves"], source=str(file))


def _scores(file: Path) -> list[tuple[str, str]]:
    """What `lethe train` noted of the data itself; the guarantee covers none of it."""
    if not file.is_file():
        return []
    content = read_document(file)
    score = content.get("score")
    part_of = score if isinstance(score, dict) else {}
    parts = [(part, value) for part in ("train", "test") if isinstance(value := part_of.get(part), float)]
    scores = [(f"{part_of.get('kind', 'score')} on the {part} records", f"{value:.4f}") for part, value in parts]
    # How many records the batches leave over is public, as the number of records is, and stands in the first section.
    if type(value := content.get("projected")) is int:
        scores.append(("records whose features were shortened", f"{value:,}"))
    return scores


def _digest(file: Path) -> tuple[str, str]:
    try:
        return f"{file.name} (SHA-256 of the file)", hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}.", source=str(file)) from error
