"""recheck: certify a certificate's run again, or compute a statement's guarantee, and compare every field with what comes out.

`verify` calls it, and `parts` for totals: a file's epsilon is worth what it follows from.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lethe.accounting.certify import certificate_of, evaluate_theorems
from lethe.calculus.any_guarantee import require_relation
from lethe.certificates.certificate import Certificate
from lethe.certificates.derivation import Derivation
from lethe.certificates.findings import SAID_BY_RUN, Finding, as_said, holds
from lethe.certificates.statement import Statement
from lethe.documents.version import __version__
from lethe.errors import InputError, LetheError

if TYPE_CHECKING:
    from lethe.accounting.derivations import Computed

_SAME = 1e-6  # processors and libraries round differently; a number is the same within that
_TINY = 1e-15  # and so are two that are nothing
# A convolution of the same parts, one of which was rounded in its last digit, has another grid; what counts is what is computed here.
_CONVOLVED = 1e-4
_DELTAS = tuple(10.0**-power for power in range(1, 15))
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){1,3}((a|b|rc)\d{1,3})?(\.(post|dev)\d{1,4})?")


def recheck(certificate: Certificate) -> Certificate:
    """Certify the certificate's run again, and compare everything it says: the certificate as this version of Lethe writes it.

    Its numbers, and which hypotheses hold and how each is known, must be those of the run (and of the seal, where there is one). So must
    its words if it is of this version of Lethe. Those of another version may differ, and cannot be checked.

    Raises:
        InputError: something it says does not follow from its run, or its seal is broken.
    """
    if certificate.seal is not None and certificate.seal.flaw:
        raise _refused(certificate, f"its seal is {certificate.seal.flaw}")
    if not _VERSION.fullmatch(certificate.version):
        raise _refused(certificate, f"it says that it is of version {certificate.version!r}, which is none")
    fresh = _certified_again(certificate)
    _compare_numbers(certificate, fresh)
    _compare_findings(certificate, fresh)
    differing = _differing_words(certificate, fresh)
    if differing and certificate.version == __version__:
        raise _refused(certificate, f"its {differing} are not those that lethe {__version__} writes of its run")
    pairs = zip(certificate.findings, fresh.findings, strict=True)
    return replace(fresh, findings=tuple(replace(new, said=old.said) if _by_the_file(certificate, old) else new for old, new in pairs))


def words_differ(certificate: Certificate, recomputed: Certificate) -> str:
    """A line on a certificate of another version whose words are not this one's; empty where there is nothing to say."""
    differing = _differing_words(certificate, recomputed)
    note = f"written by lethe {certificate.version}, with the same numbers but other {differing}"
    return f"{note}: shown are the words of lethe {__version__}, those of the file cannot be checked." if differing else ""


def _certified_again(certificate: Certificate) -> Certificate:
    """The certificate of its run, by the theorems that it names; what it is sealed with is part of it."""
    names = [certificate.theorem, *(alternative.theorem for alternative in certificate.others)]
    try:
        fresh = certificate_of(certificate.run, certificate.delta, evaluate_theorems(certificate.run, names))
    except LetheError as error:
        raise _refused(certificate, error.what.rstrip(".")) from error
    seal = certificate.seal
    if seal is None:
        return fresh
    assert seal.record is not None
    findings = seal.record.findings(fresh.findings)
    return replace(fresh, findings=findings if seal.holds else tuple(map(as_said, findings)), seal=seal)


