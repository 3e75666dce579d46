"""What the tests of the report share: trainings, audits and folders as they are found, and words of somebody who means harm."""

from pathlib import Path
from typing import Any

import numpy as np
from audit_truths import claim as audit_claim
from audit_truths import result
from helpers import make_run
from seal_cases import DELTA, WEIGHTS, make_record

import lethe
from lethe.audit.page import AuditPage
from lethe.certificates.records import TrainingRecord
from lethe.documents.strict import to_json

_FIRST = ("guarantee", "protection", "hypotheses", "attacks", "deltas", "steps")
KEYS = (*_FIRST, "noise", "training", "theorems", "audit", "signing", "provenance")

HOSTILE = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }} {% raw %}",
    "| a | b |\n\n# heading [x](javascript:alert(1)) ![y](http://example.org/y.png) `code` www.example.org",
    "\\input{/etc/passwd} $x_1^2$ 50% #1 & ~ } { é 漢 *",
    "]]></style></svg>",
)


def audit_page(epsilon: float = 0.5, claim: float | None = None, **changes: Any) -> AuditPage:
    """An audit that found `epsilon` of a mechanism that claims what `make_record` is certified with."""
    names = ("rule", "warnings")
    found = result(epsilon=epsilon, delta=DELTA, **{name: changes.pop(name) for name in names if name in changes})
    certified = lethe.certify(make_record().run, DELTA).epsilon if claim is None else claim
    stated = audit_claim(certified, delta=DELTA, source=changes.pop("source", "a certificate"))
    return AuditPage(**{"subject": "softmax on digits", "canary": "a record", "claim": stated, "audits": (found,), **changes})


def hostile_record() -> TrainingRecord:
    record = make_record()
    for place, words in enumerate(HOSTILE):
        record = record.with_declared(f"{place} {words}", words)
    return record


def altered(tmp_path: Path) -> Path:
    """A certificate whose run has more noise than it was certified with."""
    content = lethe.certify(make_run(), DELTA).to_dict()
    content["run"]["noise_multiplier"] = 50.0
    path = tmp_path / "altered.json"
    path.write_text(to_json(content))
    return path


def trained_folder(folder: Path, **files: Any) -> Path:
    """A folder as `lethe train` writes it, with documents beside what it wrote; None leaves a file out."""
    folder.mkdir()
    certificate = lethe.certify(make_record(), DELTA)
    written: dict[str, Any] = {
        "certificate.json": certificate.to_dict(),
        "config.json": {"run": certificate.run.to_document()},
        "run.json": certificate.run.to_document(),
        "report.json": {"score": {"kind": "accuracy", "train": 0.9877, "test": 0.91234}, "projected": 17, "left_over": 3},
        **{name.replace("__", "."): content for name, content in files.items()},
    }
    for name, content in written.items():
        if content is not None:
            (folder / name).write_text(to_json(content))
    np.savez(folder / "weights.npz", weights=WEIGHTS["weights"], intercept=WEIGHTS["intercept"])
    return folder
