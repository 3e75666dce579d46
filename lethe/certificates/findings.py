"""Finding: one hypothesis of a theorem and how it is known: checked, enforced or declared.

Theorems and mechanisms give one for each of their hypotheses; certificates and statements list them, `lethe verify` checks them again. A
guarantee is only as good as what was declared, so each says how it is known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lethe.errors import HypothesisError

Status = Literal["holds", "fails"]
Evidence = Literal["checked", "enforced", "declared"]

ESTIMATORS, TRAIN = "lethe.estimators", "lethe.train"
"""The code that carries a run out from the data to what is released, and so can make true what the run itself only declares."""

FRESH_NOISE = "fresh noise"
"""The hypothesis of every guarantee that noise and secret batches are drawn anew, and known to nobody."""
OPTIMISER = "optimiser"
"""What a training declares whose steps an optimiser of the caller's own takes."""

_BY_BOTH = frozenset({"secrecy", "gradient bound", "curvature", "arithmetic", FRESH_NOISE})
ENFORCEABLE = {ESTIMATORS: _BY_BOTH | {"release"}, TRAIN: _BY_BOTH | {"budget filter", "isolation"}}
"""Which declared hypotheses which code makes true; of no other may a certificate say more than its run does."""

UNCOVERED, OTHER_RELEASES = "learned without privacy", "other releases"
"""What a fit knows of the code that called it: what makes its guarantee no promise to the records, and what has to be added to it."""

SAID_BY_RUN = "the run says: enforced by the code that trains"
"""What is written of a hypothesis that a run calls enforced: anybody can write that into a run, so it counts as declared."""


def _said_by_file(by: str) -> str:
    """What is written instead of `SAID_BY_RUN` in a certificate without a trusted seal, with the code that the file names."""
    return f"the file says: enforced by {by or 'the code that trains'}"


_SAID_CHECKED = "the file says: checked by the code that made it"
"""What is written of a hypothesis of a statement's file that somebody else is said to have checked."""

SAID = frozenset({SAID_BY_RUN, _SAID_CHECKED, *(_said_by_file(by) for by in ("", *ENFORCEABLE))})
"""All that may be written so; a certificate with other words is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One hypothesis of a theorem for one run, and how it is known.

    Args:
        name: the hypothesis, in two or three words.
        status: "holds" or "fails".
        evidence: "checked" (computed from the run), "enforced" (the code that trains makes it so), "declared" (the user says so).
        detail: what was found, with its numbers.
        source: the field of the run it was read from, for a hypothesis that fails.
        remedy: what to do about a hypothesis that fails.
        by: whose code makes it so, for what the run only declares and "enforced" was put in its place; a name in `ENFORCEABLE`.
        said: who says that it is enforced, where nothing proves that and it is declared: one of `SAID`.
    """

    name: str
    status: Status
    evidence: Evidence
    detail: str
    source: str = ""
    remedy: str = ""
    by: str = ""
    said: str = ""

    @property
    def words(self) -> str:
        """The detail, the code that enforces it, and who declares it if nothing proves it: text for a report."""
        return self.detail + (f" [by {self.by}]" if self.by else "") + (f" ({self.said})" if self.said else "")

    def to_dict(self) -> dict[str, Any]:
        """Name, status, evidence and detail, and who enforces or declares it, if that is known."""
        return {
            key: value for key, value in asdict(self).items() if key not in ("source", "remedy") and (value or key not in ("by", "said"))
        }


def holds(name: str, detail: str, *, evidence: Evidence = "checked") -> Finding:
    """A hypothesis that holds."""
    return Finding(name=name, status="holds", evidence=evidence, detail=detail)


def holds_by_declaration(name: str, detail: str, *, evidence: Evidence) -> Finding:
    """A hypothesis that holds because the run says so of its loss; "enforced" counts as declared, since nothing else shows it."""
    return Finding(name=name, status="holds", evidence="declared", detail=detail, said=SAID_BY_RUN if evidence == "enforced" else "")


def fails(name: str, detail: str, *, source: str, remedy: str) -> Finding:
    """A hypothesis that fails, which only a check can find."""
    return Finding(name=name, status="fails", evidence="checked", detail=detail, source=source, remedy=remedy)


def drawn_fresh(by: str) -> Finding:
    """The finding of this code: it drew all noise and all secret batches anew, and says so under its seal."""
    detail = "noise, and batches that are secret, came from fresh entropy of the operating system, neither kept nor shown"
    return Finding(name=FRESH_NOISE, status="holds", evidence="enforced", detail=detail, by=by)


def not_fresh(otherwise: str = "") -> Finding:
    """The failing finding of a run whose noise or batches somebody chose by a seed; `otherwise`: what would hold else, in a clause."""
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


def uncovered(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What learned from the same records without privacy, as a fit's findings say, a sentence each; of a total's parts too."""
    remark = (f"{finding.name}: {finding.words}".partition(f"{UNCOVERED}: ")[2] for finding in findings if finding.evidence == "declared")
    return tuple(filter(None, remark))


def require_all(findings: Iterable[Finding], what: str) -> None:
    """HypothesisError, which begins with `what` does not follow, where a hypothesis fails."""
    if (failure := first_failure(findings)) is not None:
        raise HypothesisError(f"{what}: {failure.detail}", source=failure.source, remedy=failure.remedy)


def enforced(findings: Iterable[Finding], reasons: Mapping[str, str], *, by: str = ESTIMATORS, of_run: bool = False) -> tuple[Finding, ...]:
    """The findings, with declared ones turned into enforced ones where this code makes them true: `reasons` says how, by hypothesis.

    Of a run alone the reason is added to what the run says of it.
    """
    return tuple(
        replace(
            finding,
            evidence="enforced",
            detail=f"{finding.detail}; {reasons[finding.name]}" if of_run else reasons[finding.name],
            by=by,
            said="",
        )
        if finding.name in reasons and finding.status == "holds" and finding.evidence == "declared"
        else finding
        for finding in findings
    )


def as_said(finding: Finding) -> Finding:
    """An enforced hypothesis of a file without a trusted seal: it counts as declared by the file."""
    if finding.evidence != "enforced":
        return finding
    return replace(finding, evidence="declared", by="", said=_said_by_file(finding.by))


def as_told(finding: Finding) -> Finding:
    """A hypothesis of a statement's file: whatever the file calls enforced or checked counts as declared by it, for nothing shows it."""
    if finding.evidence == "checked" and finding.status == "holds":
        return replace(finding, evidence="declared", said=_SAID_CHECKED)
    return as_said(finding)


def as_written(finding: Finding) -> Finding:
    """The inverse of `as_said`: the hypothesis as the file states it."""
    by = next((by for by in ("", *ENFORCEABLE) if finding.said == _said_by_file(by)), None)
    return finding if by is None else replace(finding, evidence="enforced", by=by, said="")
