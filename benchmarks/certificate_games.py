"""Games that put Lethe's certificates to the test: trainers and mean oracles, each with a record of the worst kind in two worlds.

Every game can also be played with a fraction of the noise that is certified, which must be found out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import lethe
from lethe.accounting.heavy_tailed import certify_solution
from lethe.audit import AuditSetting, Claim, TwoWorldGame
from lethe.audit.config import CanaryKind
from lethe.audit.games.canaries import Data
from lethe.audit.games.trainings import TwoWorldScores
from lethe.audit.games.two_worlds import Trial, play
from lethe.audit.games.verdict import audit_worlds
from lethe.audit.page import AuditPage
from lethe.audit.trainers import LinearTraining, NetworkTraining
from lethe.audit.trainers.networks import IGNORED
from lethe.audit.trainers.training import RunTraining, claim_of
from lethe.calculus.domains import FloatArray
from lethe.heavy_tailed import Problem, multi_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, MeanOracle
from lethe.heavy_tailed.shuffled_oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.solution import Solution
from lethe.run.losses import Convex

LEVEL = 0.01
_ROWS, _COLUMNS = 8, 3
_LEAST_SQUARES = lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=1.0, evidence="enforced")
_SOFTMAX = lethe.losses.Softmax(feature_norm=1.0, evidence="enforced")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Game:
    """One line of the table.

    Args:
        trial: one training.
        claim: delta -> what is certified.
        threat: what the score looks at.
        canary: the record that is looked for, in words.
        theorem: what the certificate rests on.
    """

    trial: Trial
    claim: Callable[[float], Claim]
    threat: Any
    canary: str
    theorem: str

    def pages(self, deltas: Sequence[float], *, runs: int, seed: int = 0, workers: int | None = None) -> list[AuditPage]:
        """Play it once and judge the scores at each delta."""
        scores = play(self.trial, TwoWorldGame(runs=runs, workers=workers), seed=seed)
        return [self._judged(scores, self.claim(delta)) for delta in deltas]

    def _judged(self, scores: TwoWorldScores, claim: Claim) -> AuditPage:
        setting = AuditSetting(delta=claim.delta, neighbours=claim.neighbours, threat=self.threat, level=LEVEL)
        page = AuditPage(subject=self.theorem, canary=self.canary, claim=claim)
        return audit_worlds(page, scores, setting, conditional=True)


def _trainer(subject: RunTraining, noise: float, data: Data, kind: CanaryKind, threat: Any, place: int | None = None) -> Game:
    """A run is certified, and carried out with that fraction of its noise; the canary is in the last place that is used."""
    stated = subject.run
    where = subject.canary_positions(1, stated.records)[0] if place is None else place
    (canary,) = subject.canaries(kind, data, [where], seed=0)
    trained = replace(subject, run=stated.with_noise_scaled(noise))  # pyright: ignore[reportArgumentType, reportCallIssue]
    return Game(
        trial=trained.trial(threat, data, canary, where),
        claim=lambda delta: claim_of(lethe.certify(stated, delta, allow_large_delta=True)),
        threat=threat,
        canary=canary.words,
        theorem=lethe.certify(stated, 1e-5).theorem,
    )


def _flat(noise: float, place: int | None = None, **changes: Any) -> Game:
    """Least squares on records without features: nothing but noise moves the weights, and nothing forgets the canary."""
    run = {
        "records": 20,
        "batches": {"design": "cyclic", "size": 10},
        "passes": 10,
        "step_size": 0.5,
        "noise_multiplier": 3.6,
        "release": "last",
        "neighbours": "replace_one",
    }
    return _linear(noise, (np.zeros((20, 4)), np.zeros(20)), {**run, "loss": _LEAST_SQUARES, **changes}, place=place)


def _linear(
    noise: float,
    data: Data,
    run: dict[str, Any],
    kind: CanaryKind = "random_direction",
    threat: Any = "final_model",
    place: int | None = None,
) -> Game:
    stated = lethe.Run(**run)
    subject = LinearTraining(run=stated, classes=10 if stated.loss.kind == "softmax_regression" else None)
    return _trainer(subject, noise, data, kind, threat, place)


def _digits(noise: float, kind: CanaryKind, threat: Any) -> Game:
    digits: Any = load_digits(return_X_y=True)
    pictures, labels = digits
    run = {
        "records": 300,
        "batches": {"design": "cyclic", "size": 60},
        "passes": 4,
        "step_size": 1.0,
        "noise_multiplier": 1.5,
        "release": "last",
        "neighbours": "replace_one",
    }
    return _linear(noise, (pictures[:300] / 16, labels[:300]), {**run, "loss": _SOFTMAX}, kind, threat)


def small_cnn() -> nn.Module:
    """Two convolutions and a linear layer for pictures of 8 by 8."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 8, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def cnn(noise: float, threat: Any, noise_multiplier: float = 1.0) -> Game:
    """Pictures without labels have no gradient: which of them a step draws, which no adversary sees, hides nothing of the canary."""
    pictures, classes = load_digits(return_X_y=True)
    stated = lethe.Run(
        records=20,
        batches=lethe.batches.Poisson(10),
        steps=5,
        step_size=0.5,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        release="all" if threat == "white_box" else "last",
        neighbours="add_or_remove",
    )
    labels = np.full(20, IGNORED)
    labels[-1] = classes[19]
    data = (pictures[:20].reshape(-1, 1, 8, 8).astype(np.float32) / 16, labels)
    return _trainer(NetworkTraining(run=stated, build=small_cnn, classes=10), noise, data, "mislabelled", threat)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release:
    """A use of what takes a table of gradients and a generator; the first record is far off, on one side or the other."""

    release: Callable[[FloatArray, np.random.Generator], FloatArray]

    def __call__(self, inside: bool, seed: int) -> float:
        """See `Trial`."""
        return float(self.release(far_off(1e6 if inside else -1e6), np.random.default_rng(seed)).sum())


