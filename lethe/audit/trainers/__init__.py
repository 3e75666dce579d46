"""Audits of trainers, Lethe's own and others: the certified upper bound against audited lower bounds.

The statistics are `lethe.audit`'s, the games `lethe.audit.games`'s; here they are played with `fit_linear`, `fit` and `PrivacyEngine`.
"""

from lethe.audit.trainers.audits import audit
from lethe.audit.trainers.functions import FunctionTraining
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.networks import NetworkTraining
from lethe.audit.trainers.self_tests import SelfTest, SelfTestRow, self_test
from lethe.audit.trainers.training import AuditedTraining, Canary, RunTraining, claim_of

__all__ = [
    "AuditedTraining",
    "Canary",
    "FunctionTraining",
    "LinearTraining",
    "NetworkTraining",
    "RunTraining",
    "SelfTest",
    "SelfTestRow",
    "audit",
    "claim_of",
    "self_test",
]
