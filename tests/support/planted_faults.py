"""Trainers that an audit must tell apart: sound ones, and ones that claim a run and carry out another, each with its claim and its game.

And trainings of networks without the checks of their first batches: the same numbers bit for bit, in half of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import lethe
from lethe.audit import AuditSetting, Claim, TwoWorldGame
from lethe.audit.games.canaries import Data, RecordTrial
from lethe.audit.games.trainings import TwoWorldScores
from lethe.audit.games.two_worlds import play
from lethe.audit.games.verdict import audit_worlds
from lethe.audit.page import AuditPage
from lethe.audit.trainers import LinearTraining, NetworkTraining
from lethe.audit.trainers.networks import IGNORED, Watched
from lethe.audit.trainers.training import claim_of, only_score
from lethe.train import PrivacyEngine, TrainOptions

DELTA = 1e-5
# Twenty-one audits at this level are all right with probability 0.98, and most of it is not used up by the rules.
LEVEL = 1e-3
# Trainings a world: perfect guesses prove 3.7 and 2.7 of them at this level, and about 1 is stated.
LINEAR_RUNS, NETWORK_RUNS = 400, 150


@dataclass(frozen=True, kw_only=True, eq=False)
class Game:
    """A trainer in two worlds, the claim that it is audited against, and what the score looks at."""

    trial: RecordTrial
    claim: Claim
    threat: Any

    def page(self, scores: TwoWorldScores, referee: Callable[..., AuditPage] = audit_worlds) -> AuditPage:
        """What the scores of many such trainings say of the claim."""
        setting = AuditSetting(delta=self.claim.delta, neighbours=self.claim.neighbours, threat=self.threat, level=LEVEL)
        return referee(AuditPage(subject="a trainer", canary="a record", claim=self.claim), scores, setting)

    def unverified(self) -> Game:
        """The same, trained without checks."""
        return replace(self, trial=replace(self.trial, train=unverified(self.trial.train)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A trainer, whether it is broken, and how many trainings in each world are enough to know."""

    trainer: str
    broken: bool
    game: Callable[[], Game]
    runs: int

    def played(self, *, seed: int, runs: int | None = None) -> AuditPage:
        """What the audit says."""
        game = self.game()
        return game.page(play(game.trial, TwoWorldGame(runs=runs or self.runs), seed=seed))


def unverified(train: Any) -> Any:
    """The same training, of a network or of anything else."""
    if isinstance(train, NetworkTraining):
        return replace(train, fit=partial(_unverified_fit, train.fit))
    if isinstance(train, OwnDivisor | SameSeed):
        return replace(train, training=unverified(train.training))
    return train


def _unverified_fit(fit: Any, *arguments: Any, options: Any, **others: Any) -> Any:
    return fit(*arguments, **others, options=replace(options, isolation="declared"))


def fit_by_engine(model: nn.Module, loss: Any, data: Any, run: lethe.Run, *, optimizer: Any = None, options: TrainOptions) -> lethe.Run:
    """A loop of one's own around `PrivacyEngine`, with the arguments of `fit`; without an optimizer the step size must be one number."""
    descent = torch.optim.SGD(model.parameters(), lr=float(run.step_sizes[0])) if optimizer is None else optimizer
    engine = PrivacyEngine(model, descent, lambda batch: loss(model(*batch[:-1]), batch[-1]), data, run, options=options)
    try:
        for batch in engine.batches():
            engine.backward(batch)
            descent.step()
            descent.zero_grad()
        return engine.recorded_run()
    finally:
        engine.close()


def less_noise(run: lethe.Run) -> lethe.Run:
    """A tenth of the noise."""
    return run.with_noise_scaled(0.1)


def no_clipping(run: lethe.Run) -> lethe.Run:
    """The same noise, and gradients as long as they are (of a network, up to a thousand times the norm that was stated)."""
    bound = run.loss.known_gradient_bound
    longer = 1000.0 * run.clip_bound if bound is None else bound
    return run.replace(clip_norm=longer if bound is None else None).with_noise_scaled(run.clip_bound / longer)


def noise_once_a_pass(run: lethe.Run) -> lethe.Run:
    """Noise at the last step of each pass only."""
    return run.replace(noise_at="pass_ends")


@dataclass(frozen=True, eq=False)
class SameSeed:
    """The same batches and the same noise in every training."""

    training: Any

    def __call__(self, data: Data, seed: int) -> Any:
        return self.training(data, 0)


@dataclass(frozen=True, eq=False)
class OwnDivisor:
    """Full batches whose sum is divided by however many records there are."""

    training: Any

    def __call__(self, data: Data, seed: int) -> Any:
        return replace(self.training, run=self.training.run.replace(records=len(data[0])))(data, seed)


@dataclass(frozen=True, eq=False)
class Untrained:
    """A model with drawn weights, that never sees the data."""

    training: NetworkTraining

    def __call__(self, data: Data, seed: int) -> Watched:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self.training.build()
        return Watched(model=model, displacement=np.zeros(0), shares=np.zeros((0, 0)))


def shortness(model: Any) -> float:
    """How short the displacement is, from 0 if the model is linear: noise divided by more records is less."""
    return -float(np.square(model.displacement if isinstance(model, Watched) else model.model.weights).sum())