def far_off(distance: float) -> FloatArray:
    """Gradients of 0, and a first one that is long."""
    table = np.zeros((_ROWS, _COLUMNS))
    table[0] = distance
    return table


def _oracle(noise: float, oracle: MeanOracle, **louder: float) -> Game:
    """An oracle as it is, or with the constants of one that has less noise."""
    used = oracle if noise == 1.0 else replace(oracle, **louder)  # pyright: ignore[reportArgumentType]
    guarantee = oracle.release(_ROWS, _COLUMNS).guarantee
    return _released(used.mean, guarantee.epsilon, type(oracle).__name__)


def _released(release: Callable[[FloatArray, np.random.Generator], FloatArray], epsilon: Callable[[float], float], source: str) -> Game:
    return Game(
        trial=Release(release=release),
        claim=lambda delta: Claim(epsilon=epsilon(delta), delta=delta, neighbours="replace_one", release="last", source=source),
        threat="final_model",
        canary="a gradient far off, against its opposite",
        theorem=source,
    )


def _solver(noise: float) -> Game:
    """Multi-pass descent on linear losses: the certificate of its last iterate, which is less than what its phases cost."""
    oracle, loss = ClippedMean(clip_norm=1.5, rho=0.6), Convex(smoothness=1.0)
    problem = Problem(gradient=lambda parameters, records: np.asarray(records, dtype=np.float64), dimension=_COLUMNS, smoothness=1.0)

    def solved(table: FloatArray, generator: np.random.Generator, fraction: float = noise) -> Solution:
        used = replace(oracle, rho=oracle.rho / fraction**2)
        # The record is in the last batch: no later pass hides it.
        return multi_pass(problem, table[::-1], oracle=used, passes=10, batch_size=4, generator=generator)

    stated = solved(far_off(0.0), np.random.default_rng(0), 1.0).fresh  # the trainings are seeded; what is audited is the claim without
    certificate = certify_solution(stated, 1e-5, loss=loss)

    def epsilon(delta: float) -> float:
        return certify_solution(stated, delta, loss=loss, allow_large_delta=True).epsilon

    return _released(lambda table, generator: -solved(table, generator).parameters, epsilon, certificate.basis)


GAMES: dict[str, Callable[[float], Game]] = {
    "fit_linear, full batches": lambda noise: _flat(noise, batches={"design": "full"}, noise_multiplier=5.5),
    "fit_linear, cyclic": lambda noise: _flat(noise),
    "fit_linear, cyclic, a short step a pass": lambda noise: _flat(noise, place=0, step_size=[0.5, 0.01] * 10, noise_multiplier=5.5),
    "fit_linear, shuffled once": lambda noise: _flat(noise, batches={"design": "shuffled_once", "size": 10}),
    "fit_linear, noise at pass ends": lambda noise: _flat(noise, noise_at="pass_ends", noise_multiplier=5.5),
    "fit_linear, ridge": lambda noise: _flat(noise, regulariser={"kind": "ridge", "strength": 0.2}, noise_multiplier=3.0),
    "fit_linear, ball": lambda noise: _flat(noise, regulariser={"kind": "ball", "radius": 0.5}, noise_multiplier=4.0),
    "fit_linear, Poisson": lambda noise: _flat(noise, batches={"design": "poisson", "size": 5}, passes=5, noise_multiplier=2.0),
    "fit_linear, digits": lambda noise: _digits(noise, "random_direction", "final_model"),
    "fit_linear, digits, black box": lambda noise: _digits(noise, "mislabelled", "black_box"),
    "fit, Poisson, CNN": lambda noise: cnn(noise, "final_model"),
    "fit, Poisson, CNN, every step": lambda noise: cnn(noise, "white_box"),
    "ClippedMean": lambda noise: _oracle(noise, ClippedMean(clip_norm=1.5, rho=0.6), rho=0.6 / noise**2),
    "CoordinateMedian": lambda noise: _oracle(noise, CoordinateMedian(threshold=1.5, groups=1, rho=0.6), rho=0.6 / noise**2),
    "ShuffledClippedMean": lambda noise: _oracle(noise, ShuffledClippedMean(clip_norm=1.5, epsilon=1.0, delta=1e-5), epsilon=1.0 / noise),
    "ShuffledCoordinateMedian": lambda noise: _oracle(
        noise, ShuffledCoordinateMedian(threshold=1.5, groups=1, epsilon=1.0, delta=1e-5), epsilon=1.0 / noise
    ),
    "multi_pass, last iterate": _solver,
}
"""Name -> the game with that fraction of the noise; 1 is all of it."""
NETWORKS = tuple(name for name in GAMES if name.startswith("fit, "))
