"""The promise: in one plain sentence, to whom, what it rests on, what would make it void; and what must be read before anything else.

build.py calls these sections; an epsilon without its unit, hypotheses and limits says little to whoever has to decide.
"""

import inspect

from lethe.accounting.totals import Total
from lethe.calculus.upward_formatting import shown
from lethe.certificates.attack_rates import AttackRates
from lethe.certificates.findings import OTHER_RELEASES, Finding, uncovered
from lethe.certificates.parts import relation_words
from lethe.report.model import Block, Facts, Heading, Items, Notice, Section, Table
from lethe.report.sections.evidence import total_table
from lethe.report.subject import Subject
from lethe.report.wording import CHANGES, MORE_THAN_SEEN, RELATIONS, SEEN, explained_terms, factor, of_unit, percent, proved_by, times
from lethe.run.effective_loss import descends_envelope
from lethe.run.participation import Participation
from lethe.run.run import Run
from lethe.run.schedules.shapes import Schedule

# How often a guess is right, at most, and how that is said.
_STRENGTHS = ((0.6, "can hardly tell"), (0.75, "has only a limited advantage in telling"), (0.95, "may often be able to tell"))
_RELEASES = {
    "last": "the final model only: the weights after the last step (“last iterate”)",
    "all": "the model after every step (“every iterate”)",
    "released": "all of what is named above",
}
_SEVERAL = {
    "record": "A person with several records: with k records epsilon grows about k times, and delta more than that. If people have "
    "several, one record is the wrong unit.",
    "user": "A person with several user ids: with k of them epsilon grows about k times, and delta more than that. What counts as one user "
    "is decided by the ids alone.",
}
_EVIDENCE = {
    "declared": "Declared: somebody said so, and nothing proves it. Whoever signs, signs these",
    "enforced": "Enforced: the code that trained made it so; it is named in brackets",
    "checked": "Checked: computed from the numbers of the run",
}
_QUOTED = (0.01, 0.001)
_LONGEST = "times the longest gradient that a record may have"


def guarantee(subject: Subject, rates: AttackRates) -> Section:
    """The guarantee in one plain sentence, and what was trained."""
    words, glance, stated = _sentence(subject, rates), _glance(subject, rates), subject.stated
    blocks: list[Block] = [words]
    if subject.private:
        epsilon, delta, times_as_likely = shown(subject.epsilon), f"{subject.delta:g}", factor(subject.epsilon)
        field = (
            f"In the terms of the field this is ({epsilon}, {delta})-differential privacy: this change of one record makes nothing that "
            f"may come out more than {times_as_likely} times as likely, but for a probability of delta = {delta}, by which that factor "
            f"may be exceeded. It holds against every attack on {SEEN[subject.release]}, except what section 2 leaves out, with any "
            "knowledge about the other records and any amount of computing."
        )
        blocks += [
            of_unit(field, stated.unit),
            f"Which number to judge by: {percent(rates.best_guess)} is the most that an attacker gets right who holds both cases to be "
            "equally likely, on average over all that may come out; it needs no delta. Judge the protection by it, and by the table of "
            f"section 4. The factor {times_as_likely} is about the single outcome that tells most (up to delta), which may be very rare. "
            "Both are true, of the same proof. Epsilon and delta are for comparing with other trainings.",
        ]
    blocks.append(Facts(tuple(glance.items())))
    if isinstance(subject.proof, Total):
        blocks.append(total_table(subject.proof))
    data = {
        "sentence": words,
        "epsilon": subject.epsilon if subject.private else "inf",
        "delta": subject.delta,
        "neighbours": stated.neighbours,
        "release": subject.release,
        "best_guess_right": rates.best_guess,
        "glance": glance,
    }
    return Section("guarantee", "The guarantee", tuple(blocks), data)


def _sentence(subject: Subject, rates: AttackRates) -> str:
    """What is promised, for somebody who has never heard of differential privacy."""
    if not subject.private:
        nothing = (
            "Nothing is promised: no bound is proved on how much what was released gives away about any one record in the training data."
        )
        return of_unit(nothing, subject.stated.unit)
    strength = next((words for limit, words in _STRENGTHS if rates.best_guess <= limit), "may nearly always be able to tell")
    return (
        f"Whoever sees {SEEN[subject.release]} {strength} {of_unit(CHANGES[subject.stated.neighbours], subject.stated.unit)}. Between two "
        f"such data sets that are equally likely, the best possible attack picks the right one at most {percent(rates.best_guess)} of the "
        "time; a coin does so 50 % of the time."
    )


