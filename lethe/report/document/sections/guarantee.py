"""The guarantee in one plain sentence, what was trained, and what must be read before anything else."""

from __future__ import annotations

from lethe.calculus.upward_formatting import shown
from lethe.report.document.model import Block, Facts, Notice, Section, Table, Text
from lethe.report.document.subject import Subject
from lethe.report.document.tradeoff import Lines
from lethe.report.document.wording import DESIGNS, RELATIONS, RELEASES, SHORT_RELATIONS, count, factor, number, percent
from lethe.run.run import Run
from lethe.run.schedules import Schedule

# How often a guess is right, at most, and how that is said.
_STRENGTHS = ((0.6, "can hardly tell"), (0.75, "has only a limited advantage in telling"), (0.95, "may often be able to tell"))

_SEEN = {"last": "the final model", "all": "the model after every step", "released": "what was released"}
_CHANGES = {
    "replace_one": "whether any one record was in the training data, or any other record in its place",
    "zero_out": "whether any one record was in the training data, or its place was empty",
    "add_or_remove": "whether any one record was in the training data or not",
}


def guarantee(subject: Subject, lines: Lines) -> Section:
    """The section."""
    blocks: tuple[Block, ...] = (Text(sentence(subject, lines), lead=True),)
    if subject.private:
        blocks += (Text(_meaning(subject)),)
    blocks += (Facts(tuple(_glance(subject))),)
    if subject.total is not None:
        head = ("release", "times", "epsilon alone", "guarantee", "known how")
        blocks += (Table("What is added up", head, subject.total.rows, numbers=(1, 2)),)
    data = {
        "sentence": sentence(subject, lines),
        "epsilon": subject.epsilon if subject.private else "inf",
        "delta": subject.delta,
        "neighbours": subject.neighbours,
        "release": subject.release,
        "best_guess_right": lines.right,
        "glance": dict(_glance(subject)),
    }
    return Section("guarantee", "The guarantee", blocks, data)


def sentence(subject: Subject, lines: Lines) -> str:
    """What is promised, for somebody who has never heard of differential privacy."""
    if not subject.private:
        return "Nothing is promised: no bound is proved on how much what was released gives away about any one record in the training data."
    seen = _SEEN[subject.release]
    strength = next((words for most, words in _STRENGTHS if lines.right <= most), "may nearly always be able to tell")
    return (
        f"Whoever sees {seen} {strength} {_CHANGES[subject.neighbours]}. Between two such data sets that are equally likely, the best "
        f"possible attack picks the right one at most {percent(lines.right)} of the time; a coin does so 50 % of the time."
    )


def _meaning(subject: Subject) -> str:
    epsilon, delta = shown(subject.epsilon), f"{subject.delta:g}"
    return (
        f"In the terms of the field this is ({epsilon}, {delta})-differential privacy. Epsilon = {epsilon} means that this change of one "
        f"record makes no outcome more than {factor(subject.epsilon)} times as likely, plus a chance of delta = {delta}. It holds against "
        "every attack, also those that nobody has thought of, with any knowledge about the other records and any amount of computing."
    )


def notices(subject: Subject) -> tuple[Notice, ...]:
    """What stands on top, the worst first."""
    found: list[Notice] = []
    if not subject.private:
        proof = subject.certificate or subject.statement or subject.total
        why = "" if proof is None else proof.not_private.removeprefix("NOT PRIVATE: ")
        why = why or " ".join(f"{one.detail}." for one in subject.failing) or "no epsilon is proved."
        found.append(Notice("danger", "NOT PRIVATE", f"Do not rely on any privacy of what was released: {why}"))
    found += [
        Notice("danger", "OTHER WEIGHTS", f"This report is not about the weights that lie beside the certificate: {answer.why}.")
        for answer in subject.answers
        if answer.question.startswith("belongs") and not answer.yes and subject.sealed
    ]
    found += [
        Notice("danger", f"THE AUDIT SAYS {page.verdict.upper()}", f"{page.subject}: {page.says}. See the section on the audit.")
        for page in subject.audits
        if page.failed
    ]
    if subject.large_delta and subject.private:
        found.append(
            Notice(
                "danger",
                "DELTA IS TOO LARGE",
                f"Delta = {subject.delta:g} is 1 / (number of records) or more. Publishing one record whole would pass such a promise.",
            )
        )
    found += _vouching(subject) if subject.private else []  # of nothing, nobody needs to vouch
    if subject.note:
        found.append(Notice("plain", "Another version", subject.note))
    return tuple(found)


