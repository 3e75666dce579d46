"""Who is protected and against what not; what must be believed, and what would make the promise void."""

from __future__ import annotations

from lethe.certificates.findings import FRESH_NOISE, Finding
from lethe.report.model import Block, Facts, Heading, Items, Section, Table, Text
from lethe.report.subject import Subject
from lethe.report.wording import RELATIONS, explained_terms, of_unit

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
_EVIDENCE = {
    "declared": "Declared: somebody said so, and nothing proves it. Whoever signs, signs these",
    "enforced": "Enforced: the code that trained made it so; it is named in brackets",
    "checked": "Checked: computed from the numbers of the run",
}


def protection(subject: Subject) -> Section:
    """Who is protected against whom, and against what not."""
    promise = "is protected" if subject.private else "would be protected, if anything were proved"
    secret = "" if subject.run is None else subject.run.batches.secret
    noise = f"the noise, nor {secret}" if secret else "the noise"
    known = (
        ("Who", f"each single record in the training data {promise}: {RELATIONS[subject.neighbours]}"),
        ("Against whom", _SEES[subject.release]),
        ("What they may know", f"all other records, the settings of the training, this report; not {noise}"),
        ("Against what", "finding out whether, or with which values, the record took part; by any attack but those listed below"),
    )
    rows, against = tuple((name, of_unit(words, subject.unit)) for name, words in known), _against_what_not(subject)
    table = Table("Who is protected, and against whom", ("", "what this report speaks of"), rows)
    blocks = (table, Heading("Against what it does not protect"), Items(against))
    data = {"protected": dict(rows), "not_protected": list(against)}
    return Section("protection", "Who is protected, and against what not", blocks, data)


def _generator(subject: Subject) -> str:
    seal = subject.seal if subject.sealed else None
    if seal is None or seal.record is None or not seal.record.fresh:
        return "What really drew it is not known here: commonly rounded (floating-point) numbers of a generator that is not cryptographic."
    secure = ", unless it was trained with secure=True" if subject.release == "all" else ""
    return (
        f"In fact, {seal.record.by} draws rounded (floating-point) numbers from the generator of NumPy or PyTorch, started with fresh "
        f"entropy; it is statistical, not cryptographic{secure}."
    )


def _against_what_not(subject: Subject) -> tuple[str, ...]:
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


def hypotheses(subject: Subject) -> Section:
    """What was declared, enforced and checked, declared first; what must be believed besides; and what would make it all void."""
    blocks: list[Block] = []
    if subject.failing:
        blocks.append(_table("Fails: without this nothing holds", subject.failing, mark="danger"))
    for evidence, words in _EVIDENCE.items():
        found = subject.known(evidence)
        if found:
            blocks.append(_table(words, found, mark="strong" if evidence == "declared" else ""))
        if evidence == "declared" and subject.release == "last" and any(one.name == "release" for one in found):
            blocks.append(Text("“Nobody” is anybody but those who train and could read the records anyway."))
        if not found and evidence == "declared":
            blocks.append(Text("Declared: nothing besides what every report rests on, which is listed below."))
    if explained := explained_terms(" ".join(one.words for one in subject.findings)):
        blocks += [Heading("Words used above"), Facts(explained)]
    trusted = _believed(subject)
    if subject.private:
        blocks += [Heading("What must be believed besides, and this report cannot check"), Items(trusted)]
    void = _voids(subject)
    blocks += [Heading("What would make it void"), Items(void)]
    data = {
        "fails": [one.to_dict() for one in subject.failing],
        **{evidence: [one.to_dict() for one in subject.known(evidence)] for evidence in _EVIDENCE},
        "believed_besides": list(trusted),
        "void_if": list(void),
    }
    return Section("hypotheses", "What must be believed, and what would make it void", tuple(blocks), data)


def _table(caption: str, found: tuple[Finding, ...], *, mark: str) -> Table:
    rows = tuple((one.name, one.words) for one in found)
    return Table(caption, ("what", "in words"), rows, marks=tuple(mark for _ in rows))


def _believed(subject: Subject) -> tuple[str, ...]:
    lines = [
        "No setting (step size, noise, number of passes, when to stop) was tuned on the private data; or each trial was trained with "
        "noise, and its certificate is added to this one (“lethe total”).",
        "What prepared the records (scaling, filling gaps, choosing columns) learned nothing from them, or its price is counted here too.",
        "Nothing else was released from the same records; or its certificate is added to this one (“lethe total”).",
        "The rounding of numbers and the generator of the noise, which section 2 leaves out, did no harm here.",
    ]
    if codes := sorted({one.by for one in subject.known("enforced") if one.by}):
        lines.append(f"The code that trained ({', '.join(codes)}) has no fault, so that the enforced lines are true.")
    theorem = "" if subject.certificate is None else f" ({subject.certificate.theorem})"
    lines.append(f"The theorem{theorem} is right, and so is the code of Lethe that computes epsilon by it.")
    seal = subject.seal
    if subject.sealed and seal is not None and seal.signer is not None:
        lines.append(
            f"The key that sealed ({seal.signer.fingerprint}) was in the right hands: this report knows the key and not who holds it, and "
            "whoever holds it could sign anything."
        )
    elif subject.sealed:
        lines.append("The keys that sealed the parts were in the right hands: whoever holds one could sign anything.")
    else:
        lines.append("What was done is what is described here; no seal that is believed says so.")
    return tuple(lines)


def _voids(subject: Subject) -> tuple[str, ...]:
    run = subject.run
    lines = [f"“{one.name}” above, which is declared, is not true." for one in subject.known("declared")]
    if subject.release == "last":
        lines.append(
            "Anybody outside sees more than the final model: a checkpoint, an average of several models, the optimiser's state, a curve of "
            "the loss on private data, or a choice of the best epoch by private data."
        )
    elif subject.release == "all":
        lines.append("Anybody outside sees more than the models after each step: single gradients, batches, or the loss on private data.")
    if run is not None and run.batches.secret:
        lines.append(f"Anybody outside learns {run.batches.secret}, which must stay secret.")
    if not any(one.name == FRESH_NOISE and one.evidence == "enforced" for one in subject.findings):
        lines.append("The noise can be foreseen: somebody fixed or knows the seed.")
    lines.append("Settings were chosen by trying several on the same private data, and the trials are not added up.")
    if subject.sealed:
        lines.append(
            "Other weights are released than those trained here, whose digest stands at the end: of a second training, say. To round or "
            "to convert these is no breach; to train them further on the same records is another release."
        )
    else:
        lines.append("What was done is not what is described here.")
    lines.append("The same records were used for another release, and the two are not added up.")
    return tuple(lines)
