"""What was declared, enforced and checked, declared first; and what would make it all void."""

from __future__ import annotations

from lethe.certificates.findings import FRESH_NOISE, Finding
from lethe.report.document.glossary import explained_terms
from lethe.report.document.model import Block, Facts, Heading, Items, Section, Table, Text
from lethe.report.document.subject import Subject

_WORDS = {
    "declared": "Declared: somebody said so, and nothing proves it. Whoever signs, signs these",
    "enforced": "Enforced: the code that trained made it so; it is named in brackets",
    "checked": "Checked: computed from the numbers of the run",
}


def hypotheses(subject: Subject) -> Section:
    """The section."""
    blocks: list[Block] = []
    if subject.failing:
        blocks.append(_table("Fails: without this nothing holds", subject.failing, mark="danger"))
    for evidence, words in _WORDS.items():
        found = subject.known(evidence)
        if found:
            blocks.append(_table(words, found, mark="strong" if evidence == "declared" else ""))
        if evidence == "declared" and subject.release == "last" and any(one.name == "release" for one in found):
            blocks.append(Text("“Nobody” is anybody but those who train and could read the records anyway."))
        if not found and evidence == "declared":
            blocks.append(Text("Declared: nothing besides what every report rests on, which is listed below."))
    if explained := explained_terms(" ".join(one.words for one in subject.findings)):
        blocks += [Heading("Words used above"), Facts(explained)]
    trusted = believed(subject)
    if subject.private:
        blocks += [Heading("What must be believed besides, and this report cannot check"), Items(trusted)]
    void = voids(subject)
    blocks += [Heading("What would make it void"), Items(void)]
    data = {
        "fails": [one.to_dict() for one in subject.failing],
        **{evidence: [one.to_dict() for one in subject.known(evidence)] for evidence in _WORDS},
        "believed_besides": list(trusted),
        "void_if": list(void),
    }
    return Section("hypotheses", "What must be believed, and what would make it void", tuple(blocks), data)


def _table(caption: str, found: tuple[Finding, ...], *, mark: str) -> Table:
    rows = tuple((one.name, one.words) for one in found)
    return Table(caption, ("what", "in words"), rows, marks=tuple(mark for _ in rows))


def believed(subject: Subject) -> tuple[str, ...]:
    """A line for each thing that is no hypothesis of the theorem, that nothing here can check, and that the promise rests on."""
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


def voids(subject: Subject) -> tuple[str, ...]:
    """A line for each thing that would make the promise void."""
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
