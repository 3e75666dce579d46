"""What privacy costs in accuracy: proved bounds of the excess risk, and published orders of magnitude that are no guarantees."""

from __future__ import annotations

from lethe.utility.excess_risk import RiskBound, excess_risk_bound
from lethe.utility.standing import PublishedNumber, PublishedStanding

__all__ = ["PublishedNumber", "PublishedStanding", "RiskBound", "excess_risk_bound"]
