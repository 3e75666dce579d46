"""TrainingRecord: the executed run, what the training code enforced, and the digests of the released weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lethe._version import __version__
from lethe.certificates.findings import ENFORCEABLE, FRESH_NOISE, Finding, holds, vouched
from lethe.errors import InputError
from lethe.run.run import Run

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:lethe-dp:training-record:v1"
_FRESH = "noise, and batches that are secret, came from fresh entropy of the operating system, neither kept nor shown"
_PREDICATE = {"lethe", "by", "run", "enforced", "declared", "fresh_noise"}


class HypothesisClaim(NamedTuple):
    """A hypothesis and what is said of it: how it is enforced, or what is declared."""

    name: str
    detail: str


class Released(NamedTuple):
    """Something that was released: what it is, and the SHA-256 of its tensors (`lethe.certificates.weights.tensors_digest`)."""

    name: str
    sha256: str


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
        said = f"{len(self.enforced)} enforced, {len(self.declared)} declared, {len(self.released)} released"
        return f"TrainingRecord(run {self.run.run_id}, by {self.by}: {said})"

    def __str__(self) -> str:
        """What was enforced and what is declared, a line each."""
        told = [("enforced", self.enforced), ("declared", self.declared)]
        lines = [f"{word}  {claim.name}: {claim.detail}" for word, claims in told for claim in claims]
        lines += [f"released  {one.name}, SHA-256 {one.sha256}" for one in self.released]
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
        besides = [replace(holds(FRESH_NOISE, _FRESH, evidence="enforced"), by=self.by)] if self.fresh else []
        besides += [holds(name, detail, evidence="declared") for name, detail in self.declared]
        return (*vouched(of_run, dict(self.enforced), by=self.by), *besides)

    def vouches_for(self, finding: Finding) -> bool:
        """Whether an enforced hypothesis of a certificate is one that this record says is enforced, by that code and in that way."""
        if finding.name == FRESH_NOISE:
            return self.fresh and (finding.by, finding.detail) == (self.by, _FRESH)
        how = dict(self.enforced).get(finding.name)
        return how is not None and finding.by == self.by and finding.detail.endswith(f"; {how}")

    def to_statement(self) -> dict[str, Any]:
        """As an in-toto statement: what was released is its subject, how it was trained its predicate.

        Raises:
            InputError: nothing that was released has a digest.
        """
        if not self.released:
            raise InputError(
                "the weights are of a kind that has no digest (a tensor that is not dense), so that no seal can be bound to them.",
                remedy="certify the run alone: lethe.certify(fitted.run, delta).",
            )
        return {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in self.released],
            "predicateType": PREDICATE_TYPE,
            "predicate": {
                "lethe": self.version,
                "by": self.by,
                "run": self.run.to_document(),
                "enforced": [claim._asdict() for claim in self.enforced],
                "declared": [claim._asdict() for claim in self.declared],
                "fresh_noise": self.fresh,
            },
        }

    @classmethod
    def from_statement(cls, content: object) -> TrainingRecord:
        """The record that `to_statement` wrote.

        Raises:
            InputError: it is another statement, or a key is missing, unknown or of the wrong type.
        """
        _require(content, {"_type", "subject", "predicateType", "predicate"})
        assert isinstance(content, Mapping)
        if (content["_type"], content["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE):
            raise InputError(f"it states {content['predicateType']!r}; it needs {PREDICATE_TYPE}.")
        predicate = content["predicate"]
        _require(predicate, _PREDICATE)
        run = Run.from_document(predicate["run"])
        if predicate["fresh_noise"] is not (not run.seeded):
            raise InputError("it contradicts its run on whether noise was fresh.")
        return cls(
            run=run,
            by=_text(predicate["by"]),
            enforced=_claims(predicate["enforced"]),
            declared=_claims(predicate["declared"]),
            released=tuple(_released(one) for one in _listed(content["subject"])),
            version=_text(predicate["lethe"]),
        )


@runtime_checkable
class Recorded(Protocol):
    """The protocol of training results that carry a training record."""

    @property
    def record(self) -> TrainingRecord:
        """The record of that training."""
        ...


def _require(content: object, keys: set[str]) -> None:
    if not isinstance(content, Mapping) or set(content) != keys:
        got = sorted(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
        raise InputError(f"a part of its statement is {got}; it needs {sorted(keys)}.")


def _listed(content: object) -> list[Any]:
    if not isinstance(content, list):
        raise InputError(f"a part of its statement is {type(content).__name__}; it needs a list.")
    return content


def _claims(content: object) -> tuple[HypothesisClaim, ...]:
    for one in _listed(content):
        _require(one, {"name", "detail"})
    return tuple(HypothesisClaim(_text(one["name"]), _text(one["detail"])) for one in _listed(content))


def _released(content: object) -> Released:
    _require(content, {"name", "digest"})
    assert isinstance(content, Mapping)
    _require(content["digest"], {"sha256"})
    return Released(_text(content["name"]), _text(content["digest"]["sha256"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{value!r} stands in its statement where text is needed.")
    return value
