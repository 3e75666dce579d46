"""TrainingRecord and ReleaseRecord: what the code that trained or released states of it, with digests of what was released, as in-toto
statements.

A training loop, an engine or an estimator makes one when it has released its weights; seal.py signs it, and `certify` reads it to count as
"enforced" what the run by itself only declares.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from lethe.certificates.findings import ENFORCEABLE, ESTIMATORS, FRESH_NOISE, SAID_BY_RUN, Finding, drawn_fresh, enforced, holds
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.run import Run

PREDICATE_TYPE = "urn:lethe-dp:training-record:v1"
RELEASE_TYPE = "urn:lethe-dp:release-record:v1"
T = TypeVar("T")

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PART = "a part of its statement"


class Released(NamedTuple):
    """Something that was released: what it is, and the SHA-256 of its tensors (`lethe.certificates.weights.tensors_digest`)."""

    name: str
    sha256: str


def _attestation(released: Sequence[Released], predicate_type: str, predicate: dict[str, Any]) -> dict[str, Any]:
    """An in-toto statement: what was released is the subject, how is the predicate."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in released],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def _read_attestation(content: object, predicate_type: str, keys: set[str]) -> tuple[tuple[Released, ...], dict[str, Any]]:
    """What `_attestation` wrote, with exactly these keys of the predicate: what was released, and the predicate."""
    require_keys(_PART, content, {"_type", "subject", "predicateType", "predicate"})
    assert isinstance(content, Mapping)
    if (content["_type"], content["predicateType"]) != (STATEMENT_TYPE, predicate_type):
        raise InputError(f"it states {content['predicateType']!r}; it needs {predicate_type}.")
    require_keys(_PART, content["predicate"], keys)
    return tuple(_released(subject) for subject in _as(list, content["subject"])), dict(content["predicate"])


