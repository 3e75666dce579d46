"""Scores of many runs in two worlds, without and with one record, turned into a lower bound on epsilon, and what it is worth.

verdict.py calls `two_world`, whose result is certified, or conditional where the setting assumes a trade-off curve (curves.py); `credible`
(Bayesian) and `point_estimate` are for users who compare with papers, and prove nothing.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.audit.statistics.counts import (
    Tally,
    largest_refuted,
    require_array,
    require_instance,
    require_level,
    require_scores,
    warnings_of_repeats,
)
from lethe.audit.statistics.curves import AnyMechanism, AuditSetting, printed_epsilon
from lethe.audit.statistics.result import AuditResult, Unit
from lethe.audit.statistics.rules import FixedThreshold, Split, ThresholdRule, best_threshold
from lethe.calculus.crossing import log_gap
from lethe.calculus.domains import FloatArray, require_delta
from lethe.errors import HypothesisError, InputError

_DECLARE = "give a FixedThreshold, a Split, a MultiSplit or Ranks, declared before the scores are seen"
# Where a beta law changes: probabilities of -8 to 8 standard normal deviations.
_PROBABILITIES = special.ndtr(np.linspace(-8.0, 8.0, 33))
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(8)
_LARGEST = 700.0
_FAR = float(np.finfo(np.float64).max)


def two_world(
    out_scores: ArrayLike,
    in_scores: ArrayLike,
    setting: AuditSetting,
    *,
    rule: ThresholdRule,
    unit: Unit = "run",
    seeds: Sequence[int] = (),
) -> AuditResult:
    r"""A lower bound on $\epsilon$ from independent runs without and with one record.

    Args:
        out_scores: one score a run without the record, shape (n0,); higher means more likely IN.
        in_scores: one score a run with it, shape (n1,).
        setting: delta, the confidence level and the assumed trade-off curve.
        rule: where the threshold is, declared before the scores were seen.
        unit: what one score comes from: a run, or, for a Gaussian curve, a step.
        seeds: of the runs; each may occur once.
    Raises:
        InputError: a world's scores are all equal, say; HypothesisError: the scores refute the assumed sampling.
    """
    first, second = require_scores("out_scores", out_scores), require_scores("in_scores", in_scores)
    curve = require_instance("setting", setting, AuditSetting).curve
    counted = require_instance("rule", rule, ThresholdRule, _DECLARE).count_errors(first, second, setting)
    epsilon = curve.epsilon(counted.rates, setting.delta)
    # at_best: the largest epsilon that so many runs could prove, from scores that tell the two worlds apart without an error.
    apart = np.full(first.size, -_FAR), np.full(second.size, _FAR)
    try:
        at_best = max(epsilon, curve.epsilon(rule.count_errors(*apart, setting).rates, setting.delta))
    except HypothesisError:  # the curve allows no scores without an error
        at_best = None
    return AuditResult.of(
        setting,
        epsilon=epsilon,
        estimator=curve.estimator,
        family=curve.family,
        unit=unit,
        selection=rule.selection,
        rule=rule.describe(),
        counts=counted.tally,
        seeds=seeds,
        warnings=warnings_of_repeats(first, second),
        at_best=at_best,
    )


def credible(
    out_scores: ArrayLike, in_scores: ArrayLike, setting: AuditSetting, *, rule: ThresholdRule, seeds: Sequence[int] = ()
) -> AuditResult:
    """The Bayesian limit `bayesian_epsilon` of independent runs without and with one record, shapes (n0,) and (n1,).

    The setting assumes no curve; the rule is a `FixedThreshold` or a `Split`.
    """
    if not isinstance(rule, FixedThreshold | Split):
        raise InputError(
            f"rule: got {type(rule).__name__}; a credible limit needs a FixedThreshold or a Split.", source="the argument rule"
        )
    if not isinstance(require_instance("setting", setting, AuditSetting).curve, AnyMechanism):
        raise InputError(f"curve: got {type(setting.curve).__name__}; a credible limit assumes none.", source="the argument setting")
    counted = two_world(out_scores, in_scores, setting, rule=rule, seeds=seeds)
    counts = require_instance("counts", counted.counts, Tally)
    faultless = counts.model_copy(update={"false_positives": 0, "false_negatives": 0})
    limit, at_best = (bayesian_epsilon(each, delta=setting.delta, level=setting.level) for each in (counts, faultless))
    return counted.model_copy(update={"epsilon": limit, "estimator": "bayesian", "at_best": at_best})


def point_estimate(
    out_scores: ArrayLike, in_scores: ArrayLike, setting: AuditSetting, *, unit: Unit, threshold: float | None = None
) -> AuditResult:
    r"""The empirical error rates put into the formula, as many papers report: no interval, and it proves nothing.

    Of scores without and with the record, shapes (n0,) and (n1,); infinite if an error never happens. Without a threshold that was fixed
    in advance, one is chosen on these very scores. An estimate has no level and no curve, and uses neither of the setting's.
    """
    first, second = require_array("out_scores", out_scores, dimensions=1), require_array("in_scores", in_scores, dimensions=1)
    bare = require_instance("setting", setting, AuditSetting).model_copy(update={"curve": AnyMechanism(), "level": 0.5})
    chosen = FixedThreshold(threshold=best_threshold(first, second, bare) if threshold is None else threshold)
    tally = Tally.at(chosen.threshold, first, second)
    warnings = ["many guesses on one model are not independent trials of the mechanism"] if unit == "guess" else []
    if threshold is None:
        warnings.append("the threshold was chosen on the scores reported, which raises the number")
    if 0 in (tally.false_positives, tally.false_negatives):
        warnings.append("one kind of error never happened; no number of trials shows that it cannot")
    return AuditResult.of(
        setting,
        epsilon=max(0.0, printed_epsilon(tally.observed_rates(), setting.delta)),
        level=None,
        estimator="plug_in",
        unit=unit,
        selection="same_data" if threshold is None else "fixed",
        rule=f"threshold {chosen.threshold:g}, chosen on the scores reported" if threshold is None else chosen.describe(),
        counts=tally,
        warnings=tuple(warnings),
    )


def bayesian_epsilon(tally: Tally, *, delta: float, level: float) -> float:
    r"""The $\epsilon$, at most 700, below which the posterior puts probability `level`: what is believed, and no confidence bound.

    $x = \mathrm{FNR} \sim \mathrm{Beta}(\tfrac12 + \mathrm{FN}, \tfrac12 + \mathrm{TP})$ and $y = \mathrm{FPR} \sim
    \mathrm{Beta}(\tfrac12 + \mathrm{FP}, \tfrac12 + \mathrm{TN})$ are independent, and $\epsilon$ solves
    $P[(x, y) \in R(\epsilon, \delta)] = \alpha$, R being the rates that an $(\epsilon, \delta)$-DP mechanism allows:

    $$\max\{0,\ 1-\delta-xe^\epsilon,\ (1-\delta-x)e^{-\epsilon}\} \le y
      \le \min\{1,\ 1+(\delta-x)e^{-\epsilon},\ \delta+(1-x)e^\epsilon\}$$

    The threshold must have been chosen on other data. The posterior is continuous: at $\delta = 0$ even a useless
    test has a limit above 0.

    It is 0 if $R(0, \delta)$ has more than $\alpha$ already.

    Reference: Zanella-Béguelin et al. 2023, arXiv:2206.05199, Section 4.
    """
    slack, chance = require_delta(delta), require_level(level)
    return largest_refuted(lambda epsilon: log_gap(_allowed(tally, epsilon, slack), chance), resolution=1e-9, largest=_LARGEST)


def _allowed(tally: Tally, epsilon: float, delta: float) -> float:
    r"""$P[(x, y) \in R(\epsilon, \delta)]$.

    With $x = \sin^2\theta$ the density of x is $\sin^{2\mathrm{FN}}\theta\,\cos^{2\mathrm{TP}}\theta$, without a pole. Panels end where
    x, or y on the boundary of R, changes its probability, and where the boundary has a corner: inside one, 8 nodes are exact to rounding.
    """
    misses = (0.5 + tally.false_negatives, 0.5 + tally.in_trials - tally.false_negatives)
    alarms = (0.5 + tally.false_positives, 0.5 + tally.out_trials - tally.false_positives)
    grow, shrink = math.exp(epsilon), math.exp(-epsilon)
    y = special.betaincinv(*alarms, _PROBABILITIES)
    corner = (1.0 - delta) / (1.0 + grow)
    ends = np.concatenate(
        [
            special.betaincinv(*misses, _PROBABILITIES),
            [0.0, delta, corner, 1.0 - corner, 1.0 - delta, 1.0],
            (1.0 - delta - y) * shrink,
            1.0 - delta - y * grow,
            1.0 - (y - delta) * shrink,
            delta + (1.0 - y) * grow,
        ]
    )
    panels = np.unique(np.arcsin(np.sqrt(np.clip(ends, 0.0, 1.0))))
    half = 0.5 * np.diff(panels)
    theta = (panels[:-1, None] + half[:, None] * (1.0 + _NODES)).ravel()
    weight = (half[:, None] * _NODE_WEIGHTS).ravel()
    x = np.square(np.sin(theta))
    log_density = math.log(2.0) - special.betaln(*misses) + (2.0 * misses[0] - 1.0) * np.log(np.sin(theta))
    density = np.exp(log_density + (2.0 * misses[1] - 1.0) * np.log(np.cos(theta)))
    low: FloatArray = np.maximum(np.maximum(1.0 - delta - x * grow, (1.0 - delta - x) * shrink), 0.0)
    high: FloatArray = np.minimum(np.minimum(1.0 + (delta - x) * shrink, delta + (1.0 - x) * grow), 1.0)
    between = special.betainc(*alarms, np.maximum(high, low)) - special.betainc(*alarms, low)
    return min(max(float(np.sum(weight * density * between)), 0.0), 1.0)
