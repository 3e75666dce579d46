"""The document of a report, every section that applies in order; and its last sections: what to check before signing, and how to repeat
it.

writing.py and `lethe report` call `document_of` with a `Subject`.

Reference: Near, Darais, Lefkovitz, Howarth 2025, Guidelines for Evaluating Differential Privacy Guarantees, NIST SP 800-226,
doi:10.6028/NIST.SP.800-226.
"""

import platform
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import scipy

from lethe.accounting.verify import Answer
from lethe.calculus.tradeoffs import TradeOff
from lethe.calculus.upward_formatting import shown
from lethe.certificates.attack_rates import AttackRates
from lethe.certificates.parts import relation_words
from lethe.certificates.statement import Statement
from lethe.documents.version import __version__
from lethe.report.model import Block, Code, Document, Facts, Heading, Items, Section, Table
from lethe.report.sections.evidence import audits, theorems
from lethe.report.sections.numbers import ALARMS, attacks, deltas, noise, steps, training
from lethe.report.sections.opening import about, opening, title
from lethe.report.sections.promise import guarantee, hypotheses, notices, protection
from lethe.report.subject import Subject
from lethe.report.wording import SEEN, of_unit

_NIST = (
    "nist-800-226",
    "J. P. Near, D. Darais, N. Lefkovitz, G. S. Howarth (2025). Guidelines for Evaluating Differential Privacy Guarantees. NIST Special "
    "Publication 800-226, doi:10.6028/NIST.SP.800-226.",
)
_IDS = {"record": "How many records a person has", "user": "A user is all records of one id; how many ids a person has"}
_UNKNOWN, _CORRECT = "Not known here.", "Algorithms and correctness"
_HEAD = ("layer", "ask", "what this report knows")
_BY_HAND = (
    "Name of the data set, and where it is from",
    "Is one record one person? If not: records of one person, at most",
    "Who signs, and for whom",
    "Place and date",
    "Signature",
)


def signing(subject: Subject) -> Section:
    """What to check before signing, from the top of the pyramid of NIST SP 800-226 to its base."""
    stated, run = subject.stated, subject.run
    proved = f"epsilon = {shown(subject.epsilon)} at delta = {subject.delta:g}" if subject.private else "NOT PRIVATE: no epsilon is proved"
    size = "the number of records is not known here"
    if stated.records is not None:
        size = f"1 / records = {1 / stated.records:.2g}; delta is {'NOT ' * subject.large_delta}below it"
    unit = f"The unit is one {stated.unit} ({relation_words(stated.neighbours, stated.unit)}). {_IDS[stated.unit]} is not known here."
    one_person = of_unit("Is one record one person? If not, is it still the promise that people were given?", stated.unit)
    scores = "Scores were computed on private data; no guarantee covers them." if subject.scores else _UNKNOWN
    hurting = "Noise hurts" if run is not None and run.clip_norm is None else "Noise and clipping hurt"
    coverage = f"Covered is whoever sees {SEEN[subject.release]}. Everybody else must be trusted."
    checked = [answer for answer in subject.answers if answer.question.startswith(("follows", "sealed", "belongs"))]
    verified = "; ".join(f"{answer.question}: {'yes' if answer.yes else 'NO'}" for answer in checked) or "nothing was verified"
    verdicts = [f"{page.verdict.replace('_', ' ')}{'' if subject.matches(page) else ' (of another claim)'}" for page in subject.audits]
    audited = f"audit: {'; '.join(verdicts)}" if verdicts else "no audit"
    declared = ", ".join(finding.name for finding in subject.known("declared")) or "nothing that is listed"
    rows = (
        ("Epsilon", "Is epsilon small enough for these people and data, and delta well below 1 / records?", f"{proved}; {size}."),
        ("Unit of privacy", one_person, unit),
        ("Utility", "Is the model good enough to be worth its release? Was that judged on public data, or counted?", scores),
        ("Bias", f"{hurting} small groups most: were errors looked at group by group, on data that may be used for it?", _UNKNOWN),
        ("Trust model", "Whoever trains sees the raw records. Do people accept that? Who else sees more than the release?", coverage),
        (_CORRECT, "Does the proof fit the code that ran? Has anybody attacked it?", f"{verified}; {audited}."),
        (_CORRECT, "Is every declared line true, and do you know it from somebody who can know?", f"Declared: {declared}."),
        ("Security and access control", "Who can read records, checkpoints, logs, gradients, seeds and keys on the way?", _UNKNOWN),
        ("Data collection exposure", "How were records collected, where are they kept? What is stored is not protected.", _UNKNOWN),
    )
    by_hand = [of_unit(question, stated.unit) for question in _BY_HAND]
    blocks = (
        "NIST (SP 800-226) puts what decides about a promise of differential privacy into a pyramid. Each layer is only as good as those "
        "below it: a good epsilon on top of leaking data protects nobody. Lethe answers what it can know, and the rest is for you.",
        Table("Before you sign", _HEAD, rows),
        Table(
            "To be filled in by hand: what this report cannot know", ("what", "answer"), tuple((question, "_" * 24) for question in by_hand)
        ),
    )
    questions = [dict(zip(("layer", "ask", "known"), row, strict=True)) for row in rows]
    data = {"by_hand": by_hand, "questions": questions, "reference": _NIST[1]}
    return Section("signing", "What to check before you sign", blocks, data)