def _glance(subject: Subject, rates: AttackRates) -> dict[str, str]:
    stated = subject.stated
    proved = f"({shown(subject.epsilon)}, {subject.delta:g})-DP" if subject.private else "nothing"
    rows = {} if stated.records is None else {"Training data": f"{stated.records:,} records (a public number)"}
    rows = rows if subject.run is None else facts_of_run(subject.run)
    rows["What may be seen"] = _RELEASES[subject.release]
    rows["What counts as a change of one record"] = RELATIONS[stated.neighbours]
    rows = {of_unit(name, stated.unit): of_unit(words, stated.unit) for name, words in rows.items()}
    rows["What is promised"] = f"{proved}, {relation_words(stated.neighbours, stated.unit)}"
    if subject.private:
        rates_words = ", ".join(f"{percent(rates.true_positive_rates[alarm])} at {percent(alarm)} false alarms" for alarm in _QUOTED)
        rows["The best attack"] = f"finds at most {rates_words}; advantage at most {percent(rates.advantage)} (section 4)"
        rows["As a Gaussian mechanism"] = rates.gaussian
    if stated.unit != "record":
        rows["What a user is"] = "all records of one id, whose gradients are averaged and clipped as one"
    if subject.theorem:
        rows["Proved by"] = proved_by(subject.theorem)
    return {"What was released" if subject.run is None else "What was trained": subject.what, **rows}


def facts_of_run(run: Run) -> dict[str, str]:
    """A run at a glance, in words about records."""
    # The first line of a design's docstring says in words how its batches are made; a design from outside has one too.
    words = (inspect.getdoc(type(run.batches)) or "see the documentation").partition("\n")[0].rstrip(".")
    design = f"{run.batches.design}: {words[:1].lower()}{words[1:]}"
    if run.batches.participation is Participation.DRAW_IN_PUBLIC_GROUP:
        design += f"; g = {run.batches.groups_of_records:,}"
    passes = "" if run.passes is None else f", {times(run.passes, 'pass', 'passes')} over the data"
    gradients = "not clipped; the loss bounds them"
    if run.clip_norm is not None and descends_envelope(run):
        gradients = f"of each loss's envelope, which is no steeper than {run.clip_norm:.6g}"
    elif run.clip_norm is not None:
        gradients = f"clipped to norm {run.clip_norm:.6g}"
    return {
        "Training data": f"{run.records:,} records (a public number){_unused(run)}",
        "Length": times(run.total_steps, "step", "steps") + passes,
        "Batches": f"{run.batch_size:,} records, {design}",
        "Gradients": gradients,
        "Noise": _noise(run),
        "Regulariser": ", ".join(str(part.to_document()["kind"]) for part in run.regularisers) or "none",
    }


def _unused(run: Run) -> str:
    """How many records no step is trained on, where the design leaves some over; the number is as public as that of all records."""
    unused = run.records - min(run.total_steps, run.steps_per_pass) * run.batch_size
    if unused <= 0 or not (run.batches.fixed and run.batches.exact_size):
        return ""
    drawn_anew = not run.batches.repeats and run.total_steps > run.steps_per_pass
    words = "left over by the batches of each pass" if drawn_anew else "left over and never trained on"
    return f"; {unused:,} of them {'is' if unused == 1 else 'are'} {words}"


def _noise(run: Run) -> str:
    at = "at every step" if run.noise_at == "every_step" else "at the end of each pass"
    if len(run.noisy_steps) == 1:
        at = f"once, at step {run.noisy_steps[0] + 1:,}"
    noisy = run.uncorrelated.noise_multipliers[run.noisy_steps]
    low, high = float(noisy.min()), float(noisy.max())
    if isinstance(run.noise_multiplier, Schedule) and low < high:
        return f"Gaussian, standard deviation {low:.6g} to {high:.6g} {_LONGEST}, {at}"
    if run.noise is not None:
        at += f", drawn anew and correlated over the steps ({run.noise.summary})"
    return f"Gaussian, standard deviation {high:.6g} {_LONGEST}, {at}" if high > 0.0 else "none"


