"""ReleaseRecord: the statement of a release as the code that carried it out made it, and the digests of what was released."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from lethe.certificates.findings import ESTIMATORS, FRESH_NOISE, SAID_BY_RUN, Finding, drawn_fresh, holds
from lethe.certificates.signing.attestation import Released, attestation, read_attestation, text_of
from lethe.errors import InputError

RELEASE_TYPE = "urn:lethe-dp:release-record:v1"
_PREDICATE = {"lethe", "by", "statement", "fresh_noise"}
_RELEASING = frozenset({ESTIMATORS})


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReleaseRecord:
    """What the code that released weights states of one release that is no run; `Statement.sealed` signs it.

    Args:
        stated: the Statement, whole, with its hypotheses as the code knows them; without a seal.
        by: the code, `lethe.certificates.findings.ESTIMATORS`.
        released: the weights; at least one.
    Raises:
        InputError: code that is not known, the word of another one or of a file in the statement, no number of records, or nothing that was
            released.
    """

    stated: Any
    by: str
    released: tuple[Released, ...]

    def __post_init__(self) -> None:
        if self.by not in _RELEASING:
            raise InputError(f"by: got {self.by!r}; it needs one of {', '.join(_RELEASING)}.")
        if not self.released:
            raise InputError("released: nothing; a seal is bound to weights.")
        if self.stated.records is None:
            raise InputError(f"records: {self.stated.name} says no number of them, and a seal is of a release from so many.")
        if any(one.said not in ("", SAID_BY_RUN) for one in _findings(self.stated)):
            raise InputError(f"{self.stated.name} was read from a file, whose word nobody vouches for.")
        other = next((one for one in _findings(self.stated) if one.evidence == "enforced" and one.by != self.by), None)
        if other is not None:
            raise InputError(f"{other.name!r} is enforced by {other.by!r} in it; {self.by} vouches for what itself enforced.")

    @classmethod
    def of(cls, stated: Any, *, by: str, released: tuple[Released, ...]) -> ReleaseRecord:
        """The record of a release that has just been carried out: what is enforced is so by `by`, which also drew the noise.

        Args:
            stated: the Statement of everything that was released.
            by, released: as of the record.
        Raises:
            InputError: as of the record.
        """
        named = _by(replace(stated, seal=None), by)
        if not named.seeded and all(one.name != FRESH_NOISE for one in named.findings):
            named = replace(named, findings=(*named.findings, drawn_fresh(by)))
        return cls(stated=named, by=by, released=released)

    def __repr__(self) -> str:
        return f"ReleaseRecord({self.stated!r}, by {self.by}: {len(self.released)} released)"

    @property
    def version(self) -> str:
        """Of the Lethe that released."""
        return self.stated.version

    @property
    def fresh(self) -> bool:
        """Whether all noise and all secret draws came from fresh entropy: no seed, and no generator of the caller's."""
        return not self.stated.seeded

    def with_declared(self, name: str, detail: str) -> ReleaseRecord:
        """A copy with one more assumption that no code can check."""
        findings = (*self.stated.findings, holds(name, detail, evidence="declared"))
        return replace(self, stated=replace(self.stated, findings=findings))

    def is_of(self, stated: Any) -> bool:
        """Whether this is the record of that very statement, as it was made or as a file tells it."""
        return _told(self.stated) == _told(stated)

    def to_statement(self) -> dict[str, Any]:
        """As an in-toto statement: what was released is its subject, what it costs its predicate."""
        predicate = {"lethe": self.version, "by": self.by, "statement": self.stated.to_dict(), "fresh_noise": self.fresh}
        return attestation(self.released, RELEASE_TYPE, predicate)

    @classmethod
    def from_statement(cls, content: object, read: Callable[[Any], Any]) -> ReleaseRecord:
        """The record that `to_statement` wrote.

        Args:
            content: plain data.
            read: reads a Statement as the code made it, nothing in it taken back.
        Raises:
            InputError: it is another in-toto statement, or a key is missing, unknown or of the wrong type.
        """
        released, predicate = read_attestation(content, RELEASE_TYPE, _PREDICATE)
        stated = read(predicate["statement"])
        if predicate["fresh_noise"] is not (not stated.seeded) or predicate["lethe"] != stated.version:
            raise InputError("it contradicts its statement on whether noise was fresh, or on the version of Lethe.")
        return cls(stated=stated, by=text_of(predicate["by"]), released=released)


def _by(stated: Any, by: str) -> Any:
    """A statement in which what is enforced, in its parts too, says by whom."""
    known = stated.derivation
    if known is not None:
        known = replace(known, parts=tuple(_by(part, by) for part in known.parts))
    named = tuple(replace(one, by=by) if one.evidence == "enforced" and not one.by else one for one in stated.findings)
    return replace(stated, findings=named, derivation=known)


def _findings(stated: Any) -> Iterator[Finding]:
    yield from stated.findings
    for part in () if stated.derivation is None else stated.derivation.parts:
        yield from _findings(part)


def _told(stated: Any) -> str:
    """All that a statement says, as one who believes no seal tells it, so that a file that was written again is the same."""
    return json.dumps(stated.as_read().to_dict(), sort_keys=True)
