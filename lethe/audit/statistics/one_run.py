r"""A lower bound on $\epsilon$, or on $\mu$, from one run: many canaries with a coin each, and guesses about the coins.

verdict.py calls `one_run` with scores and coins, since hundreds of trainings are often too dear. A canary is a record made to be
remembered; its coin decided whether it was trained on.

A membership attack on models whose members were drawn by coins is such a game: `membership_inference` gives the bound beside the point
estimate that papers print.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from pydantic import AfterValidator, Field
from scipy import special

from lethe.audit.statistics.counts import (
    Booleans,
    Guesses,
    Tally,
    largest_refuted,
    require_array,
    require_flags,
    require_instance,
    require_level,
    require_scores,
    warnings_of_repeats,
)
from lethe.audit.statistics.curves import AnyMechanism, AuditSetting, GaussianCurve, gaussian_epsilon, printed_epsilon
from lethe.audit.statistics.lower_bounds import point_estimate
from lethe.audit.statistics.result import AuditResult
from lethe.calculus.crossing import log_gap
from lethe.calculus.domains import FloatArray, require_delta, require_nonnegative
from lethe.documents.specification import Specification
from lethe.errors import InputError


def _guess_shares(pair: tuple[int, int]) -> tuple[int, int]:
    if sum(pair) == 0:
        raise InputError("guesses: got 0 IN and 0 OUT; together they need 1 or more.")
    return pair


_Count: TypeAlias = Annotated[int, Field(ge=0)]
GuessPairs: TypeAlias = Annotated[
    tuple[Annotated[tuple[_Count, _Count], Field(strict=False), AfterValidator(_guess_shares)], ...], Field(min_length=1, strict=False)
]
"""(how many canaries are guessed to be in, how many out) for each test."""
_UNFAIR = 1e-9
_LOT = 0x10755
_MEMBER = 0.5  # an attack's answer is the likelier of its two classes


class Declared(Specification):
    """Pairs (k+, k-), how many canaries are guessed to be in and how many to be out, in each test."""

    guesses: GuessPairs


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
        InputError: the coins are plainly not fair or are sorted, say.
    """
    values = require_scores("scores", scores)
    coins = require_flags("included", included, values.size)
    curve = require_instance("setting", setting, AuditSetting).curve
    if not isinstance(curve, AnyMechanism | GaussianCurve):
        raise InputError(f"curve: got {type(curve).__name__}; one run needs none, or a GaussianCurve.", source="the argument setting")
    _require_fair(coins)
    pairs = Declared(guesses=guesses).guesses  # pyright: ignore[reportArgumentType]
    if max(map(sum, pairs)) > values.size:
        raise InputError(f"guesses: got {max(map(sum, pairs))}; there are {values.size} canaries.", source="the argument guesses")
    level, free = setting.level / len(pairs), isinstance(curve, AnyMechanism)

    def bound(counts: Guesses) -> float:
        if free:
            return one_run_epsilon(counts, delta=setting.delta, level=level)  # pyright: ignore[reportArgumentType]  # frozen, so hashable
        return gaussian_epsilon(one_run_gaussian_mu(counts, level=level), setting.delta)  # pyright: ignore[reportArgumentType]

    counted = [_guessed(values, coins, *pair) for pair in pairs]
    bounds = [bound(each) for each in counted]
    best = int(np.argmax(bounds))
    words = ", ".join(f"{top} IN and {bottom} OUT" for top, bottom in pairs)
    return AuditResult.of(
        setting,
        epsilon=bounds[best],
        estimator="one_run" if free else "one_run_gaussian",
        family=curve.family,
        unit="canary",
        selection="guesses",
        rule=f"guesses declared in advance: {words}" + ("; Bonferroni" if len(pairs) > 1 else ""),
        counts=counted[best],
        seeds=seeds,
        warnings=warnings_of_repeats(values),
        at_best=max(bound(each.model_copy(update={"correct": each.guessed})) for each in counted),
    )


