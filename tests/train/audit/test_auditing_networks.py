"""Audits of fit and PrivacyEngine: what each adversary sees, shares in closed form, what is refused."""

import math
from typing import Any

import numpy as np
import pytest

import lethe

pytest.importorskip("torch")
pytest.importorskip("joblib")

import torch
from how_many import by_night
from planted_faults import fit_by_engine, unverified
from torch import nn

from lethe.audit import AuditConfig, Claim, TwoWorldGame
from lethe.audit.config import OneRunGame
from lethe.audit.trainers import NetworkTraining, audit
from lethe.audit.trainers.networks import IGNORED, Watched
from lethe.audit.trainers.training import claim_of
from lethe.errors import InputError
from lethe.theorems.correlated_noise import slot_mus

DELTA = 1e-5


def run_of(**changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "records": 6,
        "batches": lethe.batches.Cyclic(3),
        "steps": 4,
        "step_size": [0.5, 0.25, 0.5, 0.25],
        "clip_norm": 0.5,
        "noise_multiplier": 0.0,
        "release": "all",
        "neighbours": "zero_out",
    }
    return lethe.Run(**{**fields, **changes})


def data_of(records: int = 6) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(0)
    return drawn.normal(size=(records, 3)).astype(np.float32), drawn.integers(0, 2, records)


def build() -> nn.Module:
    return nn.Linear(3, 2)


def training_of(**changes: Any) -> NetworkTraining:
    return NetworkTraining(run=run_of(**changes), build=build)


def test_without_noise_the_share_is_the_canary_s_own() -> None:
    """Others without gradients: <clipped canary, itself> / C^2 is 1 where it takes part and is longer than C, else 0."""
    training = training_of()
    features, labels = data_of()
    labels[:] = IGNORED
    (canary,) = training.canaries("mislabelled", (features, np.zeros(6, dtype=int)), [4], seed=0)
    labels[4] = canary.inside[-1]
    train, scores = training.game("white_box", [canary])
    watched = train((features, labels), 0)
    assert watched.shares.shape == (4, 1)
    assert np.allclose(watched.shares[:, 0], [0.0, 1.0, 0.0, 1.0], atol=1e-5)
    assert scores(watched)[0] == pytest.approx(2.0, abs=1e-5)


def test_only_the_steps_of_the_canary_s_batch_are_looked_at() -> None:
    training = training_of(noise_multiplier=1.0)
    canaries = training.canaries("mislabelled", data_of(), [0, 5], seed=0)
    train, scores = training.game("white_box", canaries)
    watched = train(data_of(), 3)
    assert np.allclose(scores(watched), [watched.shares[[0, 2], 0].sum(), watched.shares[[1, 3], 1].sum()])


@pytest.mark.parametrize("other", [None, fit_by_engine])
def test_watching_changes_nothing(other: Any) -> None:
    """The parameters are those of a training that nobody watches; the engine needs one step size."""
    training = training_of(noise_multiplier=1.0, step_size=0.5)
    if other is not None:
        training = NetworkTraining(run=training.run, build=build, fit=other)
    canaries = training.canaries("mislabelled", data_of(), [0], seed=0)
    plain, watched = training(data_of(), 7), training.game("white_box", canaries)[0](data_of(), 7)
    assert np.allclose(plain.displacement, watched.displacement, atol=1e-6)
    assert plain.shares.size == 0


def test_all_trainings_begin_alike_and_leave_the_generator_alone() -> None:
    before = torch.random.get_rng_state()
    first, second = training_of().built(), training_of().built()
    assert all(bool((one == two).all()) for one, two in zip(first.parameters(), second.parameters(), strict=True))
    assert bool((torch.random.get_rng_state() == before).all())


@pytest.mark.sampled(6)
@pytest.mark.parametrize("neighbours", ["zero_out", "replace_one"])
@pytest.mark.parametrize("threat", ["white_box", "final_model", "black_box"])
def test_noise_that_is_missing_is_seen(neighbours: Any, threat: Any) -> None:
    # 25 perfect guesses prove 1.18; 0.64 is certified, or 0.3.
    stated = run_of(neighbours=neighbours, noise_multiplier=16.0)
    claim = claim_of(lethe.certify(stated, DELTA))
    config = AuditConfig(delta=DELTA, threat=threat, game=TwoWorldGame(runs=25), level=1e-2)
    found = audit(unverified(training_of(neighbours=neighbours, noise_multiplier=0.05)), data_of(), config, claim=claim)
    assert found.verdict == "refuted"
    if by_night():  # by day one run of many canaries shows that nothing sound is accused
        assert audit(unverified(NetworkTraining(run=stated, build=build)), data_of(), config).verdict == "consistent"


