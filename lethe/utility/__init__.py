"""What privacy costs in accuracy: proved bounds of the excess risk."""

from lethe.utility.excess_risk import excess_risk_bound

__all__ = ["excess_risk_bound"]
