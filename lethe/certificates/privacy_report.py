"""privacy_report: a page of words on what several releases cost together.

Estimators (`privacy_report_`) and `privacy_report_of` a pipeline call it with the statements of their releases.
"""

from collections.abc import Sequence

from lethe.calculus.large_delta import large_delta_note
from lethe.calculus.upward_formatting import shown
from lethe.certificates.findings import uncovered
from lethe.certificates.statement import Statement
from lethe.run.participation import NOUNS

_RELATIONS = {"replace_one": "one record replaced by another", "zero_out": "one record's contribution set to zero"}
_NOT_COVERED = (
    "how parameters given by hand were chosen, if that looked at the data",
    "what earlier steps, or you, did to rows or targets with numbers read off the records: of a pipeline ask privacy_of(pipeline)",
    "other fits on the same records: GridSearchCV, cross_val_score and bagging fit again and again, and each fit costs as much",
    "(a ledger, lethe.ledger.spending, counts them all, privacy_of([...]) those listed; PrivateSearch pays for a choice among candidates)",
    "scores and predictions published of the training data; predictions for other data are covered",
    "the rounding of floating-point numbers, a statistical (not cryptographic) generator, and how long training took",
)


def privacy_report(
    total: Statement,
    parts: Sequence[Statement],
    *,
    delta: float,
    records: int | None = None,
    why: Sequence[str] = (),
    free: Sequence[str] = (),
    public: Sequence[str],
    scope: Sequence[str] = (),
) -> str:
    """The headline and lines on its scope, the parts, why this mechanism, what learned nothing (free), and what is taken as public."""
    unit_noun, several = NOUNS[total.unit]
    relation = _RELATIONS.get(total.neighbours, total.neighbours).replace("record", unit_noun)
    note = None if records is None else large_delta_note(delta, records)
    headline = f"({shown(total.epsilon(delta))}, {delta:g})-DP for {relation}; "
    rests = [f"{finding.evidence:<8}  {finding.name}: {finding.words}" for finding in total.findings if finding.status == "holds"]
    released = [f"{part.name}: epsilon {shown(part.epsilon(delta))} alone; {part.guarantee.describe()}" for part in parts]
    lines = [
        f"{headline}the number of {several}{'' if records is None else f', {records},'} is public.",
        *(f"NOT COVERED: {words}." for words in uncovered(total.findings)),
        *scope,
        *([] if note is None else [note]),
        *(f"NOT PRIVATE: {finding.detail}." for finding in total.findings if finding.status == "fails"),
    ]
    for title, section in (
        ("What was released", released),
        ("Why this mechanism (predicted from public facts only)", [line.strip() for line in why]),
        ("What learned nothing from records", free),
        ("What it rests on", rests),
        ("Taken as public", public),
        ("Not covered", _NOT_COVERED),
    ):
        lines += ["", f"{title}:", *(f"    {line}" for line in section)] if section else []
    return "\n".join(lines)
