"""From the scores of a game to an audit page: the certified bound, the conditional one, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lethe.audit.claim import Claim
from lethe.audit.games.two_worlds import Played
from lethe.audit.page import AuditPage
from lethe.audit.statistics.curves import GaussianCurve
from lethe.audit.statistics.games import one_run, two_world
from lethe.audit.statistics.result import Neighbours, Threat
from lethe.audit.statistics.rules import Ranks, Rule
from lethe.calculus.domains import require_count, require_delta
from lethe.errors import InputError

_RANKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_GUESSES = (0.05, 0.1, 0.2, 0.4)


def usual_ranks(runs: int) -> Ranks:
    """The ranks 2, 5, 10, 20, 50, 100, 200 and 400 of 1000 OUT runs, and the like of another number of them."""
    count = require_count("runs", runs, low=2, high=10_000_000)
    return Ranks(ranks=tuple(dict.fromkeys(max(1, round(share * count)) for share in _RANKS)))


def usual_guesses(canaries: int) -> list[tuple[int, int]]:
    """Of 1000 canaries the top 50, 100, 200 and 400 as IN, and as many as OUT; the like of another number."""
    count = require_count("canaries", canaries, low=4, high=10_000_000)
    return [(most, most) for most in dict.fromkeys(max(1, round(share * count)) for share in _GUESSES)]


def judge_worlds(
    played: Played,
    *,
    subject: str,
    canary: str,
    claim: Claim | None,
    delta: float,
    neighbours: Neighbours,
    threat: Threat,
    rule: Rule | None = None,
    level: float = 0.05,
    conditional: bool = False,
    continuous: bool = True,
) -> AuditPage:
    """The page of a game of two worlds.

    Args:
        played: the scores.
        subject, canary: in words.
        claim: what the audit is to be held against; None: nothing.
        delta, neighbours, threat, level: as for `two_world`.
        rule: declared before the scores were seen; None: `usual_ranks`.
        conditional: also give the bound that holds if the trade-off curve is Gaussian.
        continuous: the mechanism's noise is, so that equal scores mean that noise was used again, and the page is void.
    Raises:
        InputError: an argument is outside its range.
    """
    if continuous and played.repeats:
        return AuditPage(
            subject=subject,
            canary=canary,
            claim=claim,
            refused="no more than half of the scores of a world are distinct: trainings drew the same noise, or none",
        )
    curves = _curves(conditional, delta)
    audits = tuple(
        two_world(
            played.out_scores,
            played.in_scores,
            rule=usual_ranks(played.out_scores.size) if rule is None else rule,
            delta=delta,
            neighbours=neighbours,
            threat=threat,
            level=level,
            curve=curve,
            seeds=(played.seed,),
        )
        for curve in curves
    )
    return AuditPage(subject=subject, canary=canary, claim=claim, audits=audits)


def judge_canaries(
    scores: ArrayLike,
    coins: ArrayLike,
    *,
    seed: int,
    subject: str,
    canary: str,
    claim: Claim | None,
    delta: float,
    neighbours: Neighbours,
    threat: Threat,
    guesses: Sequence[tuple[int, int]] | None = None,
    level: float = 0.05,
    conditional: bool = False,
) -> AuditPage:
    """The page of one run with many canaries. Args: as `judge_worlds`; guesses, None: `usual_guesses`.

    Raises:
        InputError: an argument is outside its range.
    """
    values = np.asarray(scores)
    curves = _curves(conditional, delta)
    audits = tuple(
        one_run(
            values,
            coins,
            guesses=usual_guesses(values.size) if guesses is None else guesses,
            delta=delta,
            neighbours=neighbours,
            threat=threat,
            level=level,
            curve=curve,
            seeds=(seed,),
        )
        for curve in curves
    )
    return AuditPage(subject=subject, canary=canary, claim=claim, audits=audits)


def _curves(conditional: bool, delta: float) -> tuple[GaussianCurve | None, ...]:
    # A Gaussian has no finite epsilon at delta 0.
    return (None, GaussianCurve()) if require_delta(delta) > 0.0 and conditional else (None,)


def refuse_game(name: object, known: Sequence[str], what: str) -> None:
    """Refuse a word that is not one of those known.

    Raises:
        InputError: it is not.
    """
    if name not in known:
        raise InputError(f"{what}: got {name!r}; it needs one of {', '.join(known)}.", source=f"the argument {what}")
