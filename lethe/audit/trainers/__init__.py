"""Audits of trainers, Lethe's own and others: the certified upper bound against audited lower bounds."""

from functools import partial

from lethe.audit.trainers.audits import audit
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.networks import NetworkTraining
from lethe.audit.trainers.training import Canary, FunctionTraining
from lethe.errors.names import refuse_old_name

__all__ = ["Canary", "FunctionTraining", "LinearTraining", "NetworkTraining", "audit"]

__getattr__ = partial(refuse_old_name, __name__)
