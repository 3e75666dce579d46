"""Claim: what somebody states of a mechanism, as far as a referee needs to know it; where it comes from does not matter here."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lethe.audit.statistics.result import AuditResult, infinity_of
from lethe.audit.statistics.setting import Neighbours
from lethe.documents.specification import Specification


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
        seen = self.release == "all" or result.threat != "white_box"
        return seen and result.neighbours == self.neighbours and result.delta >= self.delta

    def refuted_by(self, result: AuditResult) -> bool:
        """Whether it covers a certified lower bound that is above it."""
        return result.kind == "certified" and self.covers(result) and result.epsilon > self.epsilon

    def to_document(self) -> dict[str, Any]:
        """The claim as plain data; an infinite epsilon is the text "inf"."""
        return {**self.model_dump(), "epsilon": "inf" if self.epsilon == math.inf else self.epsilon}
