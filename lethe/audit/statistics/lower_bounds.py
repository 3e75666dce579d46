"""Scores of many runs in two worlds, or of many canaries in one run, turned into a result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from lethe.audit.statistics.bayesian import bayesian_epsilon
from lethe.audit.statistics.counts import Guesses, Tally
from lethe.audit.statistics.curves import AnyMechanism, Estimator, GaussianCurve, gaussian_epsilon, rates_epsilon
from lethe.audit.statistics.inputs import Booleans, require_array, require_flags, require_instance, require_scores
from lethe.audit.statistics.one_run import one_run_epsilon, one_run_gaussian_mu
from lethe.audit.statistics.result import AuditResult, Unit
from lethe.audit.statistics.rules import FixedThreshold, Split, ThresholdRule, best_threshold
from lethe.audit.statistics.setting import AuditSetting
from lethe.calculus.domains import FloatArray, require_count
from lethe.errors import HypothesisError, InputError

_UNFAIR = 1e-9
_LOT = 0x10755
_DECLARE = "give a FixedThreshold, a Split, a MultiSplit or Ranks, declared before the scores are seen"


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
        setting: what the bound is for.
        rule: where the threshold is, declared before the scores were seen.
        unit: what one score comes from: a run, or, for a Gaussian curve, a step.
        seeds: of the runs; each may occur once.
    Raises:
        InputError: an argument is outside its range, a world's scores are all equal, or a seed repeats.
        HypothesisError: the scores refute the assumed sampling.
    """
    first, second = require_scores("out_scores", out_scores), require_scores("in_scores", in_scores)
    stated, family = require_instance("setting", setting, AuditSetting), setting.curve
    counted = require_instance("rule", rule, ThresholdRule, _DECLARE).count_errors(
        first, second, curve=family, delta=stated.delta, level=stated.level
    )
    epsilon, at_best = family.epsilon(counted.rates, stated.delta), _at_best(rule, first.size, second.size, stated)
    return AuditResult(
        epsilon=epsilon,
        delta=stated.delta,
        level=stated.level,
        estimator=family.estimator,
        family=family.family,
        unit=unit,
        selection=rule.selection,
        rule=rule.describe(),
        neighbours=stated.neighbours,
        threat=stated.threat,
        counts=counted.tally,
        seeds=_require_seeds(seeds),
        warnings=_shared_values(first, second),
        at_best=None if at_best is None else max(at_best, epsilon),
    )


def _at_best(rule: ThresholdRule, out_runs: int, in_runs: int, setting: AuditSetting) -> float | None:
    """The bound of scores without an error; None where the curve allows no such scores."""
    try:
        rates = rule.best_case(out_runs, in_runs, curve=setting.curve, delta=setting.delta, level=setting.level).rates
        return setting.curve.epsilon(rates, setting.delta)
    except HypothesisError:
        return None


def credible(
    out_scores: ArrayLike, in_scores: ArrayLike, setting: AuditSetting, *, rule: ThresholdRule, seeds: Sequence[int] = ()
) -> AuditResult:
    """The Bayesian limit `bayesian_epsilon` of independent runs without and with one record.

    Args:
        out_scores: one score a run without the record, shape (n0,); higher means more likely IN.
        in_scores: one score a run with it, shape (n1,).
        setting: what the limit is for; it assumes no curve.
        rule: a `FixedThreshold` or a `Split`.
        seeds: of the runs; each may occur once.
    Raises:
        InputError: as `two_world`, another rule, or a curve.
    """
    if not isinstance(rule, FixedThreshold | Split):
        raise InputError(
            f"rule: got {type(rule).__name__}; a credible limit needs a FixedThreshold or a Split.", source="the argument rule"
        )
    if not isinstance(require_instance("setting", setting, AuditSetting).curve, AnyMechanism):
        raise InputError(f"curve: got {type(setting.curve).__name__}; a credible limit assumes none.", source="the argument setting")
    counted = two_world(out_scores, in_scores, setting, rule=rule, seeds=seeds)
    counts = require_instance("counts", counted.counts, Tally)
    faultless = Tally(out_trials=counts.out_trials, false_positives=0, in_trials=counts.in_trials, false_negatives=0)
    limit, at_best = (bayesian_epsilon(each, delta=setting.delta, level=setting.level) for each in (counts, faultless))
    return counted.model_copy(update={"epsilon": limit, "estimator": "bayesian", "at_best": at_best})