def _guessed(scores: FloatArray, included: Booleans, top: int, bottom: int) -> Guesses:
    """How many of the highest scores are members and of the lowest are not: guesses and right ones."""
    # Equal scores are told apart by lot: neither by their coins nor by their place, in case members stand first.
    order = np.lexsort((np.random.default_rng(_LOT).permutation(scores.size), scores))
    right = np.count_nonzero(included[order[scores.size - top :]]) + np.count_nonzero(~included[order[:bottom]])
    return Guesses(canaries=scores.size, guessed=top + bottom, correct=int(right))


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


def one_run_p_value(guesses: Guesses, *, epsilon: float, delta: float) -> float:
    r"""Most probable it can be, under $(\epsilon, \delta)$-DP, that `correct` guesses or more are right; rounded up.

    $$P[V \ge v] \le P[W \ge v] + 2m\delta\,\max_{1 \le i \le v} \frac{P[v-i \le W < v]}{i}, \qquad
      W \sim \mathrm{Bin}\left(r, \frac{e^\epsilon}{1+e^\epsilon}\right)$$

    Formal guarantee: m coins are fair and independent of each other and of everything else; the guesses are made from the released output
    (and from what is known without the coins); which coins to guess, r of them, may depend on the output too.

    Of m canaries r are guessed, v of them correctly; $\delta$ is that of the whole mechanism, for one canary.

    Reference: Steinke, Nasr, Jagielski 2023, arXiv:2305.08846, Theorem 5.2.
    """
    level, slack = require_nonnegative("epsilon", epsilon, allow_infinity=False), require_delta(delta)
    right, total = guesses.correct, guesses.guessed
    if right == 0:
        return 1.0
    hits = np.arange(right)
    logs = special.gammaln(total + 1.0) - special.gammaln(hits + 1.0) - special.gammaln(total - hits + 1.0)
    log_right = -math.log1p(math.exp(-level))
    below = np.exp(logs + hits * log_right + (total - hits) * (log_right - level))
    largest_mean = float(np.max(np.cumsum(below[::-1]) / (hits + 1.0)))
    tail = float(special.betainc(right, total - right + 1.0, math.exp(log_right)))
    # gammaln is relative to its own size, which is r log r.
    return min((tail + 2.0 * guesses.canaries * slack * largest_mean) * (1.0 + 1e-9 + 1e-14 * total), 1.0)


# Whoever audits many models of one kind meets the same counts again and again.
@lru_cache(maxsize=256)
def one_run_epsilon(guesses: Guesses, *, delta: float, level: float) -> float:
    r"""The $\epsilon \ge 0$ below which the guesses are refuted, rounded down: where `one_run_p_value` reaches `level`.

    For each i the p-value rises and then falls to 1 as $\epsilon$ grows, so it passes $\alpha < 1$ once, also where $2m\delta > 1$.
    All r guesses right at $\delta = 0$ give $-\log(\alpha^{-1/r} - 1)$ and no more. How many to guess must have been fixed without looking
    at how many are right.
    """
    chance = require_level(level)
    return largest_refuted(lambda epsilon: log_gap(one_run_p_value(guesses, epsilon=epsilon, delta=delta), chance), resolution=1e-10)


def gaussian_guesses_refuted(guesses: Guesses, *, mu: float, level: float) -> bool:
    r"""Whether so many right guesses have probability at most $\alpha$ under $\mu$-GDP.

    With c of c' guesses right among m canaries, $g(x) = \Phi(\Phi^{-1}(x) - \mu)$, $r = \alpha c/m$ and $h = \alpha(c'-c)/m$, for i
    from c - 1 down to 0:

    $$h' = \max\{h, g(r)\}, \qquad r \leftarrow \min\left\{1,\ r + \frac{i}{c'-i}(h' - h)\right\}, \qquad h \leftarrow h'$$

    and $\mu$ is refuted if $r + h > c'/m$. A larger $\mu$ lowers g, and every r and h with it.

    Reference: Mahloujifar, Melis, Chaudhuri 2024, arXiv:2410.22235, Algorithm 3.
    """
    distance, chance = require_nonnegative("mu", mu, allow_infinity=False), require_level(level)
    right, total, canaries = guesses.correct, guesses.guessed, guesses.canaries
    rising = chance * right / canaries
    decided = chance * (total - right) / canaries
    needed = total / canaries * (1.0 + 1e-10)
    for index in range(right - 1, -1, -1):
        new = max(decided, float(special.ndtr(special.ndtri(rising) - distance)))
        rising = min(1.0, rising + index / (total - index) * (new - decided))
        decided = new
        # Neither ever shrinks.
        if rising + decided > needed:
            return True
    return False


