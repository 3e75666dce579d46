r"""What a membership attack says of epsilon: the point estimate that papers print, and a lower bound that holds, from the same scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lethe.audit.statistics.counts import Rates, Tally
from lethe.audit.statistics.curves import signed_rates_epsilon
from lethe.audit.statistics.inputs import require_array, require_flags
from lethe.audit.statistics.lower_bounds import one_run, point_estimate
from lethe.audit.statistics.result import AuditResult
from lethe.audit.statistics.setting import AuditSetting
from lethe.calculus.domains import require_probability
from lethe.errors import InputError

MEMBER = 0.5
"""The attack's answer is the likelier of its two classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipInference:
    """A point estimate and a lower bound of epsilon from the same guesses.

    Args:
        printed: of each model equation (24) as printed, which may be negative or infinite.
        estimates: of each model the same as a point estimate, at least 0. It proves nothing.
        bound: a certified lower bound, from the scores of all models together.
    """

    printed: tuple[float, ...]
    estimates: tuple[AuditResult, ...]
    bound: AuditResult


def printed_epsilon(rates: Rates, delta: float) -> float:
    r"""Equation (24) of the paper, as printed.

    $$\hat\epsilon = \max\Big\{\log\frac{1-\delta-\mathrm{FPR}}{\mathrm{FNR}},\ \log\frac{1-\delta-\mathrm{FNR}}{\mathrm{FPR}}\Big\}$$

    No interval, nothing from below by 0: a guess without any information has $\hat\epsilon = 0$ at $\delta = 0$, and one that is worse a
    negative value. Infinite where an error never happened and the rest of the formula is positive.

    Args:
        rates: the shares of errors among others and among members, in [0, 1].
        delta: $\delta \in [0, 1)$.
    Returns:
        $\hat\epsilon$; $-\infty$ where neither logarithm exists.
    Raises:
        InputError: an argument is outside its range.
    Reference: Liang, Zhang, He, Wu, Xing 2025, arXiv:2502.17772, equation (24); the formula is that of Kairouz, Oh, Viswanath 2015,
        arXiv:1311.0776, where FPR and FNR are those of a test and not estimates.
    """
    out, inside = (require_probability(name, rate) for name, rate in zip(("false_positive", "false_negative"), rates, strict=True))
    return signed_rates_epsilon(Rates(out, inside), delta)


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
    Raises:
        InputError: an argument is outside its range, another threat, or all candidates of a model were included, or none.
    """
    if setting.threat != "average_case":
        raise InputError(
            f"threat: got {setting.threat!r}; candidates that are natural records need 'average_case'.", source="the argument setting"
        )
    if not len(probabilities) == len(included) or not len(included):
        raise InputError(f"included: got those of {len(included)} models; it needs those of {len(probabilities)}, at least one.")
    scores = [_probabilities(values) for values in probabilities]
    coins = [require_flags("included", flags, values.size) for flags, values in zip(included, scores, strict=True)]
    for flags in coins:
        if flags.all() or not flags.any():
            raise InputError(f"included: got {int(flags.sum())} of {flags.size}; an attack needs members and others.")
    worlds = [(values[~flags], values[flags]) for values, flags in zip(scores, coins, strict=True)]
    return MembershipInference(
        printed=tuple(printed_epsilon(Tally.at(MEMBER, *world).observed_rates(), setting.delta) for world in worlds),
        estimates=tuple(point_estimate(*world, setting, unit="guess", threshold=MEMBER) for world in worlds),
        bound=one_run(np.concatenate(scores), np.concatenate(coins), setting, guesses=guesses, seeds=seeds),
    )


def _probabilities(values: ArrayLike) -> np.ndarray:
    array = require_array("probabilities", values, dimensions=1)
    if array.min() < 0.0 or array.max() > 1.0:
        raise InputError(f"probabilities: got {array.min():g} to {array.max():g}; it needs numbers in [0, 1].")
    return array
