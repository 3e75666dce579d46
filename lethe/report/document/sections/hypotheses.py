"""What was declared, enforced and checked, declared first; and what would make it all void."""

from __future__ import annotations

from lethe.certificates.findings import FRESH_NOISE, Finding
from lethe.report.document.model import Block, Heading, Items, Section, Table, Text
from lethe.report.document.subject import Subject

_WORDS = {
    "declared": "Declared: somebody said so, and nothing proves it. Whoever signs, signs these",
    "enforced": "Enforced: the code that trained made it so",
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
        elif evidence == "declared":
            blocks.append(Text("Declared: nothing besides what every report rests on, which is listed below."))
    void = voids(subject)
    blocks += [Heading("What would make it void"), Items(void)]
    data = {
        "fails": [one.to_dict() for one in subject.failing],
        **{evidence: [one.to_dict() for one in subject.known(evidence)] for evidence in _WORDS},
        "void_if": list(void),
    }
    return Section("hypotheses", "What must be believed, and what would make it void", tuple(blocks), data)


def _table(caption: str, found: tuple[Finding, ...], *, mark: str) -> Table:
    rows = tuple((one.name, one.words) for one in found)
    return Table(caption, ("what", "in words"), rows, marks=tuple(mark for _ in rows))


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
    lines.append("Settings were chosen by trying several on the same private data, and the trials are not counted.")
    if subject.sealed:
        lines.append("The released weights are others than those whose digest stands at the end of this report.")
    else:
        lines.append("What was done is not what is described here.")
    lines.append("The same records were used for another release, and the two are not added up.")
    return tuple(lines)
