"""The trainers of the self-test, correct and faulty, each with its claim and its game."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from torch import nn

from lethe.accounting.certify import certify
from lethe.audit.claim import Claim
from lethe.audit.config import CanaryKind, TwoWorldGame
from lethe.audit.games.canaries import Data
from lethe.audit.games.scores import TwoWorldScores
from lethe.audit.games.trials import RecordTrial
from lethe.audit.games.two_worlds import SingleTrials, play
from lethe.audit.games.verdict import audit_worlds
from lethe.audit.page import AuditPage
from lethe.audit.statistics.setting import AuditSetting, Threat
from lethe.audit.trainers.engine_loop import fit_by_engine
from lethe.audit.trainers.faults import OwnDivisor, SameSeed, Shortness, Untrained, less_noise, no_clipping, noise_once_a_pass
from lethe.audit.trainers.linear import LinearTraining
from lethe.audit.trainers.networks import IGNORED, NetworkTraining
from lethe.audit.trainers.training import OnlyScore, RunTraining, claim_of
from lethe.run.batches import Cyclic, Full
from lethe.run.losses import LeastSquares
from lethe.run.run import Run
from lethe.run.schedules import Explicit

DELTA = 1e-5
# Twenty-one audits at this level are all right with probability 0.98, and most of it is not used up by the rules.
LEVEL = 1e-3
Expected = Literal["caught", "quiet"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Game:
    """A trainer in two worlds, and the claim that it is audited against.

    Args:
        trial: one training.
        claim: what is stated.
        threat: what the score looks at.
        subject, canary: in words.
    """

    trial: RecordTrial
    claim: Claim
    threat: Threat
    subject: str
    canary: str

    def page(self, scores: TwoWorldScores) -> AuditPage:
        """What the scores of many such trainings say of the claim."""
        setting = AuditSetting(delta=self.claim.delta, neighbours=self.claim.neighbours, threat=self.threat, level=LEVEL)
        return audit_worlds(AuditPage(subject=self.subject, canary=self.canary, claim=self.claim), scores, setting)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One line of the self-test.

    Args:
        name: of the line.
        trainer: what trains.
        broken: what is wrong with it; None: nothing.
        game: makes the game.
        runs: how many trainings in each world are enough.
    """

    name: str
    trainer: str
    broken: str | None
    game: Callable[[], Game]
    runs: int

    @property
    def expected(self) -> Expected:
        """The result that the audit must give."""
        return "quiet" if self.broken is None else "caught"

    def played(self, *, runs: int | None, seed: int, workers: int | None) -> tuple[AuditPage, float]:
        """The page, and the seconds it took.

        Args:
            runs: trainings in each world; None: as many as are enough.
            seed: of all of them.
            workers: see `TwoWorldGame`.
        """
        start, game = time.perf_counter(), self.game()
        told = TwoWorldGame(runs=self.runs if runs is None else runs, workers=workers)
        return game.page(play(SingleTrials(game.trial), told, seed=seed)), time.perf_counter() - start


# Trainings a world: perfect guesses prove 3.7 and 2.7 of them at this level, and about 1 is stated.
_LINEAR, _NETWORK = 400, 150
_FAULTS: tuple[tuple[str, Callable[[Run], Run]], ...] = (
    ("noise divided by ten", less_noise),
    ("clipping off", no_clipping),
    ("noise once a pass", noise_once_a_pass),
)


def cases() -> tuple[Case, ...]:
    """All lines: for each trainer a sound one and five broken ones, and three that learn nothing."""
    lines = [
        Case(name="untrained model", trainer="none", broken=None, game=_untrained, runs=_NETWORK),
        Case(name="fit of a Linear, noise without end", trainer="fit of a Linear", broken=None, game=_drowned, runs=_LINEAR),
        Case(name="fit, noise without end", trainer="fit", broken=None, game=_network_drowned, runs=_NETWORK),
    ]
    for trainer, game, alone, runs in (
        ("fit of a Linear", _linear, _linear_divisor, _LINEAR),
        ("fit", _network, _network_divisor, _NETWORK),
        ("PrivacyEngine", partial(_network, fit=fit_by_engine), partial(_network_divisor, fit=fit_by_engine), _NETWORK),
    ):
        lines.append(Case(name=f"{trainer}, as it is", trainer=trainer, broken=None, game=game, runs=runs))
        for fault, change in _FAULTS:
            lines.append(Case(name=f"{trainer}, {fault}", trainer=trainer, broken=fault, game=partial(game, change), runs=runs))
        repeated = partial(_repeated, game)
        lines.append(Case(name=f"{trainer}, one seed", trainer=trainer, broken="one seed for all trainings", game=repeated, runs=runs))
        lines.append(Case(name=f"{trainer}, own divisor", trainer=trainer, broken="divisor from the private n", game=alone, runs=runs))
    return tuple(lines)


