"""What a total is made of: every kind of document as a guarantee that was computed again, with what it declares.

`total` and the ledger read each file or object that they add up with `part_of`; nothing that a file claims is believed that can be computed
again.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from lethe.accounting.recheck import recheck, recheck_statement
from lethe.calculus.any_guarantee import guarantee_from_dict, joined, require_relation
from lethe.calculus.guarantees import Guarantee
from lethe.certificates.certificate import Certificate
from lethe.certificates.findings import Finding
from lethe.certificates.keys import PublicKey
from lethe.certificates.statement import KIND, Statement
from lethe.documents.strict import refuse_other_kind, to_json
from lethe.errors import InputError, LetheError
from lethe.run.participation import NOUNS, Unit
from lethe.run.run import Neighbours

MOST_TIMES = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a total: where it is from, what it costs once, and what it rests on."""

    name: str  # the file, or what was released
    kind: Literal["certificate", "statement", "guarantee"]  # of document: a ledger's entries say it, and ask it
    count: int  # how many independent releases like it there are, >= 1
    guarantee: Guarantee  # of one of them, computed again where anything computes it
    computed: bool  # else it is taken as it is written
    declared: tuple[str, ...]  # what nothing proves, a line each
    not_private: str = ""  # why nothing is proved; empty where something is
    releases: frozenset[str] = frozenset()  # what tells them from those of other parts; empty for a number of no particular release
    records: int | None = None
    sealed: bool = False  # by somebody whose key is believed
    unit: Unit = "record"
    content: dict[str, Any] = field(repr=False, hash=False, compare=False)  # the document that it was read from


def part_of(
    item: object,
    *,
    name: str,
    count: int,
    neighbours: Neighbours | None,
    key: PublicKey | None,
    unit: Unit | None = None,
    one_release: bool = False,
) -> tuple[Part, Neighbours]:
    """A certificate, a statement, a guarantee or a dp_accounting event as a part, and the relation that it is about.

    Numbers that say no relation or unit are about `neighbours` and `unit` (None: records); `key` is whose seals are believed. A number of
    `one_release`, as that in a file is, is refused where the file is given twice.

    Raises:
        InputError: it does not follow from what it is computed from, says no relation, or is of another type.
    """
    if isinstance(item, dict):
        item = _read_saved(cast("dict[str, Any]", item), source=name, key=key)
    try:
        if isinstance(item, Certificate):
            return _of_certificate(item.trusting(key), name or f"run {item.run.run_id}", count), item.run.neighbours
        if isinstance(item, Statement):
            return _of_statement(item.trusting(key), name or item.name, count), item.neighbours
        if isinstance(item, Guarantee):
            relation = _require_relation(neighbours, item.describe())
            return _of_guarantee(item, name or item.describe(), count, relation, unit or "record", one_release=one_release), relation
        if type(item).__module__.split(".")[0] == "dp_accounting":
            relation = _require_relation(neighbours, type(item).__name__)
            return _of_event(item, name or type(item).__name__, count, relation, unit or "record"), relation
    except LetheError as error:
        raise InputError(f"{name}: {error.what}" if name else error.what, source=error.source, remedy=error.remedy) from error
    remedy = "give for instance [certificate, 'other.json', (third, 2)]."
    if hasattr(item, "certificate_") or hasattr(item, "statement_"):
        remedy = "give its certificate_; of a pipeline lethe.estimators.privacy_of(pipeline)."
    elif hasattr(item, "record") or hasattr(item, "run_id"):
        remedy = "certify it first: lethe.certify(run, delta)."
    needed = "certificates, statements, totals, guarantees, dp_accounting events, files of them, or pairs of one and how many there are"
    raise InputError(f"parts: got {type(item).__name__}; it needs {needed}.", remedy=remedy)


def _require_relation(neighbours: Neighbours | None, what: str) -> Neighbours:
    if neighbours is None:
        raise InputError(
            f"{what} says no neighbouring relation, and one epsilon means another thing under each.",
            remedy="say which it is about: neighbours='replace_one', 'zero_out' or 'add_or_remove' (--neighbours).",
        )
    return neighbours


def _of_certificate(certificate: Certificate, name: str, count: int) -> Part:
    rechecked = recheck(certificate)
    seal = certificate.seal
    if seal is not None and seal.record is not None and seal.record.released:
        releases = frozenset(release.sha256 for release in seal.record.released)
    else:
        releases = frozenset([digest(certificate.run.to_document())])
    return Part(
        name=name,
        kind="certificate",
        count=count,
        guarantee=rechecked.guarantee,
        computed=True,
        declared=_declared(rechecked.findings),
        not_private=rechecked.not_private,
        releases=releases,
        records=certificate.run.records,
        sealed=seal is not None and seal.holds,
        unit=certificate.run.unit,
        content=certificate.to_dict(),
    )