def _compare_numbers(certificate: Certificate, fresh: Certificate) -> None:
    for delta in (certificate.delta, *_DELTAS):
        claimed, proved = certificate.guarantee.epsilon(delta), fresh.guarantee.epsilon(delta)
        if delta == certificate.delta and not _close(claimed, certificate.epsilon):
            claimed = certificate.epsilon
        if certificate.theorem != fresh.theorem or not _close(claimed, proved):
            claim = f"it claims epsilon = {claimed:g} at delta = {delta:g} by {certificate.theorem}"
            raise _refused(certificate, f"{claim}; from its run follows epsilon = {proved:g} by {fresh.theorem}")
    if not _same_content(certificate.guarantee.to_dict(), fresh.guarantee.to_dict()):
        raise _refused(certificate, f"the parts of its guarantee are not those of {fresh.theorem} on its run")
    old, new = certificate.lipschitz, fresh.lipschitz
    if (old is None) != (new is None) or (old is not None and new is not None and not _close(old.constant, new.constant)):
        recorded, needed = ("none" if lipschitz is None else f"{lipschitz.constant:.7g}" for lipschitz in (old, new))
        raise _refused(certificate, f"it says {recorded} for the Lipschitz constant of a step; from its run follows {needed}")
    for claimed_other, recomputed in zip(certificate.others, fresh.others, strict=True):
        same = (claimed_other.status, claimed_other.epsilon is None) == (recomputed.status, recomputed.epsilon is None)
        if not same or not _close(claimed_other.epsilon or 0.0, recomputed.epsilon or 0.0):
            told = f"{claimed_other.status}, {claimed_other.epsilon}; from its run follows {recomputed.status}, {recomputed.epsilon}"
            raise _refused(certificate, f"it says of {claimed_other.theorem}: {told}")


def _compare_findings(certificate: Certificate, fresh: Certificate) -> None:
    """The same hypotheses in the same order. What a file without a seal calls enforced is declared by now, as it is of the run."""
    stated, needed = (tuple(map(_essence, cert.findings)) for cert in (certificate, fresh))
    if stated == needed:
        return
    differing = [f"it has {finding.name!r} ({finding.evidence})" for finding in certificate.findings if _essence(finding) not in needed]
    differing += [f"it lacks {finding.name!r} ({finding.evidence})" for finding in fresh.findings if _essence(finding) not in stated]
    why = "; ".join(differing) or "their order or number differs"
    unsealed = "" if certificate.seal is not None else ", and no seal says that the code that trained adds any"
    raise _refused(certificate, f"its hypotheses are not those of {certificate.theorem} on its run: {why}{unsealed}")


def _differing_words(certificate: Certificate, fresh: Certificate) -> str:
    """What of everything that only a person reads is not as this version writes it; empty where all is."""
    pairs = zip(certificate.findings, fresh.findings, strict=True)
    steps = ["" if cert.lipschitz is None else cert.lipschitz.certificate for cert in (certificate, fresh)]
    same = {
        "reasons": all((old.detail, old.said) == (new.detail, new.said) for old, new in pairs if not _by_the_file(certificate, old)),
        "words on the Lipschitz constant": steps[0] == steps[1],
        "reasons against other theorems": [alternative.why for alternative in certificate.others] == [other.why for other in fresh.others],
        "citations": certificate.citations == fresh.citations,
    }
    return ", ".join(what for what, agree in same.items() if not agree)


def _by_the_file(certificate: Certificate, finding: Finding) -> bool:
    """Whether it is called enforced without any seal: how, cannot be told from the run, and is not shown."""
    return certificate.seal is None and finding.said not in ("", SAID_BY_RUN)


def _essence(finding: Finding) -> tuple[str, str, str, str]:
    return finding.name, finding.status, finding.evidence, finding.by


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckedStatement:
    """A statement whose numbers follow from its mechanism (with a seal that is believed, as it was sealed), and what they rest on."""

    statement: Statement
    computed: Computed

    @property
    def declared(self) -> tuple[Finding, ...]:
        """What it rests on that nothing proves, whatever its file lists: numbers that are only written, that the mechanism ran as they
        say, that parts are disjoint, and its declared hypotheses."""
        numbers = [holds("guarantee", f"of {name}, taken as it is written", evidence="declared") for name in self.computed.stated]
        numbers += [holds("guarantee", f"of {line}", evidence="declared") for line in self.computed.assumed]
        if self.computed.unseen:
            words = f"that {', '.join(self.computed.unseen)} ran with these numbers, and as its theorem needs"
            numbers.append(holds("mechanism", words, evidence="declared"))
        if not any(finding.name == "disjoint parts" for finding in self.statement.findings):
            apart = self.computed.apart
            numbers += [holds("disjoint parts", f"of {name}, each record in one of them", evidence="declared") for name in apart]
        return (*numbers, *(finding for finding in self.statement.findings if finding.evidence == "declared"))


