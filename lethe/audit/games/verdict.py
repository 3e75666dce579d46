"""Turning the scores of a game into an audit page: the certified bound, and the conditional one or the reason why there is none.

`audit` calls it with the scores of the game it played; conditional bounds assume a Gaussian trade-off curve, certified ones nothing.
"""

from collections.abc import Sequence

from lethe.audit.games.trainings import OneRunScores, TwoWorldScores
from lethe.audit.page import AuditPage
from lethe.audit.statistics.curves import AuditSetting, GaussianCurve
from lethe.audit.statistics.lower_bounds import two_world
from lethe.audit.statistics.one_run import one_run
from lethe.audit.statistics.rules import Ranks, ThresholdRule
from lethe.calculus.domains import require_count

_RANKS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_GUESSES = (0.05, 0.1, 0.2, 0.4)


def usual_ranks(runs: int) -> Ranks:
    """The ranks 2, 5, 10, 20, 50, 100, 200 and 400 of 1000 OUT runs, and the like of another number of them."""
    count = require_count("runs", runs, low=2, high=10_000_000)
    return Ranks(ranks=tuple(dict.fromkeys(max(1, round(share * count)) for share in _RANKS)))


def usual_guesses(canaries: int) -> list[tuple[int, int]]:
    """Guesses for a number of canaries: of 1000 the top 50, 100, 200 and 400 as IN, and as many as OUT; else in proportion."""
    count = require_count("canaries", canaries, low=4, high=10_000_000)
    return [(guesses, guesses) for guesses in dict.fromkeys(max(1, round(share * count)) for share in _GUESSES)]


def audit_worlds(
    page: AuditPage,
    scores: TwoWorldScores,
    setting: AuditSetting,
    *,
    rule: ThresholdRule | None = None,
    conditional: bool = False,
    continuous: bool = True,
) -> AuditPage:
    """A page (subject, canary and claim) with the audits of a game of two worlds, by a rule declared before; None: `usual_ranks`.

    If the noise is `continuous`, equal scores mean that noise was used again, and the page is void.
    """
    if continuous and scores.repeats:
        why = "no more than half of the scores of a world are distinct: trainings drew the same noise, or none"
        return page.model_copy(update={"refused": why})
    declared = usual_ranks(scores.out_scores.size) if rule is None else rule
    worlds, seeds = (scores.out_scores, scores.in_scores), (scores.seed,)
    audits = tuple(two_world(*worlds, each, rule=declared, seeds=seeds) for each in _settings(setting, conditional))
    return page.model_copy(update={"audits": audits})


def audit_canaries(
    page: AuditPage,
    scores: OneRunScores,
    setting: AuditSetting,
    *,
    guesses: Sequence[tuple[int, int]] | None = None,
    conditional: bool = False,
) -> AuditPage:
    """A page (subject, canaries and claim) with the audits of one run, by guesses declared before it; None: `usual_guesses`."""
    pairs = usual_guesses(scores.scores.size) if guesses is None else guesses
    game, seeds = (scores.scores, scores.included), (scores.seed,)
    audits = tuple(one_run(*game, each, guesses=pairs, seeds=seeds) for each in _settings(setting, conditional))
    return page.model_copy(update={"audits": audits})


def _settings(setting: AuditSetting, conditional: bool) -> tuple[AuditSetting, ...]:
    """The setting without an assumed curve, and one with a Gaussian curve where `conditional` bounds are wanted."""
    # A Gaussian has no finite epsilon at delta 0.
    return (setting, setting.model_copy(update={"curve": GaussianCurve()})) if conditional and setting.delta > 0.0 else (setting,)