def require_keys(what: str, content: object, keys: set[str]) -> None:
    """Refuse a part of a seal that is no mapping with exactly these keys."""
    if not isinstance(content, Mapping) or set(content) != keys:
        got = sorted(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise InputError(f"{what} is {got}; it needs {sorted(keys)}.")


def _as(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise InputError(f"{_PART} is {type(value).__name__}; it needs {kind.__name__}.")
    return value


def _released(content: object) -> Released:
    require_keys(_PART, content, {"name", "digest"})
    assert isinstance(content, Mapping)
    require_keys(_PART, content["digest"], {"sha256"})
    return Released(_as(str, content["name"]), _as(str, content["digest"]["sha256"]))


class HypothesisClaim(NamedTuple):
    """A hypothesis and what is said of it: how it is enforced, or what is declared."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingRecord:
    """What the training code states of one training. `lethe.certify` takes it in the place of a run, and seals it.

    Args:
        run: the run that was executed, as recorded.
        by: the code, a key of `lethe.certificates.findings.ENFORCEABLE`.
        enforced: which hypotheses that the run only declares this code makes true, and how.
        declared: what a certificate rests on besides and no code can check.
        released: the weights; several where they may be kept in several ways (a head alone, or the whole model). Empty where they are of
            a kind that has no digest: then nothing can be sealed.
        version: of the Lethe that trained.
    Raises:
        InputError: code that is not known, or a hypothesis that it cannot enforce.
    """

    run: Run
    by: str
    enforced: tuple[HypothesisClaim, ...] = ()
    declared: tuple[HypothesisClaim, ...] = ()
    released: tuple[Released, ...]
    version: str = __version__

    def __post_init__(self) -> None:
        if self.by not in ENFORCEABLE:
            raise InputError(f"by: got {self.by!r}; it needs one of {', '.join(ENFORCEABLE)}.")
        strange = [claim.name for claim in self.enforced if claim.name not in ENFORCEABLE[self.by]]
        if strange:
            raise InputError(f"enforced: {self.by} is not known to enforce {strange[0]!r}.")

    def __repr__(self) -> str:
        counts = f"{len(self.enforced)} enforced, {len(self.declared)} declared, {len(self.released)} released"
        return f"TrainingRecord(run {self.run.run_id}, by {self.by}: {counts})"

    def __str__(self) -> str:
        """What was enforced and what is declared, a line each."""
        groups = [("enforced", self.enforced), ("declared", self.declared)]
        lines = [f"{word}  {claim.name}: {claim.detail}" for word, claims in groups for claim in claims]
        lines += [f"released  {release.name}, SHA-256 {release.sha256}" for release in self.released]
        return "\n".join([f"training of run {self.run.run_id} by {self.by}", *lines])

    @property
    def record(self) -> TrainingRecord:
        """This record itself: the method that every result of training has."""
        return self

    def with_declared(self, name: str, detail: str) -> TrainingRecord:
        """A copy with one more assumption that no code can check."""
        return replace(self, declared=(*self.declared, HypothesisClaim(name, detail)))

    @property
    def fresh(self) -> bool:
        """Whether all noise and all secret batches came from fresh entropy: no seed, and no generator of the caller's."""
        return not self.run.seeded

    def findings(self, of_run: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """A theorem's findings on the run, with those that this training enforces, and what it declares besides."""
        besides = [drawn_fresh(self.by)] if self.fresh else []
        besides += [holds(name, detail, evidence="declared") for name, detail in self.declared]
        return (*enforced(of_run, dict(self.enforced), by=self.by, of_run=True), *besides)

    def vouches_for(self, finding: Finding) -> bool:
        """Whether an enforced hypothesis of a certificate is one that this record says is enforced, by that code and in that way."""
        if finding.name == FRESH_NOISE:
            return self.fresh and (finding.by, finding.detail) == (self.by, drawn_fresh(self.by).detail)
        how = dict(self.enforced).get(finding.name)
        return how is not None and finding.by == self.by and finding.detail.endswith(f"; {how}")

    def to_statement(self) -> dict[str, Any]:
        """As an in-toto statement: what was released is its subject, how it was trained its predicate."""
        if not self.released:
            raise InputError(
                "the weights are of a kind that has no digest (a tensor that is not dense), so that no seal can be bound to them.",
                remedy="certify the run alone: lethe.certify(fitted.run, delta).",
            )
        predicate = {
            "lethe": self.version,
            "by": self.by,
            "run": self.run.to_document(),
            "enforced": [claim._asdict() for claim in self.enforced],
            "declared": [claim._asdict() for claim in self.declared],
            "fresh_noise": self.fresh,
        }
        return _attestation(self.released, PREDICATE_TYPE, predicate)

    @classmethod
    def from_statement(cls, content: object) -> TrainingRecord:
        """The record that `to_statement` wrote; an InputError of anything else."""
        released, predicate = _read_attestation(content, PREDICATE_TYPE, {"lethe", "by", "run", "enforced", "declared", "fresh_noise"})
        run = Run.from_document(predicate["run"])
        if predicate["fresh_noise"] is not (not run.seeded):
            raise InputError("it contradicts its run on whether noise was fresh.")
        return cls(
            run=run,
            by=_as(str, predicate["by"]),
            enforced=_claims(predicate["enforced"]),
            declared=_claims(predicate["declared"]),
            released=released,
            version=_as(str, predicate["lethe"]),
        )


@runtime_checkable
class Recorded(Protocol):
    """The protocol of training results that carry a training record."""

    @property
    def record(self) -> TrainingRecord:
        """The record of that training."""
        ...


def _claims(content: object) -> tuple[HypothesisClaim, ...]:
    """The claims of a seal's content, refused unless each has a name and a detail."""
    for claim in _as(list, content):
        require_keys(_PART, claim, {"name", "detail"})
    return tuple(HypothesisClaim(_as(str, claim["name"]), _as(str, claim["detail"])) for claim in _as(list, content))


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
        if self.by != ESTIMATORS:
            raise InputError(f"by: got {self.by!r}; it needs {ESTIMATORS}.")
        if not self.released:
            raise InputError("released: nothing; a seal is bound to weights.")
        if self.stated.records is None:
            raise InputError(f"records: {self.stated.name} says no number of them, and a seal is of a release from so many.")
        if any(finding.said not in ("", SAID_BY_RUN) for finding in _findings(self.stated)):
            raise InputError(f"{self.stated.name} was read from a file, whose word nobody vouches for.")
        foreign = next((finding for finding in _findings(self.stated) if finding.evidence == "enforced" and finding.by != self.by), None)
        if foreign is not None:
            raise InputError(f"{foreign.name!r} is enforced by {foreign.by!r} in it; {self.by} vouches for what itself enforced.")

    @classmethod
    def of(cls, stated: Any, *, by: str, released: tuple[Released, ...]) -> ReleaseRecord:
        """The record of a release that has just been carried out: what is enforced is so by `by`, which also drew the noise."""
        named = _by(replace(stated, seal=None), by)
        if not named.seeded and all(finding.name != FRESH_NOISE for finding in named.findings):
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
        return _statement_text(self.stated) == _statement_text(stated)

    def to_statement(self) -> dict[str, Any]:
        """As an in-toto statement: what was released is its subject, what it costs its predicate."""
        predicate = {"lethe": self.version, "by": self.by, "statement": self.stated.to_dict(), "fresh_noise": self.fresh}
        return _attestation(self.released, RELEASE_TYPE, predicate)

    @classmethod
    def from_statement(cls, content: object, read: Callable[[Any], Any]) -> ReleaseRecord:
        """The record that `to_statement` wrote; `read` reads a Statement as the code made it, nothing in it taken back."""
        released, predicate = _read_attestation(content, RELEASE_TYPE, {"lethe", "by", "statement", "fresh_noise"})
        stated = read(predicate["statement"])
        if predicate["fresh_noise"] is not (not stated.seeded) or predicate["lethe"] != stated.version:
            raise InputError("it contradicts its statement on whether noise was fresh, or on the version of Lethe.")
        return cls(stated=stated, by=_as(str, predicate["by"]), released=released)


def _by(stated: Any, by: str) -> Any:
    """A statement in which what is enforced, in its parts too, says by whom."""
    derivation = stated.derivation
    if derivation is not None:
        derivation = replace(derivation, parts=tuple(_by(part, by) for part in derivation.parts))
    named = tuple(replace(finding, by=by) if finding.evidence == "enforced" and not finding.by else finding for finding in stated.findings)
    return replace(stated, findings=named, derivation=derivation)


def _findings(stated: Any) -> Iterator[Finding]:
    """The findings of a statement and of all statements it is composed of."""
    yield from stated.findings
    for part in () if stated.derivation is None else stated.derivation.parts:
        yield from _findings(part)


def _statement_text(stated: Any) -> str:
    """All that a statement says, as one who believes no seal tells it, so that a file that was written again is the same."""
    return json.dumps(stated.as_read().to_dict(), sort_keys=True)
