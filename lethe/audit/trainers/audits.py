"""audit: play a game with a trainer and compare the result with its claim."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from lethe.accounting.certify import certify
from lethe.audit.claim import Claim
from lethe.audit.games import CanaryRun, Data, OneByOne, Played, RecordTrial, Train, judge_canaries, judge_worlds, play, replaced
from lethe.audit.games.canaries import Record, require_data
from lethe.audit.games.two_worlds import MOST_RUNS
from lethe.audit.games.verdict import refuse_game
from lethe.audit.page import AuditPage
from lethe.audit.statistics.result import Neighbours, Threat
from lethe.audit.statistics.rules import Rule
from lethe.audit.trainers.claims import claim_of
from lethe.audit.trainers.functions import RecordScores, plain_canaries
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.subject import CANARIES, Canary, CanaryKind, OnlyScore, Scores, Subject, last_used
from lethe.calculus.domains import require_count
from lethe.errors import InputError
from lethe.run.run import Run

Game = Literal["two_world", "one_run"]


def audit(
    subject: Run | Subject | Train,
    data: Any,
    *,
    delta: float,
    game: Game = "two_world",
    threat: Threat = "final_model",
    canary: CanaryKind | Canary = "auto",
    score: Callable[[Any, Record], float] | None = None,
    claim: Claim | None = None,
    allow_large_delta: bool = False,
    neighbours: Neighbours | None = None,
    classes: int | None = None,
    position: int | None = None,
    runs: int = 1000,
    canaries: int = 1000,
    guesses: Sequence[tuple[int, int]] | None = None,
    rule: Rule | None = None,
    level: float = 0.05,
    conditional: bool = True,
    seed: int = 0,
    workers: int | None = None,
    score_file: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> AuditPage:
    r"""Train many times without and with a canary, or once with many, and bound $\epsilon$ from below.

    A run, or a trainer of Lethe's, is certified and held against its certificate; another callable against `claim`, if there is one.

    Args:
        subject: a run of a linear model (trained by `fit_linear`); a `LinearTraining` or a `NetworkTraining`; or any (data, seed) -> model,
            whose batches and noise follow from the seed alone. With several workers it must be picklable.
        data: arrays with one entry a record, the target last, such as (features, targets). Canaries take the places of some of them.
        delta: $\delta$.
        game: "two_world": `runs` trainings in each of two worlds. "one_run": one training, `canaries` coins.
        threat: what the adversary sees. Of a callable it says what `score` looks at.
        canary: a kind; or the record itself, and what is there instead, for "two_world".
        score: of a callable only: (model, record) -> a number, higher if the record seems to have been there.
        claim: what to hold the audit against, which must be about it; None: the certificate of a run, nothing of a callable.
        allow_large_delta: of a run only: whether a delta >= 1/records is meant.
        neighbours: of a callable only: "replace_one" (the canary or the record of `data` in its place).
        classes: their public number, for labels.
        position: of the canary in "two_world"; None: the last record that the run uses.
        runs, canaries, guesses, rule, level: see `two_world` and `one_run`; None: `usual_ranks`, `usual_guesses`.
        conditional: also give the bound that holds if the trade-off curve is Gaussian.
        seed: of everything. Whoever audits with it knows the noise: none of these models may be released.
        workers, score_file, progress: see `play`; a single run keeps no scores. The score file goes with the rule, delta and level that it
            was begun with: those are declared before the scores are there.
    Returns:
        A page; `page.verdict` says whether the claim is refuted.
    Raises:
        InputError: an argument that cannot be used, or data that do not fit the run.
        HypothesisError: the run cannot be certified.
    """
    refuse_game(game, ("two_world", "one_run"), "game")
    if not isinstance(canary, Canary):
        refuse_game(canary, CANARIES, "canary")
    columns, trainer = require_data(data), LinearTraining(run=subject, classes=classes) if isinstance(subject, Run) else subject
    if not callable(trainer):
        raise InputError(f"subject: got {type(subject).__name__}; it needs a Run, a trainer, or a function of data and seed.")
    count = 1 if game == "two_world" else require_count("canaries", canaries, low=4, high=len(columns[0]))
    place = None if position is None or count > 1 else [require_count("position", position, low=0, high=len(columns[0]) - 1)]
    if isinstance(trainer, Subject):
        if score is not None or neighbours not in (None, trainer.run.neighbours):
            raise InputError("score, neighbours: given with a run, which has its own.", remedy="leave them out.")
        relation, words = trainer.run.neighbours, f"{type(trainer).__name__} of run {trainer.run.run_id}"
        claim = claim_of(certify(trainer.run, delta, allow_large_delta=allow_large_delta)) if claim is None else claim
        places = last_used(trainer.run, count) if place is None else place
        found = [canary] if not isinstance(canary, str) else trainer.canaries(canary, columns, places, seed=seed)
        train, scores = trainer.game(threat, found)
    else:
        if not callable(score) or neighbours != "replace_one":
            raise InputError(
                "score, neighbours: a callable needs a score and neighbours='replace_one'.",
                remedy="for other relations build the two data sets and use lethe.audit.games.RecordTrial.",
            )
        relation, words = neighbours, getattr(trainer, "__name__", type(trainer).__name__)
        places = list(range(len(columns[0]) - count, len(columns[0]))) if place is None else place
        found = [canary] if not isinstance(canary, str) else plain_canaries(canary, columns, places, classes=classes)
        train, scores = trainer, RecordScores(score=score, canaries=tuple(found))
    if len(found) != count:
        raise InputError(f"canary: got one record; one_run needs {count}.", remedy="name a kind of canary.")
    about: dict[str, Any] = {"subject": words, "canary": found[0].words if count == 1 else f"{count} canaries, such as {found[0].words}"}
    about |= {"claim": claim, "delta": delta, "neighbours": relation, "threat": threat, "level": level, "conditional": conditional}
    if game == "one_run":
        drawn = CanaryRun(data=columns, positions=places, inside=[each.inside for each in found], outside=[each.outside for each in found])
        rate = partial(judge_canaries, seed=seed, guesses=guesses, **about)
        _rehearsed(rate(np.arange(count), drawn.coins(seed)))
        return rate(*drawn.play(train, scores, seed=seed))
    judge = partial(judge_worlds, rule=rule, continuous=isinstance(trainer, Subject), **about)
    made_up = np.arange(float(require_count("runs", runs, low=2, high=MOST_RUNS)))
    first = _rehearsed(judge(Played(out_scores=made_up, in_scores=made_up, seed=seed))).audits[0]
    trial = OneByOne(_trial(train, scores, columns, places[0], found[0]))
    declared = f"{first.rule}, delta {delta!r}, level {level!r}"
    return judge(play(trial, runs=runs, seed=seed, workers=workers, score_file=score_file, declared=declared, progress=progress))


def _rehearsed(page: AuditPage) -> AuditPage:
    """The page of made-up scores: what is wrong with an argument is said before anything is trained."""
    if page.verdict == "not_comparable":
        raise InputError(
            "claim: it says nothing of this audit: it is about another relation, a larger delta, or those who see the last iterate only.",
            source="the argument claim",
            remedy="audit what is claimed, or leave the claim out.",
        )
    return page


def _trial(train: Train, scores: Scores, data: Data, position: int, canary: Canary) -> RecordTrial:
    return RecordTrial(
        train=train,
        without=replaced(data, {position: canary.outside}),
        including=replaced(data, {position: canary.inside}),
        score=OnlyScore(scores),
    )
