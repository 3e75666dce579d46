"""A referee for privacy claims: lower bounds on epsilon from what training runs did. It shares nothing with the theorems but arithmetic.

Scores of runs, or of canaries in one run, become an `AuditResult`, which says what kind of statement it is: certified, conditional on a
named family of mechanisms, credible, or a point estimate.
"""

from lethe.audit.claim import Claim
from lethe.audit.config import AuditConfig, OneRunGame, TwoWorldGame
from lethe.audit.games.shadow_models import draw_candidates, shadow_attack
from lethe.audit.statistics.lower_bounds import one_run, two_world
from lethe.audit.statistics.membership import membership_inference
from lethe.audit.statistics.result import AuditResult
from lethe.audit.statistics.rules import Ranks
from lethe.audit.statistics.setting import AuditSetting

__all__ = [
    "AuditConfig",
    "AuditResult",
    "AuditSetting",
    "Claim",
    "OneRunGame",
    "Ranks",
    "TwoWorldGame",
    "draw_candidates",
    "membership_inference",
    "one_run",
    "shadow_attack",
    "two_world",
]
