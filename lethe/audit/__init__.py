"""A referee for privacy claims: lower bounds on epsilon from what training runs did. It shares nothing with the theorems but arithmetic.

Scores of runs, or of canaries in one run, become an `AuditResult`, which says what kind of statement it is: certified, conditional on a
named family of mechanisms, credible, or a point estimate.
"""

from functools import partial

from lethe.audit.config import AuditConfig, TwoWorldGame
from lethe.audit.games.shadow_models import shadow_attack
from lethe.audit.page import Claim
from lethe.audit.statistics.curves import AuditSetting
from lethe.audit.statistics.lower_bounds import two_world
from lethe.audit.statistics.one_run import membership_inference
from lethe.audit.statistics.rules import Ranks
from lethe.errors.names import refuse_old_name

__all__ = [
    "AuditConfig",
    "AuditSetting",
    "Claim",
    "Ranks",
    "TwoWorldGame",
    "membership_inference",
    "shadow_attack",
    "two_world",
]

__getattr__ = partial(refuse_old_name, __name__)
