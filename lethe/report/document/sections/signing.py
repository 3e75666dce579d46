"""What to check before signing, from the top of the pyramid of NIST SP 800-226 to its base.

Reference: Near, Darais, Lefkovitz, Howarth 2025, Guidelines for Evaluating Differential Privacy Guarantees, NIST SP 800-226,
doi:10.6028/NIST.SP.800-226.
"""

from __future__ import annotations

from lethe.calculus.upward_formatting import shown
from lethe.report.document.model import Section, Table, Text
from lethe.report.document.subject import Subject
from lethe.report.document.wording import SHORT_RELATIONS, of_unit

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
_BY_HAND = (
    "Name of the data set, and where it is from",
    "Is one record one person? If not: records of one person, at most",
    "Who signs, and for whom",
    "Place and date",
    "Signature",
)


def signing(subject: Subject) -> Section:
    """The section."""
    rows, by_hand = tuple(questions(subject)), [of_unit(one, subject.unit) for one in _BY_HAND]
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


def questions(subject: Subject) -> list[tuple[str, str, str]]:
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
    return [
        ("Epsilon", "Is epsilon small enough for these people and these data, and delta well below 1 / records?", f"{proved}; {size}."),
        (
            "Unit of privacy",
            of_unit("Is one record one person? If not, is the promise still the one that people were given?", subject.unit),
            _UNITS[subject.unit].format(SHORT_RELATIONS[subject.neighbours]),
        ),
        (
            "Utility",
            "Is the model good enough to be worth its release? Was that judged on public data, or counted?",
            _utility(subject),
        ),
        (
            "Bias",
            f"{_hurting(subject)} small groups most: were errors looked at group by group, on data that may be used for it?",
            "Not known here.",
        ),
        (
            "Trust model",
            "Whoever trains sees the raw records (the central model). Do people know and accept that? Who else sees more than the release?",
            f"Covered is whoever sees {_RELEASED[subject.release]}. Everybody else must be trusted.",
        ),
        ("Algorithms and correctness", "Does the proof fit the code that ran? Has anybody attacked it?", _correctness(subject, verified)),
        (
            "Algorithms and correctness",
            "Is every declared line true, and do you know it from somebody who can know?",
            f"Declared: {words}.",
        ),
        (
            "Security and access control",
            "Who can read records, checkpoints, logs, gradients, seeds and keys on the computers that train?",
            "Not known here.",
        ),
        (
            "Data collection exposure",
            "How were the records collected and where are they kept? Differential privacy protects what is released, not what is stored.",
            "Not known here.",
        ),
    ]


_RELEASED = {"last": "the final model only", "all": "the model after every step", "released": "what was released here"}


def _hurting(subject: Subject) -> str:
    if subject.run is None:
        return "Noise, and clipping where there is any, hurt"
    return "Noise hurts" if subject.run.clip_norm is None else "Noise and clipping hurt"


def _utility(subject: Subject) -> str:
    if subject.scores:
        return "Scores were computed on private data; no guarantee covers them."
    return "Not known here."


def _correctness(subject: Subject, verified: str) -> str:
    if not subject.audits:
        return f"{verified}; no audit."
    verdicts = "; ".join(
        f"{page.verdict.replace('_', ' ')}{'' if subject.matches(page) else ' (of another claim)'}" for page in subject.audits
    )
    return f"{verified}; audit: {verdicts}."
