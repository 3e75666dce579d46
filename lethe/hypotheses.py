"""What a theorem needs of a run, and what was found: checked, enforced and declared are never blurred."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Status = Literal["holds", "fails"]
Evidence = Literal["checked", "enforced", "declared"]

ESTIMATORS = "lethe.estimators"
"""The code that carries a run out from the data to what is released, and so can make true what the run itself only declares."""

ENFORCEABLE = {ESTIMATORS: frozenset({"release", "secrecy", "gradient bound", "curvature"})}
"""Which declared hypotheses which code makes true; of no other may a certificate say more than its run does."""

FRESH_NOISE = "fresh noise"
"""The hypothesis of every guarantee that noise and secret batches are drawn anew, and known to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One hypothesis, looked at for one run.

    Args:
        name: the hypothesis, in two or three words.
        status: "holds" or "fails".
        evidence: "checked" (computed from the run), "enforced" (the code that trains makes it so), "declared" (the user says so).
        detail: what was found, with its numbers.
        source: the field of the run it was read from, for a hypothesis that fails.
        remedy: what to do about a hypothesis that fails.
        by: whose code makes it so, for what the run only declares and "enforced" was put in its place; a name in `ENFORCEABLE`.
    """

    name: str
    status: Status
    evidence: Evidence
    detail: str
    source: str = ""
    remedy: str = ""
    by: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Name, status, evidence and detail, and by whom, if that is said."""
        return {key: value for key, value in asdict(self).items() if key not in ("source", "remedy") and (value or key != "by")}


def holds(name: str, detail: str, *, evidence: Evidence = "checked") -> Finding:
    """A hypothesis that holds."""
    return Finding(name=name, status="holds", evidence=evidence, detail=detail)


def fails(name: str, detail: str, *, source: str, remedy: str) -> Finding:
    """A hypothesis that fails, which only a check can find."""
    return Finding(name=name, status="fails", evidence="checked", detail=detail, source=source, remedy=remedy)


def not_fresh(otherwise: str = "") -> Finding:
    """That noise or secret batches came from a seed or generator that somebody chose.

    Args:
        otherwise: what would hold with fresh noise, in a clause.
    """
    detail = (
        "no release: noise or secret batches came from a seed or generator that somebody chose; whoever has it can make them again and "
        "tell neighbours apart every time, and fits with the same seed share their noise"
    )
    return fails(
        FRESH_NOISE,
        f"{detail}; {otherwise}" if otherwise else detail,
        source="seeded = true",
        remedy="train again without seed or generator; a run that is still to be trained has seeded: false.",
    )


def first_failure(findings: Iterable[Finding]) -> Finding | None:
    """The first hypothesis that fails, if any."""
    return next((finding for finding in findings if finding.status == "fails"), None)


def enforced(findings: Iterable[Finding], reasons: Mapping[str, str], *, by: str = ESTIMATORS) -> tuple[Finding, ...]:
    """The same findings, but that some are no longer declared: the code that trained makes them true.

    Args:
        findings: of a certificate or a statement.
        reasons: by the name of a hypothesis, how the code makes it true. Only what holds and is declared changes.
        by: whose code.
    """
    return tuple(
        replace(finding, evidence="enforced", detail=reasons[finding.name], by=by)
        if finding.name in reasons and finding.status == "holds" and finding.evidence == "declared"
        else finding
        for finding in findings
    )


def as_declared(finding: Finding) -> Finding:
    """What the run alone says of it: declared, where code that can make it true is said to; anything else as it is."""
    if finding.evidence == "enforced" and finding.name in ENFORCEABLE.get(finding.by, ()):
        return replace(finding, evidence="declared", by="")
    return finding