def provenance(subject: Subject) -> Section:
    """Where it comes from and how to repeat it: versions, randomness, commands, digests, sources."""
    versions = {
        "This report": f"Lethe {__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}, Python {platform.python_version()}"
    }
    if (seal := subject.seal) is not None and seal.record is not None:
        unbelieved = "" if seal.holds else ", as an unbelieved seal says"
        versions["Trained by"] = f"{seal.record.by} of Lethe {seal.record.version}{unbelieved}"
    noise = "Declared: noise and secret draws are fresh, and nobody knows them. There is no seed to give."
    if getattr(subject.proof if isinstance(subject.proof, Statement) else subject.run, "seeded", False):
        noise = "Noise or secret draws came from a seed or generator that somebody chose: NOT PRIVATE."
    elif subject.fresh_noise:
        noise = "Noise and secret draws came from fresh entropy of the operating system, neither kept nor shown. There is no seed to give."
    blocks: list[Block] = [Facts((*versions.items(), ("Randomness", noise)))]
    if subject.answers:
        # "private: yes" would read as "safe".
        finite = (
            replace(answer, question="has a finite epsilon") if answer.question == "private" else answer for answer in subject.answers
        )
        blocks.append(answers_table(finite))
    if subject.commands:
        blocks += [Heading("To repeat it"), Code("\n".join(subject.commands))]
    if any(command.startswith("lethe train ") for command in subject.commands):
        blocks.append(
            "“lethe train” trains a second model on the private records. Looking at it is no breach; to release it too, or the better of "
            "the two, is a second release, whose price is added to this one (“lethe total”)."
        )
    blocks.append("The same training gives other weights each time, because its noise is fresh; the same run gives the same proof.")
    if subject.digests:
        blocks.append(Table("Digests", ("of what", "digest"), subject.digests))
    if subject.digests and subject.sealed and seal is not None:
        verify_commands = [command for command in subject.commands if command.startswith("lethe verify ") and "--weights" in command]
        blocks.append(
            "Of the weights, compare the digest of the numbers: it is the one that the seal names. "
            f"“{[*verify_commands, 'lethe verify CERTIFICATE --weights FILE'][0]}” computes it from the file and compares. "
            "The digest of a file (sha256sum) tells only whether it is the very same file: the same weights, saved again, may have another."
        )
    blocks += [Heading("Sources"), Items(tuple(f"[{key}] {text}" for key, text in _sources(subject)))]
    data = {
        "versions": versions,
        "randomness": noise,
        "verified": [{"question": answer.question, "yes": answer.yes, "why": answer.why} for answer in subject.answers],
        "commands": list(subject.commands),
        "digests": dict(subject.digests),
    }
    return Section("provenance", "How to repeat and check it", tuple(blocks), data)


def answers_table(answers: Iterable[Answer]) -> Table:
    """A line for each question, whether the answer is yes, and the reason."""
    rows = tuple((answer.question, "yes" if answer.yes else "NO", answer.why) for answer in answers)
    marks = tuple("" if row[1] == "yes" else "danger" for row in rows)
    return Table("Verified when this report was made", ("question", "answer", "why"), rows, marks=marks)


def _sources(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Those of the theorem, and of the list before signing."""
    return (*((citation.key, citation.text) for citation in subject.proof.citations), _NIST)


def document_of(subject: Subject) -> Document:
    """The report of a subject, in words and numbers."""
    curve = TradeOff.of(subject.proof.guarantee)
    rates = AttackRates.of(subject.proof.guarantee, ALARMS, curve)
    first = guarantee(subject, rates)
    first = first._replace(blocks=(first.blocks[0], *opening(subject, rates), *first.blocks[1:]))
    by_curve = [protection(subject), hypotheses(subject), attacks(subject, curve, rates)]
    rest = [section(subject) for section in (deltas, steps, noise, training, theorems, audits, signing, provenance)]
    of_run = "" if subject.run is None else f", run {subject.run.run_id}"
    return Document(
        title=title(subject),
        subtitle=f"Privacy report, written by Lethe {__version__}{of_run}",
        facts=about(subject),
        notices=notices(subject),
        sections=(first._replace(shown=3), *(section._replace(shown=0) for section in (*by_curve, *rest) if section is not None)),
        data={"private": subject.private, "sealed": subject.sealed, type(subject.proof).__name__.lower(): subject.proof.to_dict()},
        sources=_sources(subject),
    )
