"""The promise: the guarantee in one plain sentence, what was trained, and what must be read before anything else."""

from __future__ import annotations

import inspect

from lethe.accounting.totals import Total
from lethe.calculus.upward_formatting import shown
from lethe.report.model import Block, Facts, Notice, Section, Text
from lethe.report.sections.evidence import total_table
from lethe.report.sections.numbers import Lines
from lethe.report.subject import Subject
from lethe.report.wording import RELATIONS, RELEASES, SHORT_RELATIONS, count, factor, number, of_unit, percent, proved_by, times
from lethe.run.descended import descends_envelope
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules.base import Schedule

# How often a guess is right, at most, and how that is said.
_STRENGTHS = ((0.6, "can hardly tell"), (0.75, "has only a limited advantage in telling"), (0.95, "may often be able to tell"))

_SEEN = {"last": "the final model", "all": "the model after every step", "released": "what was released"}
_ATTACKED = {"last": "the released model", "all": "the released models", "released": "what was released"}
_CHANGES = {
    "replace_one": "whether any one record was in the training data, or any other record in its place",
    "zero_out": "whether any one record was in the training data, or its place was empty",
    "add_or_remove": "whether any one record was in the training data or not",
}


def guarantee(subject: Subject, lines: Lines) -> Section:
    """The guarantee in one plain sentence, and what was trained."""
    blocks: tuple[Block, ...] = (Text(sentence(subject, lines), lead=True),)
    glance = _glance(subject)
    if subject.private:
        blocks += (Text(_meaning(subject)), Text(_which_number(subject, lines)))
    blocks += (Facts(tuple(glance)),)
    if isinstance(subject.proof, Total):
        blocks += (total_table(subject.proof),)
    data = {
        "sentence": sentence(subject, lines),
        "epsilon": subject.epsilon if subject.private else "inf",
        "delta": subject.delta,
        "neighbours": subject.neighbours,
        "release": subject.release,
        "best_guess_right": lines.right,
        "glance": dict(glance),
    }
    return Section("guarantee", "The guarantee", blocks, data)


def sentence(subject: Subject, lines: Lines) -> str:
    """What is promised, for somebody who has never heard of differential privacy."""
    if not subject.private:
        words = (
            "Nothing is promised: no bound is proved on how much what was released gives away about any one record in the training data."
        )
        return of_unit(words, subject.unit)
    seen = _SEEN[subject.release]
    strength = next((words for most, words in _STRENGTHS if lines.right <= most), "may nearly always be able to tell")
    change = of_unit(_CHANGES[subject.neighbours], subject.unit)
    return (
        f"Whoever sees {seen} {strength} {change}. Between two such data sets that are equally likely, the best "
        f"possible attack picks the right one at most {percent(lines.right)} of the time; a coin does so 50 % of the time."
    )


def _meaning(subject: Subject) -> str:
    epsilon, delta = shown(subject.epsilon), f"{subject.delta:g}"
    return of_unit(
        f"In the terms of the field this is ({epsilon}, {delta})-differential privacy: this change of one record makes nothing that may "
        f"come out more than {factor(subject.epsilon)} times as likely, but for a probability of delta = {delta}, by which that factor may "
        f"be exceeded. It holds against every attack on {_ATTACKED[subject.release]}, except what "
        "section 2 leaves out, with any knowledge about the other records and any amount of computing.",
        subject.unit,
    )


def _which_number(subject: Subject, lines: Lines) -> str:
    return (
        f"Which number to judge by: {percent(lines.right)} is the most that an attacker gets right who holds both cases to be equally "
        f"likely. It is an average over all that may come out, and needs no delta: judge the protection by it, and by the table of section "
        f"4. The factor {factor(subject.epsilon)} is about the single outcome that tells most (up to delta), which may be very rare. Both "
        "are true, of the same proof. Epsilon and delta are for comparing with other trainings."
    )