def _same(run: Run) -> Run:
    return run


def _linear_data() -> Data:
    drawn = np.random.default_rng(8)
    return drawn.normal(size=(12, 6)), drawn.normal(size=12)


def _linear_run(noise_multiplier: float = 6.0) -> Run:
    # A pass ends with a step so short that its noise hides nothing of the others; the canary is in the first batch.
    return Run(
        records=12,
        batches=Cyclic(size=4),
        passes=2,
        step_size=Explicit(listed=(1.0, 1.0, 0.02) * 2),
        clip_norm=0.1,
        noise_multiplier=noise_multiplier,
        loss=LeastSquares(feature_norm=1.0, residual_bound=1.0, evidence="enforced"),
        release="last",
    )


def _linear(change: Callable[[Run], Run] = _same, stated: Run | None = None) -> Game:
    run = _linear_run() if stated is None else stated
    subject = LinearTraining(run=change(run))
    return _of(subject, run, _linear_data(), "random_direction", "final_model")


def _drowned() -> Game:
    return _linear(stated=_linear_run(noise_multiplier=1e7))


def _network_run(noise_multiplier: float = 8.0) -> Run:
    return Run(
        records=12,
        batches=Cyclic(size=4),
        passes=2,
        step_size=0.5,
        clip_norm=0.1,
        noise_multiplier=noise_multiplier,
        release="all",
    )


def _network(change: Callable[[Run], Run] = _same, fit: Callable[..., Any] | None = None, stated: Run | None = None) -> Game:
    run = _network_run() if stated is None else stated
    return _of(_network_training(change(run), fit), run, _network_data(12), "mislabelled", "white_box")


def _network_drowned() -> Game:
    return _network(stated=_network_run(noise_multiplier=1e7))


def _network_data(records: int) -> Data:
    drawn = np.random.default_rng(9)
    return drawn.normal(size=(records, 6)).astype(np.float32) * 3, drawn.integers(0, 2, records)


def _network_training(run: Run, fit: Callable[..., Any] | None) -> NetworkTraining:
    training = NetworkTraining(run=run, build=small_network)
    return training if fit is None else replace(training, fit=fit)


def small_network() -> nn.Module:
    """Six inputs, five hidden units, two classes."""
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def _of(subject: RunTraining, stated: Run, data: Data, kind: CanaryKind, threat: Threat) -> Game:
    """The canary is the first record."""
    (canary,) = subject.canaries(kind, data, [0], seed=0)
    return Game(
        trial=subject.trial(threat, data, canary, 0),
        claim=claim_of(certify(stated, DELTA)),
        threat=threat,
        subject=f"{type(subject).__name__} of run {stated.run_id}",
        canary=canary.words,
    )


def _repeated(game: Callable[[], Game]) -> Game:
    sound = game()
    return replace(sound, trial=replace(sound.trial, train=SameSeed(sound.trial.train)))


def _untrained() -> Game:
    sound = _network()
    training = _network_training(_linear_run().replace(loss={"kind": "unknown"}, release="all"), None)
    (canary,) = training.canaries("mislabelled", _network_data(12), [0], seed=0)
    _, scores = training.game("black_box", [canary])
    claim = Claim(epsilon=0.0, delta=DELTA, neighbours="replace_one", release="last", source="never seeing the data")
    trial = replace(sound.trial, train=Untrained(training), score=OnlyScore(scores))
    return replace(sound, trial=trial, claim=claim, threat="black_box", subject="drawn weights")


def _divisor(subject: LinearTraining | NetworkTraining, without: Data, including: Data) -> Game:
    return Game(
        trial=RecordTrial(train=OwnDivisor(subject), without=without, including=including, score=Shortness()),
        claim=claim_of(certify(subject.run, DELTA)),
        threat="final_model",
        subject=f"{subject.name}, add or remove one",
        canary="a record without gradient, which is there or is not",
    )


def _linear_divisor() -> Game:
    run = _linear_run().replace(records=3, batches=Full(), steps=3, step_size=1.0, neighbours="add_or_remove")
    features = np.random.default_rng(8).normal(size=(3, 60))
    features[-1] = 0.0
    targets = np.zeros(3)
    return _divisor(LinearTraining(run=run), (features[:2], targets[:2]), (features, targets))


def _network_divisor(fit: Callable[..., Any] | None = None) -> Game:
    run = Run(
        records=3,
        batches=Full(),
        steps=3,
        step_size=0.5,
        clip_norm=0.1,
        noise_multiplier=8.0,
        release="all",
        neighbours="add_or_remove",
    )
    features, labels = _network_data(3)
    labels[-1] = IGNORED
    return _divisor(_network_training(run, fit), (features[:2], labels[:2]), (features, labels))
