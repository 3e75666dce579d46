"""What privacy costs in accuracy: proved bounds of the excess risk."""

from __future__ import annotations

from lethe.utility.excess_risk import RiskBound, excess_risk_bound

__all__ = ["RiskBound", "excess_risk_bound"]
