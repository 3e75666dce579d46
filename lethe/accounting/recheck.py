"""recheck: certify a certificate's run again, and compare every field with what comes out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from lethe._version import __version__
from lethe.accounting.certify import certificate_of, evaluate_theorems
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import SAID_BY_RUN, Finding, as_said
from lethe.errors import InputError, LetheError

_SAME = 1e-6  # processors and libraries round differently; a number is the same within that
_TINY = 1e-15  # and so are two that are nothing
DELTAS = tuple(10.0**-power for power in range(1, 15))
_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){1,3}((a|b|rc)\d{1,3})?(\.(post|dev)\d{1,4})?")


def recheck(certificate: Certificate) -> Certificate:
    """Certify the certificate's run again, and compare everything it says: numbers, hypotheses, words and sources.

    Its numbers, and which hypotheses hold and how each is known, must be those of the run (and of the seal, where there is one). So must
    its words if it is of this version of Lethe. Those of another version may differ, and cannot be checked: what is returned then says
    the same in this version's words.

    Returns:
        The certificate as this version of Lethe writes it, to be shown in the place of the one that was given.
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


def words_differ(certificate: Certificate, again: Certificate) -> str:
    """A line on a certificate of another version whose words are not this one's; empty where there is nothing to say."""
    differing = _differing_words(certificate, again)
    if not differing:
        return ""
    return (
        f"written by lethe {certificate.version}, with the same numbers but other {differing}: shown are the words of lethe {__version__}, "
        "those of the file cannot be checked."
    )


def _certified_again(certificate: Certificate) -> Certificate:
    """By the theorems that it names; what it is sealed with is part of it."""
    names = [certificate.theorem, *(other.theorem for other in certificate.others)]
    try:
        fresh = certificate_of(certificate.run, certificate.delta, evaluate_theorems(certificate.run, names))
    except LetheError as error:
        raise _refused(certificate, error.what.rstrip(".")) from error
    seal = certificate.seal
    if seal is None:
        return fresh
    assert seal.record is not None
    found = seal.record.findings(fresh.findings)
    return replace(fresh, findings=found if seal.holds else tuple(map(as_said, found)), seal=seal)


def _compare_numbers(certificate: Certificate, fresh: Certificate) -> None:
    for delta in (certificate.delta, *DELTAS):
        claimed, proved = certificate.guarantee.epsilon(delta), fresh.guarantee.epsilon(delta)
        if delta == certificate.delta and not close(claimed, certificate.epsilon):
            claimed = certificate.epsilon
        if certificate.theorem != fresh.theorem or not close(claimed, proved):
            raise _refused(
                certificate,
                f"it claims epsilon = {claimed:g} at delta = {delta:g} by {certificate.theorem}; from its run follows epsilon = {proved:g} "
                f"by {fresh.theorem}",
            )
    if not same_content(certificate.guarantee.to_dict(), fresh.guarantee.to_dict()):
        raise _refused(certificate, f"the parts of its guarantee are not those of {fresh.theorem} on its run")
    old, new = certificate.lipschitz, fresh.lipschitz
    if (old is None) != (new is None) or (old is not None and new is not None and not close(old.constant, new.constant)):
        said, needed = ("none" if one is None else f"{one.constant:.7g}" for one in (old, new))
        raise _refused(certificate, f"it says {said} for the Lipschitz constant of a step; from its run follows {needed}")
    for other, again in zip(certificate.others, fresh.others, strict=True):
        if (other.status, other.epsilon is None) != (again.status, again.epsilon is None) or not close(
            other.epsilon or 0.0, again.epsilon or 0.0
        ):
            raise _refused(
                certificate,
                f"it says of {other.theorem}: {other.status}, {other.epsilon}; from its run follows {again.status}, {again.epsilon}",
            )


def _compare_findings(certificate: Certificate, fresh: Certificate) -> None:
    """The same hypotheses in the same order. What a file without a seal calls enforced is declared by now, as it is of the run."""
    stated, needed = (tuple(map(_essence, one.findings)) for one in (certificate, fresh))
    if stated == needed:
        return
    added = [finding for finding in certificate.findings if _essence(finding) not in needed]
    missing = [finding for finding in fresh.findings if _essence(finding) not in stated]
    differing = [f"it has {finding.name!r} ({finding.evidence})" for finding in added]
    differing += [f"it lacks {finding.name!r} ({finding.evidence})" for finding in missing]
    why = "; ".join(differing) or "their order or number differs"
    unsealed = "" if certificate.seal is not None else ", and no seal says that the code that trained adds any"
    raise _refused(certificate, f"its hypotheses are not those of {certificate.theorem} on its run: {why}{unsealed}")


def _differing_words(certificate: Certificate, fresh: Certificate) -> str:
    """What of everything that only a person reads is not as this version writes it; empty where all is."""
    pairs = zip(certificate.findings, fresh.findings, strict=True)
    steps = ["" if one.lipschitz is None else one.lipschitz.certificate for one in (certificate, fresh)]
    same = {
        "reasons": all((old.detail, old.said) == (new.detail, new.said) for old, new in pairs if not _by_the_file(certificate, old)),
        "words on the Lipschitz constant": steps[0] == steps[1],
        "reasons against other theorems": [other.why for other in certificate.others] == [other.why for other in fresh.others],
        "citations": certificate.citations == fresh.citations,
    }
    return ", ".join(what for what, agree in same.items() if not agree)


def _by_the_file(certificate: Certificate, finding: Finding) -> bool:
    """Whether it is called enforced without any seal: how, cannot be told from the run, and is not shown."""
    return certificate.seal is None and finding.said not in ("", SAID_BY_RUN)


def _essence(finding: Finding) -> tuple[str, str, str, str]:
    return finding.name, finding.status, finding.evidence, finding.by


def _refused(certificate: Certificate, why: str) -> InputError:
    hint = (
        ""
        if certificate.version == __version__
        else "; another version may prove other numbers, and then its certificates do not hold here"
    )
    return InputError(
        f"this certificate does not follow from its run: {why}.",
        source=f"written by lethe {certificate.version}, read by lethe {__version__}{hint}",
        remedy="do not rely on it; certify the run again.",
    )


def close(one: float, two: float) -> bool:
    """Whether two numbers are one but for rounding."""
    return math.isclose(one, two, rel_tol=_SAME, abs_tol=_TINY)


def same_content(one: object, two: object) -> bool:
    """Two guarantees as plain data: the same kinds, and the same numbers but for rounding."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        first, second = cast("Mapping[str, object]", one), cast("Mapping[str, object]", two)
        return first.keys() == second.keys() and all(same_content(value, second[key]) for key, value in first.items())
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        entries, others = cast("list[object]", one), cast("list[object]", two)
        return len(entries) == len(others) and all(map(same_content, entries, others))
    if isinstance(one, int | float) and isinstance(two, int | float) and not isinstance(one, bool):
        return close(one, two)
    return one == two