@lru_cache(maxsize=256)
def one_run_gaussian_mu(guesses: Guesses, *, level: float) -> float:
    r"""The $\mu \ge 0$ below which the guesses are refuted, rounded down; 0 if none."""
    return largest_refuted(lambda mu: -1.0 if gaussian_guesses_refuted(guesses, mu=mu, level=level) else 1.0, resolution=1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipInference:
    r"""Of the same guesses: of each model equation (24) as printed, which may be negative or infinite, and as a point estimate at least 0,
    which proves nothing; and a certified lower bound from the scores of all models together.
    """

    printed: tuple[float, ...]
    estimates: tuple[AuditResult, ...]
    bound: AuditResult


def membership_inference(
    probabilities: Sequence[ArrayLike],
    included: Sequence[ArrayLike],
    setting: AuditSetting,
    *,
    guesses: Sequence[tuple[int, int]],
    seeds: Sequence[int] = (),
) -> MembershipInference:
    r"""The estimate of Liang et al. and the bound of Steinke et al., from the attack's answers about one or more trained models.

    The estimate guesses everyone, at probability 1/2, and takes all guesses on one model for independent trials, which they are not. The
    bound guesses the extremes only, a number declared in advance, and holds because each candidate was included by its own fair coin.

    Several models make one game: R independent trainings, each on candidates with coins of its own, are one mechanism that takes R m
    coins. Another value of one coin changes one training, so that mechanism is $(\epsilon, \delta)$-DP in each of them if each training
    is, and the theorem holds for all R m together, at one level. A mean of R bounds would be no bound.

    Args:
        probabilities: of each model the attack's probability that a candidate was included, shape (m,), in [0, 1]. Computed from the model
            released, and from nothing else that depends on the coins.
        included: of each model the coins, truth values, shape (m,).
        setting: what both are about; the threat is "average_case", since candidates are natural records.
        guesses: pairs (k+, k-) of all candidates together, declared in advance.
        seeds: of the models.
    """
    if setting.threat != "average_case":
        raise InputError(
            f"threat: got {setting.threat!r}; candidates that are natural records need 'average_case'.", source="the argument setting"
        )
    if not len(probabilities) == len(included) or not len(included):
        raise InputError(f"included: got those of {len(included)} models; it needs those of {len(probabilities)}, at least one.")
    scores = [require_array("probabilities", values, dimensions=1) for values in probabilities]
    if any(values.min() < 0.0 or values.max() > 1.0 for values in scores):
        raise InputError("probabilities: one is outside [0, 1].", source="the argument probabilities")
    coins = [require_flags("included", flags, values.size) for flags, values in zip(included, scores, strict=True)]
    for flags in coins:
        if flags.all() or not flags.any():
            raise InputError(f"included: got {int(flags.sum())} of {flags.size}; an attack needs members and others.")
    worlds = [(values[~flags], values[flags]) for values, flags in zip(scores, coins, strict=True)]
    return MembershipInference(
        printed=tuple(printed_epsilon(Tally.at(_MEMBER, *world).observed_rates(), setting.delta) for world in worlds),
        estimates=tuple(point_estimate(*world, setting, unit="guess", threshold=_MEMBER) for world in worlds),
        bound=one_run(np.concatenate(scores), np.concatenate(coins), setting, guesses=guesses, seeds=seeds),
    )