def point_estimate(
    out_scores: ArrayLike, in_scores: ArrayLike, setting: AuditSetting, *, unit: Unit, threshold: float | None = None
) -> AuditResult:
    r"""The empirical error rates put into the formula, as many papers report: no interval, and it proves nothing.

    Args:
        out_scores: a score of each trial without the record, shape (n0,).
        in_scores: a score of each trial with it, shape (n1,).
        setting: what the number is about; an estimate has no level and no curve, and uses neither.
        unit: what one score comes from.
        threshold: fixed in advance; if left out, one chosen on these very scores.
    Returns:
        A point estimate, infinite if an error never happens.
    Raises:
        InputError: an argument is outside its range.
    """
    first, second = require_array("out_scores", out_scores, dimensions=1), require_array("in_scores", in_scores, dimensions=1)
    target = require_instance("setting", setting, AuditSetting).delta
    chosen = FixedThreshold(
        threshold=best_threshold(first, second, curve=AnyMechanism(), delta=target, level=0.5) if threshold is None else threshold
    )
    tally = Tally.at(chosen.threshold, first, second)
    warnings = ["many guesses on one model are not independent trials of the mechanism"] if unit == "guess" else []
    if threshold is None:
        warnings.append("the threshold was chosen on the scores reported, which raises the number")
    if 0 in (tally.false_positives, tally.false_negatives):
        warnings.append("one kind of error never happened; no number of trials shows that it cannot")
    return AuditResult(
        epsilon=rates_epsilon(tally.observed_rates(), target),
        delta=target,
        level=None,
        estimator="plug_in",
        unit=unit,
        selection="same_data" if threshold is None else "fixed",
        rule=f"threshold {chosen.threshold:g}, chosen on the scores reported" if threshold is None else chosen.describe(),
        neighbours=setting.neighbours,
        threat=setting.threat,
        counts=tally,
        warnings=tuple(warnings),
    )


def one_run(
    scores: ArrayLike, included: ArrayLike, setting: AuditSetting, *, guesses: Sequence[tuple[int, int]], seeds: Sequence[int] = ()
) -> AuditResult:
    r"""A lower bound on $\epsilon$ from one run with m canaries, each included by its own fair coin.

    The top k+ scores are guessed IN, the bottom k- OUT, and the rest abstain. Canaries that interfere with each other make the bound
    smaller, never wrong. A canary that is duplicated or augmented is more than one record.

    Args:
        scores: one a canary, shape (m,); higher means more likely IN. Computed without the coins. Equal ones are put in a drawn order.
        included: the coins, truth values, shape (m,), in the order in which they fell.
        setting: what the bound is for: zero_out or add_or_remove for a canary that is there or not, replace_one if another record takes
            its place; no curve, or a `GaussianCurve()`.
        guesses: pairs (k+, k-), fixed before the run; of several each gets an equal share of the level.
        seeds: of the run and of the coins.
    Raises:
        InputError: an argument is outside its range, the coins are plainly not fair or are sorted, or a seed repeats.
    """
    values = require_scores("scores", scores)
    coins = require_flags("included", included, values.size)
    stated, family = require_instance("setting", setting, AuditSetting), setting.curve
    if not isinstance(family, AnyMechanism | GaussianCurve):
        raise InputError(f"curve: got {type(family).__name__}; one run needs none, or a GaussianCurve.", source="the argument setting")
    _require_fair(coins)
    pairs = _require_pairs(guesses, values.size)
    found = [_guessed(values, coins, *pair) for pair in pairs]

    def bound(counts: Guesses) -> float:
        level = stated.level / len(pairs)
        if isinstance(family, AnyMechanism):
            return one_run_epsilon(counts, delta=stated.delta, level=level)
        return gaussian_epsilon(one_run_gaussian_mu(counts, level=level), stated.delta)

    bounds = [bound(each) for each in found]
    best = int(np.argmax(bounds))
    words = ", ".join(f"{top} IN and {bottom} OUT" for top, bottom in pairs)
    estimator: Estimator = "one_run" if isinstance(family, AnyMechanism) else "one_run_gaussian"
    return AuditResult(
        epsilon=bounds[best],
        delta=stated.delta,
        level=stated.level,
        estimator=estimator,
        family=family.family,
        unit="canary",
        selection="guesses",
        rule=f"guesses declared in advance: {words}" + ("; Bonferroni" if len(pairs) > 1 else ""),
        neighbours=stated.neighbours,
        threat=stated.threat,
        counts=found[best],
        seeds=_require_seeds(seeds),
        warnings=_shared_values(values),
        at_best=max(bound(each.model_copy(update={"correct": each.guessed})) for each in found),
    )


