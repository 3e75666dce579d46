"""What the tests of the report share: trainings, audits and folders as they are found, and words of somebody who means harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from seal_cases import DELTA, WEIGHTS, make_record

import lethe
from lethe.audit.page import AuditPage, Claim
from lethe.audit.statistics.counts import Tally
from lethe.audit.statistics.result import AuditResult
from lethe.certificates.records import TrainingRecord
from lethe.documents.strict import to_json

KEYS = (
    "guarantee",
    "protection",
    "hypotheses",
    "attacks",
    "deltas",
    "steps",
    "noise",
    "training",
    "theorems",
    "audit",
    "signing",
    "provenance",
)

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
    result = AuditResult(
        epsilon=epsilon,
        delta=DELTA,
        level=0.05,
        estimator="clopper_pearson",
        unit="run",
        selection="ranks",
        rule=changes.pop("rule", "ranks declared in advance"),
        neighbours="replace_one",
        threat="final_model",
        counts=Tally(out_trials=1000, false_positives=9, in_trials=1000, false_negatives=400),
        warnings=changes.pop("warnings", ()),
    )
    certified = lethe.certify(make_record().run, DELTA).epsilon if claim is None else claim
    stated = Claim(epsilon=certified, delta=DELTA, neighbours="replace_one", release="last", source=changes.pop("source", "a certificate"))
    return AuditPage(**{"subject": "softmax on digits", "canary": "a record", "claim": stated, "audits": (result,), **changes})


def hostile_record() -> TrainingRecord:
    record = make_record()
    for place, words in enumerate(HOSTILE):
        record = record.with_declared(f"{place} {words}", words)
    return record


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