def _of_statement(statement: Statement, name: str, count: int) -> Part:
    rechecked = recheck_statement(statement)
    return Part(
        name=name,
        kind="statement",
        count=count,
        guarantee=rechecked.statement.guarantee,
        computed=not rechecked.computed.stated,
        declared=_declared(rechecked.declared),
        not_private=rechecked.statement.not_private,
        releases=statement.releases,
        records=rechecked.statement.records,
        sealed=statement.seal is not None and statement.seal.holds,
        unit=rechecked.statement.unit,
        content=statement.to_dict(),
    )


def _of_guarantee(guarantee: Guarantee, name: str, count: int, neighbours: Neighbours, unit: Unit, *, one_release: bool) -> Part:
    require_relation(guarantee, neighbours)
    content = guarantee.to_dict()
    about = neighbours if unit == "record" else f"{neighbours} of {NOUNS[unit][1]}"
    return Part(
        name=name,
        kind="guarantee",
        count=count,
        guarantee=guarantee,
        computed=False,
        declared=("guarantee: taken as it is written", f"neighbours: {about}, as the caller says"),
        releases=frozenset([digest(content)] if one_release else []),
        unit=unit,
        content=content,
    )


def _of_event(event: Any, name: str, count: int, neighbours: Neighbours, unit: Unit) -> Part:
    from lethe.accounting.dp_events import UnknownEvent, guarantee_of, leaves_of  # dp_accounting takes most of a second to import

    parts: list[tuple[Guarantee, int]] = []
    for leaf, times in leaves_of(event, 1):
        try:
            if times is None or times > MOST_TIMES:
                raise UnknownEvent("counts need to be whole numbers from 1 to 1e15, and events a list")
            parts.append((guarantee_of(leaf, neighbours), times))
        except UnknownEvent as error:
            what = f"the event {type(leaf).__name__} cannot be added: {error}."
            raise InputError(what, remedy="give its guarantee, or the certificate of its run.") from error
    return _of_guarantee(joined(parts), name, count, neighbours, unit, one_release=False)


def _declared(findings: Iterable[Finding]) -> tuple[str, ...]:
    """What nothing proves: in full what somebody declares, and by name what a file says that code enforced or checked."""
    declared = [finding for finding in findings if finding.evidence == "declared"]
    by_word = ", ".join(dict.fromkeys(finding.name for finding in declared if finding.said))
    listed = tuple(f"{finding.name}: {finding.detail}" for finding in declared if not finding.said)
    return (*listed, f"by the word of the file that code saw to it: {by_word}") if by_word else listed


def digest(content: object) -> str:
    """The SHA-256 of plain data."""
    return hashlib.sha256(to_json(content, indent=None).encode()).hexdigest()


def _read_saved(content: dict[str, Any], *, source: str, key: PublicKey | None) -> Certificate | Statement | Guarantee:
    """The certificate, statement or guarantee that plain data holds."""
    kind = content.get("kind")
    if kind == KIND:
        return Statement.from_dict(content, source=source, key=key)
    if "theorem" in content or "run" in content:
        return Certificate.from_dict(content, source=source, key=key)
    refuse_other_kind(content, "certificate", source=source)
    try:
        return guarantee_from_dict(content)
    except (InputError, TypeError, ValueError, RecursionError) as error:
        why = "" if kind is None else f": {str(error).splitlines()[0].rstrip('.')}"
        remedy = "give a file written by `lethe certify -o`, `lethe total -o`, or by save of a certificate."
        raise InputError(f"not a certificate, statement, total or guarantee{why}.", source=source, remedy=remedy) from error


def refuse_repeated(parts: Iterable[Part]) -> None:
    """Refuse a release that is in two parts: a copy of it costs nothing, and another one like it costs again."""
    part_of_release: dict[str, Part] = {}
    for part in parts:
        for release in sorted(part.releases):
            if (before := part_of_release.get(release)) is not None:
                both = f"{part.name} is there twice" if part.name == before.name else f"{before.name} and {part.name} hold the same release"
                raise InputError(
                    f"{both}: a copy of a release costs nothing, and a second release like it costs again.",
                    source=f"release {release[:16]}",
                    remedy="leave the copy out; or say how many releases there were: [(certificate, N)], --count N.",
                )
            part_of_release[release] = part
