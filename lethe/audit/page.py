"""Claim: what somebody states of a mechanism; AuditPage: the claim beside the audited lower bounds, and whether they contradict it.

verdict.py makes the page; users print it, the report shows it. A lower bound above the claimed epsilon refutes the claim or its
implementation.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf

from lethe.audit.statistics.curves import Neighbours
from lethe.audit.statistics.result import RELATIONS, AuditResult, infinity_of, rounded_down
from lethe.calculus.upward_formatting import shown
from lethe.documents.specification import Specification, StoredSpecification

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


class Claim(Specification):
    r"""That a mechanism is $(\epsilon, \delta)$-DP.

    Args:
        epsilon: $\ge 0$; infinity says nothing and is refuted by nothing.
        delta: in [0, 1).
        neighbours: which two data sets count as neighbours.
        release: whom it covers: "last", those who see the final model only; "all", those who see every step too.
        source: who states it, in words.
    """

    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=True), BeforeValidator(infinity_of)]
    delta: float = Field(ge=0, lt=1)
    neighbours: Neighbours
    release: Literal["last", "all"]
    source: str = Field(min_length=1)

    def covers(self, result: AuditResult) -> bool:
        """Whether the claim says anything about what was audited: the same relation, an adversary that it covers, and its delta or more."""
        visible = self.release == "all" or result.threat != "white_box"
        return visible and result.neighbours == self.neighbours and result.delta >= self.delta

    def refuted_by(self, result: AuditResult) -> bool:
        """Whether it covers a certified lower bound that is above it."""
        return result.kind == "certified" and self.covers(result) and result.epsilon > self.epsilon

    def to_document(self) -> dict[str, Any]:
        """The claim as plain data; an infinite epsilon is the text "inf"."""
        return {**self.model_dump(), "epsilon": "inf" if self.epsilon == math.inf else self.epsilon}


def _claim(value: object) -> object:
    return Claim(**value) if isinstance(value, dict) else value


def _audits(value: object) -> object:
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(AuditResult.from_document(entry) if isinstance(entry, dict) else entry for entry in entries)


class AuditPage(StoredSpecification):
    """A claim, or none, beside the audits of one mechanism: what was audited, the record that was looked for, and why scores were refused.

    Only a certified result can refute, and each does so wrongly with probability at most its own level.
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
    def certified(self) -> list[AuditResult]:
        """Its certified results: no other can refute."""
        return [result for result in self.audits if result.kind == "certified"]

    @property
    def verdict(self) -> Verdict:
        """The conclusion, in words."""
        if self.refused is not None:
            return "void"
        if self.claim is None:
            return "no_claim"
        if any(map(self.claim.refuted_by, self.certified)):
            return "refuted"
        return "consistent" if any(map(self.claim.covers, self.certified)) else "not_comparable"

    @property
    def failed(self) -> bool:
        """Whether something is wrong with the mechanism: the verdict is refuted or void."""
        return self.verdict in ("refuted", "void")

    @property
    def strongest(self) -> AuditResult | None:
        """The certified result with the largest epsilon."""
        return max(self.certified, key=lambda result: result.epsilon, default=None)

    @property
    def powerless(self) -> str:
        """Why an audit that found nothing is no evidence, in a sentence; empty where it is some, or something was found.

        It is none where its rule could not have refuted the claim with so many trials, or where no bound is above 0 in three decimals.
        """
        claim = self.claim
        about = [result for result in self.certified if claim is None or claim.covers(result)]
        if not about or self.failed or (claim is not None and claim.epsilon == math.inf):
            return ""
        provable = max((result.at_best for result in about if result.at_best is not None), default=None)
        reach = "" if provable is None else f"so many trials can show epsilon >= {rounded_down(provable)} at best"
        if provable is not None and claim is not None and provable <= claim.epsilon:
            return f"no evidence: {reach}, which could not have refuted the claim whatever the mechanism reveals; run more"
        nothing = all(result.epsilon < _NOTHING for result in about)
        return "no evidence: nothing was found" + (f"; {reach}" if reach else "") if nothing else ""

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
        results = [result.describe() for result in self.audits] + ([] if self.refused is None else [self.refused])
        return "\n".join([*self.stated, *(f"audited  {each}" for each in results), self.says])

    def to_document(self) -> dict[str, Any]:
        """The page as plain data; `verdict` is written for readers."""
        claim = None if self.claim is None else self.claim.to_document()
        return {"verdict": self.verdict, **dict(self), "claim": claim, "audits": [result.to_document() for result in self.audits]}

    @classmethod
    def from_document(cls, document: dict[str, Any], *, source: str | None = None) -> AuditPage:
        """Build one from plain data; the verdict follows from the rest."""
        if isinstance(document, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            document = {key: value for key, value in document.items() if key != "verdict"}
        return super().from_document(document, source=source)
