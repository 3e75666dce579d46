"""Who is protected against whom, and against what not."""

from __future__ import annotations

from lethe.report.document.model import Heading, Items, Section, Table
from lethe.report.document.subject import Subject
from lethe.report.document.wording import RELATIONS, of_unit

_SEES = {
    "last": "anybody who sees the final model: its weights, its answers, everything that is computed from it later",
    "all": "anybody who sees the model after every step, and everything that is computed from these models later",
    "released": "anybody who sees all that was released here, and everything that is computed from it later",
}
_ALSO_SEES = {
    "last": "whoever sees anything else of the training: a checkpoint, an average of several models, the optimiser's state, a private loss",
    "all": "whoever sees the records themselves, single gradients, or the loss on private data",
    "released": "whoever sees anything else that was computed from the records",
}


def protection(subject: Subject) -> Section:
    """The section."""
    promise = "is protected" if subject.private else "would be protected, if anything were proved"
    said = (
        ("Who", f"each single record in the training data {promise}: {RELATIONS[subject.neighbours]}"),
        ("Against whom", _SEES[subject.release]),
        ("What they may know", f"all other records, the settings of the training, this report; not {_secrets(subject)}"),
        (
            "Against what",
            "finding out whether, or with which values, the record took part; by any attack but those listed below",
        ),
    )
    rows = tuple((name, of_unit(words, subject.unit)) for name, words in said)
    against = against_what_not(subject)
    blocks = (
        Table("Who is protected, and against whom", ("", "what this report speaks of"), rows),
        Heading("Against what it does not protect"),
        Items(against),
    )
    return Section(
        "protection", "Who is protected, and against what not", blocks, {"protected": dict(rows), "not_protected": list(against)}
    )


def _generator(subject: Subject) -> str:
    seal = subject.seal if subject.sealed else None
    if seal is None or seal.record is None or not seal.record.fresh:
        return "What really drew it is not known here: commonly rounded (floating-point) numbers of a generator that is not cryptographic."
    secure = ", unless it was trained with secure=True" if subject.release == "all" else ""
    return (
        f"In fact, {seal.record.by} draws rounded (floating-point) numbers from the generator of NumPy or PyTorch, started with fresh "
        f"entropy; it is statistical, not cryptographic{secure}."
    )


def _secrets(subject: Subject) -> str:
    secret = "" if subject.run is None else subject.run.batches.secret
    return f"the noise, nor {secret}" if secret else "the noise"


def against_what_not(subject: Subject) -> tuple[str, ...]:
    """A line each."""
    several = {
        "record": "A person with several records: with k records epsilon grows about k times, and delta more than that. If people have "
        "several, one record is the wrong unit.",
        "user": "A person with several user ids: with k of them epsilon grows about k times, and delta more than that. What counts as one "
        "user is decided by the ids alone.",
    }
    return (
        several[subject.unit],
        "Conclusions about everybody: if the data show that smoking is dangerous, the model may say so of every smoker, also of one whose "
        "record was not used.",
        f"{_ALSO_SEES[subject.release][0].upper()}{_ALSO_SEES[subject.release][1:]}.",
        "Whoever has the data already, or breaks into the computer that trains.",
        "Other releases from the same records: what they give away together is more than each alone.",
        f"Attacks on the noise itself: the proof takes it as exact numbers that nobody can foresee. {_generator(subject)}",
        "How long training took, and whatever else can be measured of the computer that trains.",
    )