def _vouching(subject: Subject) -> list[Notice]:
    if subject.sealed:
        seal = None if subject.certificate is None else subject.certificate.seal
        by = "in every part, with a key that is known here" if seal is None else seal.words
        words = f"The code that trained signed what it did: {by}."
        lines = len(subject.known("declared"))
        if lines:
            words += f" {lines} line{'s' if lines > 1 else ''} below {'are' if lines > 1 else 'is'} declared and not covered by that."
        return [Notice("plain", "Sealed", words)]
    if subject.certificate is not None:
        seal = subject.certificate.seal
        words = (
            "Nobody vouches that this training took place as described. The numbers follow from a description that somebody typed or that "
            "a file holds; they are true only if it is."
        )
        if seal is not None:
            words += f" There is a seal, which is not believed here: {seal.words}."
        return [Notice("caution", "DECLARED ONLY", words)]
    if subject.known("enforced"):
        return []
    words = "Nobody vouches for what this rests on. The numbers are true only if every declared line is."
    return [Notice("caution", "DECLARED ONLY", words)]


def _glance(subject: Subject) -> list[tuple[str, str]]:
    rows = [("What was trained" if subject.run is not None else "What was released", subject.what)]
    rows += _of_run(subject.run) if subject.run is not None else []
    if subject.run is None and subject.records is not None:
        rows.append(("Training data", f"{count(subject.records)} records (a public number)"))
    released = RELEASES.get(subject.release, "all of what is named above")
    proved = f"({shown(subject.epsilon)}, {subject.delta:g})-DP" if subject.private else "nothing"
    rows += [
        ("What may be seen", released),
        ("What counts as a change of one record", RELATIONS[subject.neighbours]),
        ("What is promised", f"{proved}, {SHORT_RELATIONS[subject.neighbours]}"),
    ]
    if subject.certificate is not None:
        rows.append(("Proved by", subject.certificate.theorem))
    return rows


def _of_run(run: Run) -> list[tuple[str, str]]:
    passes = f", {number(run.total_steps / run.steps_per_pass)} passes over the data"
    design = f"{run.batches.design}: {DESIGNS.get(run.batches.design, 'see the documentation')}"
    clipped = "not clipped; the loss bounds them" if run.clip_norm is None else f"clipped to norm {number(run.clip_norm)}"
    return [
        ("Training data", f"{count(run.records)} records (a public number)"),
        ("Length", f"{count(run.total_steps)} steps{passes}"),
        ("Batches", f"{count(run.batch_size)} records, {design}"),
        ("Gradients", clipped),
        ("Noise", _noise(run)),
        ("Regulariser", ", ".join(str(part.to_document()["kind"]) for part in run.regularisers) or "none"),
    ]


def _noise(run: Run) -> str:
    at = "at every step" if run.noise_at == "every_step" else "at the end of each pass"
    noisy = run.noise_multipliers[run.noisy_steps]
    low, high = float(noisy.min()), float(noisy.max())
    if isinstance(run.noise_multiplier, Schedule) and low < high:
        return f"Gaussian, with {number(low)} to {number(high)} times the length of the longest gradient of one record, {at}"
    return f"Gaussian, with {number(high)} times the length of the longest gradient of one record, {at}" if high > 0.0 else "none"
