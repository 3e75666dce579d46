"""Audits of trainers, Lethe's own and others: the certified upper bound against audited lower bounds."""

from lethe.audit.trainers.audits import audit
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.networks import NetworkTraining
from lethe.audit.trainers.training import Canary, FunctionTraining

__all__ = ["Canary", "FunctionTraining", "LinearTraining", "NetworkTraining", "audit"]
