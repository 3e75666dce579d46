"""audit: play a game with a trainer and compare the result with its claim.

Called by users and by `lethe audit` with a trainer (what is audited), data and an `AuditConfig`; it makes the canaries, plays the game, and
hands the scores to verdict.py.
"""

from functools import partial
from typing import Any

import numpy as np

from lethe.audit.config import AuditConfig, OneRunGame, TwoWorldGame
from lethe.audit.games.canaries import CanaryRun, require_data
from lethe.audit.games.trainings import OneRunScores, TwoWorldScores
from lethe.audit.games.two_worlds import play
from lethe.audit.games.verdict import audit_canaries, audit_worlds
from lethe.audit.page import AuditPage, Claim
from lethe.audit.statistics.counts import require_instance
from lethe.audit.statistics.curves import AuditSetting
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.training import AuditedTraining, Canary
from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.run.run import Run


def audit(
    subject: Run | AuditedTraining,
    data: Any,
    config: AuditConfig,
    *,
    claim: Claim | None = None,
    custom_canary: Canary | None = None,
    progress: bool = False,
) -> AuditPage:
    r"""Train many times without and with a canary, or once with many, and bound $\epsilon$ from below.

    A run, or a trainer of Lethe's, is certified and held against its certificate; a function against `claim`, if there is one.

    Args:
        subject: a run of a linear model (trained by `fit`); a `LinearTraining` or a `NetworkTraining`; or a `FunctionTraining`, of
            any (data, seed) -> model. With several workers it must be picklable.
        data: arrays with one entry a record, the target last, such as (features, targets). Canaries take the places of some of them.
        config: what is looked for, by which game, and what the bound is stated for.
        claim: what to hold the audit against, which must be about it; None: the certificate of a run, nothing of a function.
        custom_canary: the record itself, and what is there instead, in place of `config.canary`; for `TwoWorldGame`.
        progress: a bar on standard error, if that is a terminal.
    Returns:
        A page; `page.verdict` says whether the claim is refuted. A score file goes with the rule, delta and level that it was begun with:
        those are declared before the scores are there.
    Raises:
        HypothesisError: the run cannot be certified.
    """
    columns, training = require_data(data), LinearTraining(run=subject) if isinstance(subject, Run) else subject
    require_instance("subject", training, AuditedTraining, "give a Run, a LinearTraining, a NetworkTraining or a FunctionTraining")
    require_instance("config", config, AuditConfig)
    if custom_canary is not None:
        require_instance("custom_canary", custom_canary, Canary)
    stated, positions = training.claim(config) if claim is None else claim, _canary_positions(training, len(columns[0]), config.game)
    planted = training.canaries(config.canary, columns, positions, seed=config.seed) if custom_canary is None else [custom_canary]
    if len(planted) != len(positions):
        raise InputError(f"canary: got one record; one_run needs {len(positions)}.", remedy="name a kind of canary.")
    words = planted[0].words if isinstance(config.game, TwoWorldGame) else f"{len(planted)} canaries, such as {planted[0].words}"
    page = AuditPage(subject=training.name, canary=words, claim=stated)
    setting = AuditSetting(delta=config.delta, neighbours=training.neighbours, threat=config.threat, level=config.level)
    seed = config.seed
    if isinstance(config.game, OneRunGame):
        train, score = training.game(config.threat, planted)
        run = CanaryRun(
            data=columns, positions=positions, inside=[each.inside for each in planted], outside=[each.outside for each in planted]
        )
        guess = partial(audit_canaries, page, setting=setting, guesses=config.game.guesses, conditional=config.conditional)
        _rehearsed(guess(OneRunScores(scores=np.arange(float(len(planted))), included=run.coins(seed), seed=seed)))
        return guess(run.play(train, score, seed=seed))
    judge = partial(
        audit_worlds, page, setting=setting, rule=config.game.rule, conditional=config.conditional, continuous=training.continuous
    )
    made_up = np.arange(float(config.game.runs))
    rule = _rehearsed(judge(TwoWorldScores(out_scores=made_up, in_scores=made_up, seed=seed))).audits[0].rule
    trial = training.trial(config.threat, columns, planted[0], positions[0])
    declared = f"{rule}, delta {config.delta!r}, level {config.level!r}"
    return judge(play(trial, config.game, seed=seed, declared=declared, progress=progress))


def _canary_positions(training: AuditedTraining, records: int, game: TwoWorldGame | OneRunGame) -> list[int]:
    if isinstance(game, OneRunGame):
        return training.canary_positions(require_count("canaries", game.canaries, low=4, high=records), records)
    return (
        training.canary_positions(1, records)
        if game.position is None
        else [require_count("position", game.position, low=0, high=records - 1)]
    )


def _rehearsed(page: AuditPage) -> AuditPage:
    """The page of made-up scores: what is wrong with an argument is said before anything is trained."""
    if page.verdict == "not_comparable":
        raise InputError(
            "claim: it says nothing of this audit: it is about another relation, a larger delta, or those who see the last iterate only.",
            source="the argument claim",
            remedy="audit what is claimed, or leave the claim out.",
        )
    return page