def linear_run(noise_multiplier: float = 6.0) -> lethe.Run:
    """A pass ends with a step so short that its noise hides nothing of the others; the canary is in the first batch."""
    return lethe.Run(
        records=12,
        batches=lethe.batches.Cyclic(4),
        passes=2,
        step_size=[1.0, 1.0, 0.02] * 2,
        clip_norm=0.1,
        noise_multiplier=noise_multiplier,
        loss=lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=1.0, evidence="enforced"),
        release="last",
        neighbours="replace_one",
    )


def network_run(noise_multiplier: float = 8.0) -> lethe.Run:
    """As long, with every step released."""
    return lethe.Run(
        records=12,
        batches=lethe.batches.Cyclic(4),
        passes=2,
        step_size=0.5,
        clip_norm=0.1,
        noise_multiplier=noise_multiplier,
        release="all",
        neighbours="replace_one",
    )


def small_network() -> nn.Module:
    """Six inputs, five hidden units, two classes."""
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def _linear_game(change: Callable[[lethe.Run], lethe.Run] = lambda run: run, stated: lethe.Run | None = None) -> Game:
    run, drawn = stated or linear_run(), np.random.default_rng(8)
    data = drawn.normal(size=(12, 6)), drawn.normal(size=12)
    return _game(LinearTraining(run=change(run)), run, data, "random_direction", "final_model")


def _network_data(records: int) -> Data:
    drawn = np.random.default_rng(9)
    return drawn.normal(size=(records, 6)).astype(np.float32) * 3, drawn.integers(0, 2, records)


def _network(run: lethe.Run, fit: Callable[..., Any] | None) -> NetworkTraining:
    training = NetworkTraining(run=run, build=small_network)
    return training if fit is None else replace(training, fit=fit)


def _network_game(
    change: Callable[[lethe.Run], lethe.Run] = lambda run: run, fit: Callable[..., Any] | None = None, stated: lethe.Run | None = None
) -> Game:
    run = stated or network_run()
    return _game(_network(change(run), fit), run, _network_data(12), "mislabelled", "white_box")


def _game(subject: Any, stated: lethe.Run, data: Data, kind: Any, threat: Any) -> Game:
    (canary,) = subject.canaries(kind, data, [0], seed=0)
    return Game(trial=subject.trial(threat, data, canary, 0), claim=claim_of(lethe.certify(stated, DELTA)), threat=threat)


def _repeated(game: Callable[[], Game]) -> Game:
    sound = game()
    return replace(sound, trial=replace(sound.trial, train=SameSeed(sound.trial.train)))


def _untrained() -> Game:
    sound, training = _network_game(), _network(linear_run().replace(loss={"kind": "unknown"}, release="all"), None)
    (canary,) = training.canaries("mislabelled", _network_data(12), [0], seed=0)
    trial = replace(sound.trial, train=Untrained(training), score=partial(only_score, training.game("black_box", [canary])[1]))
    claim = Claim(epsilon=0.0, delta=DELTA, neighbours="replace_one", release="last", source="never seeing the data")
    return Game(trial=trial, claim=claim, threat="black_box")


def _divisor(subject: Any, features: Any, targets: Any) -> Game:
    """The last record has no gradient, and is there or is not."""
    trial = RecordTrial(train=OwnDivisor(subject), without=(features[:2], targets[:2]), including=(features, targets), score=shortness)
    return Game(trial=trial, claim=claim_of(lethe.certify(subject.run, DELTA)), threat="final_model")


def _linear_divisor() -> Game:
    run = linear_run().replace(records=3, batches=lethe.batches.Full(), steps=3, step_size=1.0, neighbours="add_or_remove")
    features = np.random.default_rng(8).normal(size=(3, 60))
    features[-1] = 0.0
    return _divisor(LinearTraining(run=run), features, np.zeros(3))


def _network_divisor(fit: Callable[..., Any] | None = None) -> Game:
    run = network_run().replace(records=3, batches=lethe.batches.Full(), steps=3, passes=None, neighbours="add_or_remove")
    features, labels = _network_data(3)
    labels[-1] = IGNORED
    return _divisor(_network(run, fit), features, labels)


FAULTS = {"noise divided by ten": less_noise, "clipping off": no_clipping, "noise once a pass": noise_once_a_pass}


def cases() -> dict[str, Case]:
    """Of each trainer a sound one and five broken ones, and three that learn nothing."""
    found = {
        "untrained model": Case(trainer="none", broken=False, game=_untrained, runs=NETWORK_RUNS),
        "fit of a Linear, noise without end": Case(
            trainer="fit of a Linear", broken=False, game=partial(_linear_game, stated=linear_run(1e7)), runs=LINEAR_RUNS
        ),
        "fit, noise without end": Case(
            trainer="fit", broken=False, game=partial(_network_game, stated=network_run(1e7)), runs=NETWORK_RUNS
        ),
    }
    for trainer, game, divisor, runs in (
        ("fit of a Linear", _linear_game, _linear_divisor, LINEAR_RUNS),
        ("fit", _network_game, _network_divisor, NETWORK_RUNS),
        ("PrivacyEngine", partial(_network_game, fit=fit_by_engine), partial(_network_divisor, fit=fit_by_engine), NETWORK_RUNS),
    ):
        changed: dict[str, Callable[[], Game]] = {fault: partial(game, change) for fault, change in FAULTS.items()}
        broken = {**changed, "one seed": partial(_repeated, game), "own divisor": divisor}
        found[f"{trainer}, as it is"] = Case(trainer=trainer, broken=False, game=game, runs=runs)
        found |= {f"{trainer}, {fault}": Case(trainer=trainer, broken=True, game=each, runs=runs) for fault, each in broken.items()}
    return found
