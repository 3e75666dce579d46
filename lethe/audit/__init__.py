"""A referee for privacy claims: lower bounds on epsilon from what training runs did. It shares nothing with the theorems but arithmetic.

Scores of runs, or of canaries in one run, become an `AuditResult`, which says what kind of statement it is: certified, conditional on a
named family of mechanisms, credible, or a point estimate.
"""

from lethe.audit.claim import Claim
from lethe.audit.config import AuditConfig, OneRunGame, TwoWorldGame
from lethe.audit.games.shadow_models import Candidates, draw_candidates, shadow_attack
from lethe.audit.page import AuditPage
from lethe.audit.statistics.attack import Attack, Detection, attack
from lethe.audit.statistics.bayesian import bayesian_epsilon
from lethe.audit.statistics.counts import Guesses, Rates, Tally
from lethe.audit.statistics.curves import AnyMechanism, GaussianCurve, SampledGaussianCurve, TradeOffCurve, gaussian_epsilon, rates_epsilon
from lethe.audit.statistics.intervals import clopper_pearson_lower, clopper_pearson_upper
from lethe.audit.statistics.lower_bounds import credible, one_run, point_estimate, two_world
from lethe.audit.statistics.membership import MembershipInference, membership_inference, printed_epsilon
from lethe.audit.statistics.one_run import gaussian_guesses_refuted, one_run_epsilon, one_run_gaussian_mu, one_run_p_value
from lethe.audit.statistics.result import AuditResult
from lethe.audit.statistics.rules import FixedThreshold, MultiSplit, Ranks, Split, ThresholdRule, best_threshold
from lethe.audit.statistics.sampled_composition import sampled_epsilon
from lethe.audit.statistics.scores import lira_offline, lira_online, rmia, scaled_confidence
from lethe.audit.statistics.setting import AuditSetting
from lethe.audit.truths import linear_last_iterate_epsilon, periodic_canary_mus, projected_walk_epsilon

__all__ = [
    "AnyMechanism",
    "Attack",
    "AuditConfig",
    "AuditPage",
    "AuditResult",
    "AuditSetting",
    "Candidates",
    "Claim",
    "Detection",
    "FixedThreshold",
    "GaussianCurve",
    "Guesses",
    "MembershipInference",
    "MultiSplit",
    "OneRunGame",
    "Ranks",
    "Rates",
    "Rule",
    "SampledGaussianCurve",
    "Split",
    "Tally",
    "TradeOffCurve",
    "TwoWorldGame",
    "attack",
    "bayesian_epsilon",
    "best_threshold",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "credible",
    "draw_candidates",
    "gaussian_epsilon",
    "gaussian_guesses_refuted",
    "linear_last_iterate_epsilon",
    "lira_offline",
    "lira_online",
    "membership_inference",
    "one_run",
    "one_run_epsilon",
    "one_run_gaussian_mu",
    "one_run_p_value",
    "periodic_canary_mus",
    "point_estimate",
    "printed_epsilon",
    "projected_walk_epsilon",
    "rates_epsilon",
    "rmia",
    "sampled_epsilon",
    "scaled_confidence",
    "shadow_attack",
    "two_world",
]
