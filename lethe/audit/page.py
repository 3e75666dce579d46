"""AuditPage: the claimed upper bound, the audited lower bounds, and whether they contradict each other."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf

from lethe.audit.claim import Claim
from lethe.audit.statistics.result import RELATIONS, AuditResult, rounded_down
from lethe.calculus.upward_formatting import shown
from lethe.documents.specification import StoredSpecification

Verdict = Literal["refuted", "consistent", "no_claim", "not_comparable", "void"]

_WORDS: dict[Verdict, str] = {
    "refuted": "REFUTED: a certified lower bound is above the claim; the code or the proof is wrong",
    "consistent": "consistent: no certified lower bound is above the claim, which does not prove it",
    "no_claim": "nothing is claimed to compare with",
    "not_comparable": "not comparable: the claim is about another relation, a larger delta or a weaker adversary, or nothing is certified",
    "void": "VOID: the trainings were not independent, so that nothing follows; repeated noise is a fault of its own",
}
_NOTHING = 0.001
_RELEASES = {"last": "last iterate only", "all": "every iterate"}


def _claim(value: object) -> object:
    return Claim(**value) if isinstance(value, dict) else value


def _audits(value: object) -> object:
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(AuditResult.from_document(entry) if isinstance(entry, dict) else entry for entry in entries)


class AuditPage(StoredSpecification):
    """A claim beside the audits of one mechanism.

    Only a certified result can refute, and each does so wrongly with probability at most its own level.

    Args:
        subject: what was audited, in words.
        canary: the record that was looked for, in words.
        claim: None: none.
        audits: of the same trainings.
        refused: why the scores allow no audit; None: they do.
    """

    subject: str = Field(min_length=1)
    canary: str = Field(min_length=1)
    claim: Annotated[InstanceOf[Claim] | None, BeforeValidator(_claim)] = None
    audits: Annotated[tuple[InstanceOf[AuditResult], ...], BeforeValidator(_audits)] = ()
    refused: str | None = None

    def __str__(self) -> str:
        return self.explain()

    def __repr__(self) -> str:
        return f"AuditPage({self.subject}: {self.verdict}, {len(self.audits)} audits)"

    @property
    def verdict(self) -> Verdict:
        """The conclusion, in words."""
        if self.refused is not None:
            return "void"
        claim = self.claim
        if claim is None:
            return "no_claim"
        certified = [result for result in self.audits if result.kind == "certified"]
        if any(map(claim.refuted_by, certified)):
            return "refuted"
        return "consistent" if any(map(claim.covers, certified)) else "not_comparable"

    @property
    def failed(self) -> bool:
        """Whether something is wrong with the mechanism: the verdict is refuted or void."""
        return self.verdict in ("refuted", "void")

    @property
    def strongest(self) -> AuditResult | None:
        """The certified result with the largest epsilon."""
        certified = [result for result in self.audits if result.kind == "certified"]
        return max(certified, key=lambda result: result.epsilon, default=None)

    @property
    def powerless(self) -> str:
        """Why an audit that found nothing is no evidence, in a sentence; empty where it is some, or something was found.

        It is none where its rule could not have refuted the claim with so many trials, or where no bound is above 0 in three decimals.
        """
        claim = self.claim
        heard = [result for result in self.audits if result.kind == "certified" and (claim is None or claim.covers(result))]
        if not heard or self.failed or (claim is not None and claim.epsilon == math.inf):
            return ""
        most = max((result.at_best for result in heard if result.at_best is not None), default=None)
        reach = "" if most is None else f"so many trials can show epsilon >= {rounded_down(most)} at best"
        if most is not None and claim is not None and most <= claim.epsilon:
            return f"no evidence: {reach}, which could not have refuted the claim whatever the mechanism reveals; run more"
        if max(result.epsilon for result in heard) < _NOTHING:
            return "no evidence: nothing was found" + (f"; {reach}" if reach else "")
        return ""

    @property
    def says(self) -> str:
        """The verdict in words."""
        return f"{_WORDS[self.verdict]}; {self.powerless}" if self.powerless else _WORDS[self.verdict]

    @property
    def stated(self) -> tuple[str, ...]:
        """The lines above the audits: the subject, the canary, and the claim if there is one."""
        lines = (f"audit of {self.subject}", f"canary   {self.canary}")
        if self.claim is None:
            return lines
        at = f"({'infinity' if self.claim.epsilon == math.inf else shown(self.claim.epsilon)}, {self.claim.delta:g})-DP"
        return (*lines, f"claimed  {at}, {RELATIONS[self.claim.neighbours]}, {_RELEASES[self.claim.release]}, by {self.claim.source}")

    def explain(self) -> str:
        """The page as text for a person: the claim, the audits, the verdict."""
        found = [result.describe() for result in self.audits] + ([] if self.refused is None else [self.refused])
        return "\n".join([*self.stated, *(f"audited  {each}" for each in found), self.says])

    def to_document(self) -> dict[str, Any]:
        """The page as plain data; `verdict` is written for readers."""
        return {
            "verdict": self.verdict,
            "subject": self.subject,
            "canary": self.canary,
            "claim": None if self.claim is None else self.claim.to_document(),
            "audits": [result.to_document() for result in self.audits],
            "refused": self.refused,
        }

    @classmethod
    def from_document(cls, document: dict[str, Any], *, source: str | None = None) -> AuditPage:
        """Build one from plain data; the verdict follows from the rest.

        Raises:
            InputError: as the constructor.
        """
        if isinstance(document, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            document = {key: value for key, value in document.items() if key != "verdict"}
        return super().from_document(document, source=source)
