"""Where it comes from and how to repeat it: versions, randomness, commands, digests, sources."""

from __future__ import annotations

import platform

import numpy as np
import scipy

from lethe.accounting.verification import Answer
from lethe.certificates.findings import FRESH_NOISE
from lethe.documents.version import __version__
from lethe.report.document.model import Block, Code, Facts, Heading, Items, Section, Table, Text
from lethe.report.document.sections.signing import SOURCE
from lethe.report.document.subject import Subject


def provenance(subject: Subject) -> Section:
    """The section."""
    versions = _versions(subject)
    noise = randomness(subject)
    blocks: list[Block] = [Facts((*versions, ("Randomness", noise)))]
    if subject.answers:
        rows = tuple((_asked(answer), "yes" if answer.yes else "NO", answer.why) for answer in subject.answers)
        blocks.append(Table("Verified when this report was made", ("question", "answer", "why"), rows))
    if subject.commands:
        blocks += [Heading("To repeat it"), Code("\n".join(subject.commands))]
        if any(one.startswith("lethe train ") for one in subject.commands):
            blocks.append(
                Text(
                    "“lethe train” trains a second model on the private records. Looking at it is no breach; to release it too, or to "
                    "release the better of the two, is a second release, whose price is added to this one (“lethe total”)."
                )
            )
    blocks.append(
        Text(
            "The same training gives other weights each time, because its noise is fresh; what is repeated is the proof: the same run "
            "gives the same numbers."
        )
    )
    if subject.digests:
        blocks.append(Table("Digests", ("of what", "digest"), subject.digests))
        if subject.sealed and subject.seal is not None:
            blocks.append(Text(_which_digest(subject)))
    sources = sources_of(subject)
    blocks += [Heading("Sources"), Items(tuple(f"[{key}] {text}" for key, text in sources))]
    data = {
        "versions": dict(versions),
        "randomness": noise,
        "verified": [{"question": answer.question, "yes": answer.yes, "why": answer.why} for answer in subject.answers],
        "commands": list(subject.commands),
        "digests": dict(subject.digests),
    }
    return Section("provenance", "How to repeat and check it", tuple(blocks), data)


def _asked(answer: Answer) -> str:
    """The question; "private: yes" would read as "safe"."""
    return "has a finite epsilon" if answer.question == "private" else answer.question


def _which_digest(subject: Subject) -> str:
    held = next((one for one in subject.commands if one.startswith("lethe verify ") and "--weights" in one), "")
    command = held or "lethe verify CERTIFICATE --weights FILE"
    return (
        "Of the weights, compare the digest of the numbers: it is the one that the seal names. "
        f"“{command}” computes it from the file and compares. The digest of a file (sha256sum) tells only whether it is the very "
        "same file: the same weights, saved again, may have another."
    )


def sources_of(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Those of the theorem, and of the list before signing."""
    return (*((one.key, one.text) for one in subject.citations), SOURCE)


def _versions(subject: Subject) -> tuple[tuple[str, str], ...]:
    rows = [("This report", f"Lethe {__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}")]
    seal = subject.seal
    if seal is not None and seal.record is not None:
        rows.append(
            ("Trained by", f"{seal.record.by} of Lethe {seal.record.version}{'' if seal.holds else ', as an unbelieved seal says'}")
        )
    return tuple(rows)


def randomness(subject: Subject) -> str:
    """Where the noise came from, and who says so."""
    seeded = subject.run.seeded if subject.run is not None else subject.statement is not None and subject.statement.seeded
    if seeded:
        return "Noise or secret draws came from a seed or generator that somebody chose: NOT PRIVATE."
    if any(one.name == FRESH_NOISE and one.evidence == "enforced" for one in subject.findings):
        return "Noise and secret draws came from fresh entropy of the operating system, neither kept nor shown. There is no seed to give."
    return "Declared: noise and secret draws are fresh, and nobody knows them. There is no seed to give."
