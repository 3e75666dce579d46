"""Audits of Lethe's own trainers, and of any other: the certificate above, what trainings gave away below.

The statistics are `lethe.audit`'s, the games `lethe.audit.training`'s; here they are played with `fit_linear`, `fit` and `PrivacyEngine`.
"""

from lethe.auditing.audits import audit
from lethe.auditing.claims import claim_of
from lethe.auditing.linear import LinearTraining
from lethe.auditing.networks import NetworkTraining
from lethe.auditing.self_tests import SelfTest, SelfTestRow, self_test
from lethe.auditing.subjects import Canary, Subject

__all__ = ["Canary", "LinearTraining", "NetworkTraining", "SelfTest", "SelfTestRow", "Subject", "audit", "claim_of", "self_test"]