def test_of_correlated_noise_the_score_tells_as_much_as_is_certified() -> None:
    """Gradients that never change: the mean of the score over its standard deviation is the certificate's mu, of every slot."""
    run = run_of(noise=lethe.noise.BandedToeplitz(coefficients=(1.0, 0.6, 0.3)), noise_multiplier=2.0)
    training = NetworkTraining(run=run, build=build)
    canaries = training.canaries("mislabelled", data_of(), [0, 5], seed=0)
    _, score = training.game("white_box", canaries)
    inverse = np.linalg.inv(np.eye(4) + 0.6 * np.eye(4, k=-1) + 0.3 * np.eye(4, k=-2))
    found = []
    for place, steps in enumerate(([1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0])):
        # What one unit of share adds to the score, step by step.
        weights = np.array(
            [score(Watched(model=build(), displacement=np.zeros(8), shares=np.eye(4)[[step]].T))[place] for step in range(4)]
        )
        found.append(float(weights @ steps / (2.0 * np.linalg.norm(inverse.T @ weights))))
    assert found == pytest.approx(slot_mus(run), rel=1e-9)


def test_correlated_noise_that_is_missing_is_seen_step_by_step() -> None:
    stated = run_of(noise=lethe.noise.BandedToeplitz(coefficients=(1.0, 0.6, 0.3)), noise_multiplier=16.0)
    config = AuditConfig(delta=DELTA, threat="white_box", game=TwoWorldGame(runs=25), level=1e-2)
    for multiplier, verdict in ((0.05, "refuted"), (16.0, "consistent")):
        training = NetworkTraining(run=stated.replace(noise_multiplier=multiplier), build=build)
        assert audit(unverified(training), data_of(), config, claim=claim_of(lethe.certify(stated, DELTA))).verdict == verdict


@pytest.mark.parametrize("threat", ["white_box", "final_model", "black_box"])
def test_one_run_of_a_network_for_every_adversary(threat: Any) -> None:
    """Canaries that do not interfere are all found out without noise, and not with it."""
    training = NetworkTraining(run=run_of(records=40, batches=lethe.batches.Full(), steps=4, step_size=2.0), build=wide)
    drawn = np.random.default_rng(0)
    data = np.eye(40, dtype=np.float32), drawn.integers(0, 2, 40)
    claim = Claim(epsilon=0.5, delta=DELTA, neighbours="zero_out", release="all", source="a run with noise")
    config = AuditConfig(delta=DELTA, game=OneRunGame(canaries=40, guesses=((12, 12),)), threat=threat)
    assert audit(training, data, config, claim=claim).verdict == "refuted"
    noisy = NetworkTraining(run=training.run.replace(noise_multiplier=8.0), build=wide)
    assert audit(noisy, data, config).verdict == "consistent"


def wide() -> nn.Module:
    return nn.Linear(40, 2, bias=False)


def test_the_gradient_of_a_canary_is_clipped_and_its_difference_is_both() -> None:
    training = training_of(neighbours="replace_one")
    model = training.built()
    (canary,) = training.canaries("mislabelled", data_of(), [2], seed=0)
    apart = float(training.differences(model, [canary]).norm())
    # Two classes: gradients of the two labels are opposite, and both are longer than C here.
    assert apart == pytest.approx(2 * 0.5, rel=1e-6)
    assert math.isfinite(apart)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"canary": "random_direction"}, "follow from a record"),
        ({"canary": "least_moved"}, "follow from a record"),
        ({"threat": "black_box_chosen_start"}, "what `build` makes"),
    ],
)
def test_what_is_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        audit(training_of(noise_multiplier=1.0), data_of(), AuditConfig(delta=DELTA, game=TwoWorldGame(runs=4), **change))


def test_a_loss_that_ignores_nothing_needs_replacement() -> None:
    def squares(outputs: Any, targets: Any) -> Any:
        return (outputs[:, 0] - targets.to(outputs.dtype)) ** 2

    training = NetworkTraining(run=run_of(noise_multiplier=1.0), build=build, loss=squares)
    with pytest.raises(InputError, match="has a gradient"):
        audit(training, data_of(), AuditConfig(delta=DELTA, game=TwoWorldGame(runs=4)))