def _guessed(scores: FloatArray, included: Booleans, top: int, bottom: int) -> Guesses:
    # Equal scores are told apart by lot: neither by their coins nor by their place, in case members stand first.
    order = np.lexsort((np.random.default_rng(_LOT).permutation(scores.size), scores))
    right = np.count_nonzero(included[order[scores.size - top :]]) + np.count_nonzero(~included[order[:bottom]])
    return Guesses(canaries=scores.size, guessed=top + bottom, correct=int(right))


def _require_pairs(guesses: object, canaries: int) -> list[tuple[int, int]]:
    source = "the argument guesses"
    if not isinstance(guesses, Sequence) or isinstance(guesses, str) or not guesses:
        raise InputError(f"guesses: got {guesses!r}; it needs a list of pairs (IN, OUT).", source=source)
    pairs: list[tuple[int, int]] = []
    for pair in guesses:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise InputError(f"guesses: got {pair!r}; it needs pairs (IN, OUT) of whole numbers.", source=source)
        top, bottom = (require_count("guesses", each, low=0, high=canaries) for each in pair)
        if not 1 <= top + bottom <= canaries:
            raise InputError(f"guesses: got {top} IN and {bottom} OUT; together they need 1 to {canaries}.", source=source)
        pairs.append((top, bottom))
    return pairs


def _require_fair(included: Booleans) -> None:
    # Fair and independent coins change from one to the next as often as a fair coin falls heads.
    for flags, words in ((included, "canaries are IN"), (included[1:] != included[:-1], "coins differ from the one before")):
        heads, size = int(np.count_nonzero(flags)), flags.size
        if 2.0 * float(special.bdtr(min(heads, size - heads), size, 0.5)) < _UNFAIR:
            raise InputError(
                f"included: {heads} of {size} {words}; fair coins do so less than once in 10^9.",
                source="the argument included",
                remedy="draw each canary's inclusion by its own fair coin, and pass the coins as they fell",
            )


def _require_seeds(seeds: object) -> tuple[int, ...]:
    if not isinstance(seeds, Sequence) or isinstance(seeds, str):
        raise InputError(f"seeds: got {type(seeds).__name__}; it needs a list of whole numbers.", source="the argument seeds")
    numbers = tuple(require_count("seeds", seed, low=0, high=2**64) for seed in seeds)
    if len(set(numbers)) != len(numbers):
        raise InputError(
            "seeds: one is there twice; two runs with one noise are one run.", source="the argument seeds", remedy="repeat with fresh seeds"
        )
    return numbers


def _shared_values(*worlds: FloatArray) -> tuple[str, ...]:
    """A warning where many runs of a world have the very same score."""
    distinct = min(np.unique(world).size / world.size for world in worlds)
    return ("many scores are exactly equal: check that no two runs drew the same noise",) if distinct < 0.9 else ()