def notices(subject: Subject) -> tuple[Notice, ...]:
    """What stands on top, the worst first."""
    why = subject.proof.not_private.removeprefix("NOT PRIVATE: ")
    why = why or " ".join(f"{words}." for words in (*(finding.detail for finding in subject.failing), *uncovered(subject.findings)))
    why = why or "no epsilon is proved."
    whole = f"Delta = {subject.delta:g} is 1 / (number of records) or more. Publishing one record whole would pass such a promise."
    mismatches = [answer.why for answer in subject.answers if answer.question.startswith("belongs") and not answer.yes and subject.sealed]
    danger = [("NOT PRIVATE", f"Do not rely on any privacy of what was released: {why}")] if not subject.private else []
    danger += [
        ("OTHER WEIGHTS", f"This report is not about the weights that lie beside the certificate: {mismatch}.") for mismatch in mismatches
    ]
    failed = (page for page in subject.audits if page.failed)
    danger += [(f"THE AUDIT SAYS {page.verdict.upper()}", f"{page.subject}: {page.says}. See the section on the audit.") for page in failed]
    danger += [("DELTA IS TOO LARGE", whole)] if subject.large_delta and subject.private else []
    vouched = _vouched(subject) if subject.private else ()  # of nothing, nobody needs to vouch
    other_releases = " ".join(
        f"{finding.detail.partition(f'{OTHER_RELEASES}: ')[2] or finding.detail}." for finding in subject.findings if _is_other(finding)
    )
    note = [Notice("caution", "MORE WAS RELEASED", other_releases)] if other_releases else []
    note += [Notice("plain", "Another version", subject.note)] if subject.note else []
    return (*(Notice("danger", *words) for words in danger), *vouched, *note)


def _is_other(finding: Finding) -> bool:
    return finding.name == OTHER_RELEASES or finding.detail.startswith(f"{OTHER_RELEASES}: ")  # of a total: by the name of the part


def _vouched(subject: Subject) -> tuple[Notice, ...]:
    seal = subject.seal
    if subject.sealed:
        by = "in every part, with a key that is known here" if seal is None else seal.words
        by += " (kept on the computer that made this report)" if by.endswith("this installation's key") else ""
        declared = f"{times(len(subject.known('declared')), 'line is', 'lines are')} declared; section 3 lists all that must be believed."
        return (
            Notice(
                "plain", "Sealed", f"The code that trained signed what it did: {by}. Whoever holds the key could sign anything. {declared}"
            ),
        )
    if subject.run is None and subject.known("enforced"):
        return ()
    what = "for what this rests on" if subject.run is None else "that this training took place as described"
    words = f"Nobody vouches {what}. The numbers are true only if every declared line, and all that is described here, is."
    words += "" if seal is None else f" There is a seal, which is not believed here: {seal.words}."
    return (Notice("caution", "DECLARED ONLY", words),)


def protected(subject: Subject) -> dict[str, str]:
    """Who is protected, against whom, who may know what, and against what, in words."""
    promise = "is protected" if subject.private else "would be protected, if anything were proved"
    secret = f", nor {subject.run.batches.secret}" if subject.run is not None and subject.run.batches.secret else ""
    promise_words = {
        "Who": f"each single record in the training data {promise}: {RELATIONS[subject.stated.neighbours]}",
        "Against whom": f"anybody who sees {SEEN[subject.release]}, and everything that is computed from it later",
        "What they may know": f"all other records, the settings of the training, this report; not the noise{secret}",
        "Against what": "finding out whether, or with which values, the record took part; by any attack but those listed below",
    }
    return {name: of_unit(words, subject.stated.unit) for name, words in promise_words.items()}


def protection(subject: Subject) -> Section:
    """Who is protected against whom, and against what not."""
    coverage, unit, seal = SEEN[subject.release], subject.stated.unit, subject.seal if subject.sealed else None
    generator = "What really drew it is not known here: commonly rounded (floating-point) numbers of a generator that is not cryptographic."
    if seal is not None and seal.record is not None and seal.record.fresh:
        generator = (
            f"In fact, {seal.record.by} draws rounded (floating-point) numbers from the generator of NumPy or PyTorch, started with fresh "
            f"entropy; it is statistical, not cryptographic{', unless it was trained with secure=True' * (subject.release == 'all')}."
        )
    against = (
        _SEVERAL[unit],
        "Conclusions about everybody: if the data show that smoking is dangerous, the model may say so of every smoker, also of one whose "
        "record was not used.",
        f"Whoever sees more than {coverage}: {MORE_THAN_SEEN[subject.release]}.",
        "Whoever has the data already, or breaks into the computer that trains.",
        "Other releases from the same records: what they give away together is more than each alone.",
        f"Attacks on the noise itself: the proof takes it as exact numbers that nobody can foresee. {generator}",
        "How long training took, and whatever else can be measured of the computer that trains.",
    )
    rows = protected(subject)
    table = Table("Who is protected, and against whom", ("", "what this report speaks of"), tuple(rows.items()))
    blocks = (table, Heading("Against what it does not protect"), Items(against))
    return Section("protection", "Who is protected, and against what not", blocks, {"protected": rows, "not_protected": list(against)})