def recheck_statement(statement: Statement) -> RecheckedStatement:
    """Compute the guarantee of a statement from the numbers of its mechanism, and compare it with what it says.

    That the mechanism ran with these numbers nothing shows but a seal that is believed. A statement without numbers, or of a mechanism
    that is not known here, keeps its guarantee, named in `stated`.

    Raises:
        InputError: what it says does not follow from its numbers, or its seal is broken.
    """
    from lethe.accounting.derivations import computed  # loads every mechanism

    if statement.seal is not None and statement.seal.flaw:
        raise _refused(statement, f"its seal is {statement.seal.flaw}", what="is not to be relied on")
    try:
        require_relation(statement.planned, statement.neighbours)
        recomputed = computed(statement)
    except LetheError as error:
        raise _refused(statement, error.what.rstrip(".")) from error
    inner = _known_records(statement.derivation)
    if inner is not None and statement.records is not None and statement.records < inner:
        raise _refused(statement, f"it says {statement.records} records, and a release in it is of {inner}")
    claimed, proved = statement.planned, recomputed.guarantee
    same = _same_content(claimed.to_dict(), proved.to_dict())
    for delta in _DELTAS if statement.target_delta is None else (statement.target_delta, *_DELTAS):
        claimed_epsilon, proved_epsilon = claimed.epsilon(delta), proved.epsilon(delta)
        if not _close(claimed_epsilon, proved_epsilon) and not (same and math.isclose(claimed_epsilon, proved_epsilon, rel_tol=_CONVOLVED)):
            raise _refused(
                statement, f"it claims epsilon = {claimed_epsilon:g} at delta = {delta:g}; from its numbers follows {proved_epsilon:g}"
            )
    if not same:
        raise _refused(statement, "the parts of its guarantee are not those that its mechanism has")
    records = inner if statement.records is None else statement.records
    rechecked = replace(statement, records=records, seal=None, **{"with_fresh_noise" if statement.seeded else "guarantee": proved})
    # What was sealed elsewhere may be rounded in other digits, and is whole as it was signed; of a stranger's nothing counts.
    sealed = statement.seal is not None and (statement.seal.holds or rechecked.to_dict() == replace(statement, seal=None).to_dict())
    return RecheckedStatement(statement=statement if sealed else rechecked, computed=recomputed)


def _known_records(derivation: Derivation | None) -> int | None:
    """The largest number of records that the numbers of a mechanism, or of a part, are about; None where none says it."""
    if derivation is None:
        return None
    numbers = derivation.parameters
    run = numbers.get("run")
    counts = [numbers.get("records"), run.get("records") if isinstance(run, dict) else None]
    phases = numbers.get("phases")
    counts += [phase.get("stop") for phase in phases if isinstance(phase, dict)] if isinstance(phases, list) else []
    counts += [part.records for part in derivation.parts]
    counts += [_known_records(part.derivation) for part in derivation.parts]
    return max((count for count in counts if isinstance(count, int)), default=None)


def _refused(stated: Certificate | Statement, why: str, *, what: str = "") -> InputError:
    if isinstance(stated, Statement):
        kind, source, named, remedy = "statement", "its mechanism", f"{stated.name}, ", "ask for the statement of the fit itself"
    else:
        kind, source, named, remedy = "certificate", "its run", "", "certify the run again"
    hint = "" if stated.version == __version__ else f"; another version may prove other numbers, and then its {kind}s do not hold here"
    return InputError(
        f"this {kind} {what or f'does not follow from {source}'}: {why}.",
        source=f"{named}written by lethe {stated.version}, read by lethe {__version__}{hint}",
        remedy=f"do not rely on it; {remedy}.",
    )


def _close(first: float, two: float) -> bool:
    """Whether two numbers are one but for rounding."""
    return math.isclose(first, two, rel_tol=_SAME, abs_tol=_TINY)


def _same_content(first: Any, two: Any) -> bool:
    """Two guarantees as plain data: the same kinds, and the same numbers but for rounding."""
    if isinstance(first, dict) and isinstance(two, dict):
        return first.keys() == two.keys() and all(_same_content(value, two[key]) for key, value in first.items())
    if isinstance(first, list | tuple) and isinstance(two, list | tuple):
        return len(first) == len(two) and all(map(_same_content, first, two))
    if isinstance(first, int | float) and isinstance(two, int | float) and not isinstance(first, bool):
        return _close(first, two)
    return first == two
