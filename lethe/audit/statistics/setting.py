"""AuditSetting: what a lower bound on epsilon is stated for, declared before the scores are seen."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, InstanceOf

from lethe.audit.statistics.curves import AnyMechanism, TradeOffCurve
from lethe.documents.specification import Specification

Threat = Literal["black_box", "black_box_chosen_start", "final_model", "white_box", "average_case"]
Neighbours = Literal["replace_one", "zero_out", "add_or_remove"]
Level: TypeAlias = Annotated[float, Field(ge=1e-12, le=0.5)]
r"""$\alpha$, the probability with which a result may be wrong."""


class AuditSetting(Specification):
    r"""The statement that a lower bound on $\epsilon$ is about.

    Args:
        delta: $\delta \in [0, 1)$; above 0 for a Gaussian curve.
        neighbours: which two data sets count as neighbours: what "without the record" meant.
        threat: what the adversary, so the score, sees.
        level: $\alpha$ from 1e-12 to 1/2, the probability that the bound is above the truth.
        curve: what is assumed of the mechanism's trade-off curve; by default nothing, and anything else makes the result conditional.
    Raises:
        InputError: an argument is outside its range.
    """

    delta: float = Field(ge=0, lt=1)
    neighbours: Neighbours
    threat: Threat
    level: Level = 0.05
    curve: InstanceOf[TradeOffCurve] = AnyMechanism()
