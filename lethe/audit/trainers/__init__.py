"""Audits of trainers, Lethe's own and others: the certified upper bound against audited lower bounds.

The statistics are `lethe.audit`'s, the games `lethe.audit.games`'s; here they are played with `fit` and `PrivacyEngine`.
"""

from lethe.audit.trainers.audits import audit
from lethe.audit.trainers.functions import FunctionTraining
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.networks import NetworkTraining
from lethe.audit.trainers.training import Canary

__all__ = ["Canary", "FunctionTraining", "LinearTraining", "NetworkTraining", "audit"]
