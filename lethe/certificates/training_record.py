"""TrainingRecord: the executed run, what the training code enforced, and the digests of the released weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lethe.certificates.findings import ENFORCEABLE, FRESH_NOISE, Finding, drawn_fresh, holds, vouched
from lethe.certificates.signing.attestation import Released, attestation, listed, read_attestation, require_keys, text_of
from lethe.documents.version import __version__
from lethe.errors import InputError
from lethe.run.run import Run

PREDICATE_TYPE = "urn:lethe-dp:training-record:v1"
_PREDICATE = {"lethe", "by", "run", "enforced", "declared", "fresh_noise"}


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
        besides = [drawn_fresh(self.by)] if self.fresh else []
        besides += [holds(name, detail, evidence="declared") for name, detail in self.declared]
        return (*vouched(of_run, dict(self.enforced), by=self.by), *besides)

    def vouches_for(self, finding: Finding) -> bool:
        """Whether an enforced hypothesis of a certificate is one that this record says is enforced, by that code and in that way."""
        if finding.name == FRESH_NOISE:
            return self.fresh and (finding.by, finding.detail) == (self.by, drawn_fresh(self.by).detail)
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
        predicate = {
            "lethe": self.version,
            "by": self.by,
            "run": self.run.to_document(),
            "enforced": [claim._asdict() for claim in self.enforced],
            "declared": [claim._asdict() for claim in self.declared],
            "fresh_noise": self.fresh,
        }
        return attestation(self.released, PREDICATE_TYPE, predicate)

    @classmethod
    def from_statement(cls, content: object) -> TrainingRecord:
        """The record that `to_statement` wrote.

        Raises:
            InputError: it is another statement, or a key is missing, unknown or of the wrong type.
        """
        released, predicate = read_attestation(content, PREDICATE_TYPE, _PREDICATE)
        run = Run.from_document(predicate["run"])
        if predicate["fresh_noise"] is not (not run.seeded):
            raise InputError("it contradicts its run on whether noise was fresh.")
        return cls(
            run=run,
            by=text_of(predicate["by"]),
            enforced=_claims(predicate["enforced"]),
            declared=_claims(predicate["declared"]),
            released=released,
            version=text_of(predicate["lethe"]),
        )


@runtime_checkable
class Recorded(Protocol):
    """The protocol of training results that carry a training record."""

    @property
    def record(self) -> TrainingRecord:
        """The record of that training."""
        ...


def _claims(content: object) -> tuple[HypothesisClaim, ...]:
    for one in listed(content):
        require_keys(one, {"name", "detail"})
    return tuple(HypothesisClaim(text_of(one["name"]), text_of(one["detail"])) for one in listed(content))
