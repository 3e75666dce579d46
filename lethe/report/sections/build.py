"""What to check before signing and how to repeat it; and the document: every section that applies, in order.

Reference: Near, Darais, Lefkovitz, Howarth 2025, Guidelines for Evaluating Differential Privacy Guarantees, NIST SP 800-226,
doi:10.6028/NIST.SP.800-226.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import scipy

from lethe.accounting.verify import Answer
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import FRESH_NOISE
from lethe.certificates.statement import Statement
from lethe.documents.version import __version__
from lethe.report.model import Block, Code, Document, Facts, Heading, Items, Section, Table, Text
from lethe.report.sections.evidence import audits, theorems
from lethe.report.sections.numbers import Lines, attacks, deltas, noise, steps, training
from lethe.report.sections.promise import guarantee, notices
from lethe.report.sections.trust import hypotheses, protection
from lethe.report.subject import Subject
from lethe.report.wording import SHORT_RELATIONS, of_unit

SOURCE = (
    "nist-800-226",
    "J. P. Near, D. Darais, N. Lefkovitz, G. S. Howarth (2025). Guidelines for Evaluating Differential Privacy Guarantees. NIST Special "
    "Publication 800-226, doi:10.6028/NIST.SP.800-226.",
)

_UNITS = {
    "record": "The unit is one record ({}). How many records a person has is not known here.",
    "user": "The unit is one user ({} user): all records of one id. How many ids a person has is not known here.",
}
_LINE = "_" * 24  # short enough for a telephone
_UNKNOWN = "Not known here."
_RELEASED = {"last": "the final model only", "all": "the model after every step", "released": "what was released here"}
_BY_HAND = (
    "Name of the data set, and where it is from",
    "Is one record one person? If not: records of one person, at most",
    "Who signs, and for whom",
    "Place and date",
    "Signature",
)


def signing(subject: Subject) -> Section:
    """What to check before signing, from the top of the pyramid of NIST SP 800-226 to its base."""
    rows, by_hand = tuple(_questions(subject)), [of_unit(one, subject.unit) for one in _BY_HAND]
    blocks = (
        Text(
            "The guidelines of NIST (SP 800-226) put what decides about a promise of differential privacy into a pyramid. Each layer is "
            "only as good as those below it, so that a good epsilon on top of leaking data protects nobody. Go through it from the "
            "top; Lethe answers what it can know, and the rest is for you."
        ),
        Table("Before you sign", ("layer", "ask", "what this report knows"), rows),
        Table("To be filled in by hand: what this report cannot know", ("what", "answer"), tuple((one, _LINE) for one in by_hand)),
    )
    data = {
        "by_hand": by_hand,
        "questions": [dict(zip(("layer", "ask", "known"), row, strict=True)) for row in rows],
        "reference": SOURCE[1],
    }
    return Section("signing", "What to check before you sign", blocks, data)


def _questions(subject: Subject) -> list[tuple[str, str, str]]:
    """(layer, question, what is known), from the top of the pyramid to its base."""
    proved = f"epsilon = {shown(subject.epsilon)} at delta = {subject.delta:g}" if subject.private else "NOT PRIVATE: no epsilon is proved"
    if subject.records is None:
        size = "the number of records is not known here"
    else:
        size = f"1 / records = {1 / subject.records:.2g}; delta is " + ("NOT below it" if subject.large_delta else "below it")
    declared = subject.known("declared")
    words = ", ".join(one.name for one in declared) or "nothing that is listed"
    checked = [answer for answer in subject.answers if answer.question.startswith(("follows", "sealed", "belongs"))]
    verified = "; ".join(f"{answer.question}: {'yes' if answer.yes else 'NO'}" for answer in checked) or "nothing was verified"
    hurting = "Noise, and clipping where there is any, hurt"
    if subject.run is not None:
        hurting = "Noise hurts" if subject.run.clip_norm is None else "Noise and clipping hurt"
    utility = "Scores were computed on private data; no guarantee covers them." if subject.scores else _UNKNOWN
    verdicts = [f"{page.verdict.replace('_', ' ')}{'' if subject.matches(page) else ' (of another claim)'}" for page in subject.audits]
    audited = f"audit: {'; '.join(verdicts)}" if verdicts else "no audit"
    return [
        ("Epsilon", "Is epsilon small enough for these people and these data, and delta well below 1 / records?", f"{proved}; {size}."),
        (
            "Unit of privacy",
            of_unit("Is one record one person? If not, is the promise still the one that people were given?", subject.unit),
            _UNITS[subject.unit].format(SHORT_RELATIONS[subject.neighbours]),
        ),
        ("Utility", "Is the model good enough to be worth its release? Was that judged on public data, or counted?", utility),
        ("Bias", f"{hurting} small groups most: were errors looked at group by group, on data that may be used for it?", _UNKNOWN),
        (
            "Trust model",
            "Whoever trains sees the raw records (the central model). Do people know and accept that? Who else sees more than the release?",
            f"Covered is whoever sees {_RELEASED[subject.release]}. Everybody else must be trusted.",
        ),
        ("Algorithms and correctness", "Does the proof fit the code that ran? Has anybody attacked it?", f"{verified}; {audited}."),
        (
            "Algorithms and correctness",
            "Is every declared line true, and do you know it from somebody who can know?",
            f"Declared: {words}.",
        ),
        (
            "Security and access control",
            "Who can read records, checkpoints, logs, gradients, seeds and keys on the computers that train?",
            _UNKNOWN,
        ),
        (
            "Data collection exposure",
            "How were the records collected and where are they kept? Differential privacy protects what is released, not what is stored.",
            _UNKNOWN,
        ),
    ]


def provenance(subject: Subject) -> Section:
    """Where it comes from and how to repeat it: versions, randomness, commands, digests, sources."""
    versions = [
        ("This report", f"Lethe {__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}")
    ]
    if (seal := subject.seal) is not None and seal.record is not None:
        versions.append(
            ("Trained by", f"{seal.record.by} of Lethe {seal.record.version}{'' if seal.holds else ', as an unbelieved seal says'}")
        )
    noise = _randomness(subject)
    blocks: list[Block] = [Facts((*versions, ("Randomness", noise)))]
    if subject.answers:
        # "private: yes" would read as "safe".
        finite = (replace(one, question="has a finite epsilon") if one.question == "private" else one for one in subject.answers)
        blocks.append(answers_table(finite))
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
            held = [one for one in subject.commands if one.startswith("lethe verify ") and "--weights" in one]
            command = [*held, "lethe verify CERTIFICATE --weights FILE"][0]
            blocks.append(
                Text(
                    "Of the weights, compare the digest of the numbers: it is the one that the seal names. "
                    f"“{command}” computes it from the file and compares. The digest of a file (sha256sum) tells only whether it is the "
                    "very same file: the same weights, saved again, may have another."
                )
            )
    sources = _sources(subject)
    blocks += [Heading("Sources"), Items(tuple(f"[{key}] {text}" for key, text in sources))]
    data = {
        "versions": dict(versions),
        "randomness": noise,
        "verified": [{"question": answer.question, "yes": answer.yes, "why": answer.why} for answer in subject.answers],
        "commands": list(subject.commands),
        "digests": dict(subject.digests),
    }
    return Section("provenance", "How to repeat and check it", tuple(blocks), data)


def answers_table(answers: Iterable[Answer]) -> Table:
    """A line for each question, whether the answer is yes, and the reason."""
    rows = tuple((one.question, "yes" if one.yes else "NO", one.why) for one in answers)
    marks = tuple("" if row[1] == "yes" else "danger" for row in rows)
    return Table("Verified when this report was made", ("question", "answer", "why"), rows, marks=marks)


def _sources(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Those of the theorem, and of the list before signing."""
    return (*((one.key, one.text) for one in subject.proof.citations), SOURCE)


def _randomness(subject: Subject) -> str:
    """Where the noise came from, and who says so."""
    seeded = subject.run.seeded if subject.run is not None else isinstance(subject.proof, Statement) and subject.proof.seeded
    if seeded:
        return "Noise or secret draws came from a seed or generator that somebody chose: NOT PRIVATE."
    if any(one.name == FRESH_NOISE and one.evidence == "enforced" for one in subject.findings):
        return "Noise and secret draws came from fresh entropy of the operating system, neither kept nor shown. There is no seed to give."
    return "Declared: noise and secret draws are fresh, and nobody knows them. There is no seed to give."


def document_of(subject: Subject) -> Document:
    """The report of a subject, in words and numbers."""
    lines = Lines.of(subject.guarantee, subject.epsilon)
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
    about = "" if subject.run is None else f", run {subject.run.run_id}"
    return Document(
        title=f"Privacy report: {subject.what}",
        subtitle=f"written by Lethe {__version__}{about}",
        notices=notices(subject),
        sections=tuple(section for section in sections if section is not None),
        data={"private": subject.private, "sealed": subject.sealed, type(subject.proof).__name__.lower(): subject.proof.to_dict()},
        sources=_sources(subject),
    )