def notices(subject: Subject) -> tuple[Notice, ...]:
    """What stands on top, the worst first."""
    found: list[Notice] = []
    if not subject.private:
        why = subject.proof.not_private.removeprefix("NOT PRIVATE: ")
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
        seal = subject.seal
        by = "in every part, with a key that is known here" if seal is None else seal.words
        if by.endswith("this installation's key"):
            by += " (kept on the computer that made this report)"
        words = f"The code that trained signed what it did: {by}. Whoever holds the key could sign anything."
        lines = len(subject.known("declared"))
        words += f" {lines} line{' is' if lines == 1 else 's are'} declared; section 3 lists all that must be believed."
        return [Notice("plain", "Sealed", words)]
    words = "Nobody vouches for what this rests on. The numbers are true only if every declared line is."
    if subject.certificate is not None:
        words = (
            "Nobody vouches that this training took place as described. The numbers follow from a description that somebody typed or that "
            "a file holds; they are true only if it is."
        )
    elif subject.known("enforced"):
        return []
    if subject.seal is not None:
        words += f" There is a seal, which is not believed here: {subject.seal.words}."
    return [Notice("caution", "DECLARED ONLY", words)]


def _glance(subject: Subject) -> list[tuple[str, str]]:
    rows = [("What was trained" if subject.run is not None else "What was released", subject.what)]
    rows += _of_run(subject.run) if subject.run is not None else []
    if subject.run is None and subject.records is not None:
        rows.append(("Training data", of_unit(f"{count(subject.records)} records (a public number)", subject.unit)))
    released = RELEASES.get(subject.release, "all of what is named above")
    proved = f"({shown(subject.epsilon)}, {subject.delta:g})-DP" if subject.private else "nothing"
    rows += [
        ("What may be seen", released),
        (of_unit("What counts as a change of one record", subject.unit), of_unit(RELATIONS[subject.neighbours], subject.unit)),
        ("What is promised", f"{proved}, {SHORT_RELATIONS[subject.neighbours]}{'' if subject.unit == 'record' else ' user'}"),
    ]
    if subject.unit != "record":
        rows.append(("What a user is", "all records of one id, whose gradients are averaged and clipped as one"))
    if subject.certificate is not None:
        rows.append(("Proved by", proved_by(subject.certificate.theorem)))
    return rows


def _of_run(run: Run) -> list[tuple[str, str]]:
    # The first line of a design's docstring says in words how its batches are made; a design from outside has one too.
    words = (inspect.getdoc(type(run.batches)) or "see the documentation").partition("\n")[0].rstrip(".")
    design = f"{run.batches.design}: {words[:1].lower()}{words[1:]}"
    if run.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP:
        design += f"; g = {count(run.batches.groups_of_records)}"
    passes = "" if run.passes is None else f", {times(run.passes, 'pass', 'passes')} over the data"
    rows = [
        ("Training data", f"{count(run.records)} records (a public number){_unused(run)}"),
        ("Length", times(run.total_steps, "step", "steps") + passes),
        ("Batches", f"{count(run.batch_size)} records, {design}"),
        ("Gradients", _gradients(run)),
        ("Noise", _noise(run)),
        ("Regulariser", ", ".join(str(part.to_document()["kind"]) for part in run.regularisers) or "none"),
    ]
    return [(name, of_unit(words, run.unit)) for name, words in rows]


def _gradients(run: Run) -> str:
    if run.clip_norm is None:
        return "not clipped; the loss bounds them"
    if descends_envelope(run):
        return f"of each loss's envelope, which is no steeper than {number(run.clip_norm)}"
    return f"clipped to norm {number(run.clip_norm)}"


def _unused(run: Run) -> str:
    """How many records no step is trained on, where the design leaves some over; the number is as public as that of all records."""
    if not (run.batches.fixed and run.batches.exact_size):
        return ""
    again = not run.batches.repeats and run.total_steps > run.steps_per_pass
    left = run.records - min(run.total_steps, run.steps_per_pass) * run.batch_size
    if left <= 0:
        return ""
    words = "left over by the batches of each pass" if again else "left over and never trained on"
    return f"; {count(left)} of them {'is' if left == 1 else 'are'} {words}"


def _noise(run: Run) -> str:
    at = "at every step" if run.noise_at == "every_step" else "at the end of each pass"
    if len(run.noisy_steps) == 1:
        at = f"once, at step {count(int(run.noisy_steps[0]) + 1)}"
    noisy = run.uncorrelated.noise_multipliers[run.noisy_steps]
    low, high = float(noisy.min()), float(noisy.max())
    if isinstance(run.noise_multiplier, Schedule) and low < high:
        return f"Gaussian, standard deviation {number(low)} to {number(high)} times the longest gradient that a record may have, {at}"
    if run.noise is not None:
        at += f", drawn anew and correlated over the steps ({run.noise.summary})"
    return f"Gaussian, standard deviation {number(high)} times the longest gradient that a record may have, {at}" if high > 0.0 else "none"