def hypotheses(subject: Subject) -> Section:
    """What was declared, enforced and checked, declared first; what must be believed besides; and what would make it all void."""
    by_evidence = {evidence: subject.known(evidence) for evidence in _EVIDENCE}
    blocks: list[Block] = [_table("Fails: without this nothing holds", subject.failing, "danger")] if subject.failing else []
    if not by_evidence["declared"]:
        blocks.append("Declared: nothing besides what every report rests on, which is listed below.")
    for evidence, lines in by_evidence.items():
        blocks += [_table(_EVIDENCE[evidence], lines, "strong" if evidence == "declared" else "")] if lines else []
        if evidence == "declared" and subject.release == "last" and any(finding.name == "release" for finding in lines):
            blocks.append("“Nobody” is anybody but those who train and could read the records anyway.")
        if evidence == "declared" and subject.columns:
            blocks.append(Table("What is taken as public of each column", ("column", "range, or what could occur"), subject.columns))
    if explained := explained_terms(" ".join(finding.words for finding in subject.findings)):
        blocks += [Heading("Words used above"), Facts(explained)]
    trusted, void = _believed(subject), _voids(subject)
    if subject.private:
        blocks += [Heading("What must be believed besides, and this report cannot check"), Items(trusted)]
    blocks += [Heading("What would make it void"), Items(void)]
    data = {name: [finding.to_dict() for finding in lines] for name, lines in {"fails": subject.failing, **by_evidence}.items()}
    lists = {"believed_besides": list(trusted), "void_if": list(void)}
    return Section(
        "hypotheses",
        "What must be believed, and what would make it void",
        tuple(blocks),
        {**data, **lists, "columns": dict(subject.columns)},
    )


def _table(caption: str, findings: tuple[Finding, ...], mark: str) -> Table:
    return Table(caption, ("what", "in words"), tuple((finding.name, finding.words) for finding in findings), marks=(mark,) * len(findings))


def _believed(subject: Subject) -> tuple[str, ...]:
    codes, seal = sorted({finding.by for finding in subject.known("enforced") if finding.by}), subject.seal
    theorem = f" ({subject.theorem})" if subject.theorem else ""
    vouched = "What was done is what is described here; no seal that is believed says so."
    if subject.sealed:
        key = "The keys that sealed the parts were" if seal is None or seal.signer is None else f"The key {seal.signer.fingerprint} was"
        vouched = f"{key} in the right hands: this report does not know who holds it, and whoever holds it could sign anything."
    return (
        "No setting (step size, noise, number of passes, when to stop) was tuned on the private data; or each trial was trained with "
        "noise, and its certificate is added to this one (“lethe total”).",
        "What prepared the records (scaling, filling gaps, choosing columns) learned nothing from them, or its price is counted here too.",
        "Nothing else was released from the same records; or its certificate is added to this one (“lethe total”).",
        "The rounding of numbers and the generator of the noise, which section 2 leaves out, did no harm here.",
        *([f"The code that trained ({', '.join(codes)}) has no fault, so that the enforced lines are true."] if codes else []),
        f"The theorem{theorem} is right, and so is the code of Lethe that computes epsilon by it.",
        vouched,
    )


def _voids(subject: Subject) -> tuple[str, ...]:
    lines = [f"“{finding.name}” above, which is declared, is not true." for finding in subject.known("declared")]
    lines.append(f"Anybody outside sees more than {SEEN[subject.release]}: {MORE_THAN_SEEN[subject.release]}.")
    if subject.run is not None and subject.run.batches.secret:
        lines.append(f"Anybody outside learns {subject.run.batches.secret}, which must stay secret.")
    if not subject.fresh_noise:
        lines.append("The noise can be foreseen: somebody fixed or knows the seed.")
    lines.append("Settings were chosen by trying several on the same private data, and the trials are not added up.")
    lines.append(
        "Other weights are released than those trained here, whose digest stands at the end. To round or to convert these is no breach; to "
        "train them further on the same records is another release."
        if subject.sealed
        else "What was done is not what is described here."
    )
    lines.append("The same records were used for another release, and the two are not added up.")
    return tuple(lines)
