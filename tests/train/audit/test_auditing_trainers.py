"""Audits of fit_linear, fit and PrivacyEngine: what each adversary sees, in closed form; what is found; what is refused."""

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("joblib")
import torch
from how_many import by_night
from planted_faults import fit_by_engine, unverified
from torch import nn

import lethe
from lethe.audit import AuditConfig, Claim, TwoWorldGame
from lethe.audit.config import OneRunGame
from lethe.audit.games.two_worlds import play
from lethe.audit.statistics.curves import gaussian_epsilon
from lethe.audit.trainers import Canary, LinearTraining, NetworkTraining, audit
from lethe.audit.trainers.networks import IGNORED, Watched
from lethe.audit.trainers.training import claim_of
from lethe.errors import InputError
from lethe.theorems.correlated_noise import slot_mus
from lethe.train import fit

DELTA = 1e-5
LOSSES: dict[str, Any] = {
    "least squares": lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=1.0, evidence="enforced"),
    "logistic": lethe.losses.Logistic(feature_norm=1.0, evidence="enforced"),
    "softmax": lethe.losses.Softmax(feature_norm=1.0, intercept=True, evidence="enforced"),
}


def linear_run(loss: str = "least squares", **changes: Any) -> lethe.Run:
    fields: dict[str, Any] = {
        "records": 12,
        "batches": lethe.batches.Cyclic(4),
        "passes": 2,
        "step_size": 0.5,
        "noise_multiplier": 1.0,
        "loss": LOSSES[loss],
        "release": "last",
        "neighbours": "replace_one",
    }
    return lethe.Run(**{**fields, **changes})


def linear_data(loss: str, records: int = 12) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(0)
    return drawn.normal(size=(records, 4)), drawn.integers(0, 2, records)


def test_the_displacement_of_a_canary_alone_is_the_walk_that_it_should_be() -> None:
    """Residuals at their bound, others without gradients: means 2 passes x 0.5 / 4 apart on each side, noise of 6 steps of 0.5 / 4."""
    run = linear_run(neighbours="zero_out", noise_multiplier=0.01)  # so little that a hundred show a displacement that is 1 % too small
    subject, data = LinearTraining(run=run), (np.zeros((12, 4)), np.zeros(12))
    (canary,) = subject.canaries("random_direction", data, [11], seed=0)
    played = play(subject.trial("final_model", data, canary, 11), TwoWorldGame(runs=100), seed=0)
    std = 0.01 * 0.5 / 4 * math.sqrt(6)
    assert played.out_scores.mean() == pytest.approx(0.0, abs=5 * std / math.sqrt(100))
    assert played.in_scores.mean() == pytest.approx(2 * 0.5 / 4, abs=5 * std / math.sqrt(100))
    assert played.out_scores.std() == pytest.approx(std, rel=0.15)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("threat", ["final_model", "black_box", "black_box_chosen_start"])
def test_sound_runs_are_consistent(loss: str, threat: Any) -> None:
    classes = 2 if loss == "softmax" else None
    config = AuditConfig(delta=DELTA, threat=threat, game=TwoWorldGame(runs=60), level=1e-3)
    page = audit(LinearTraining(run=linear_run(loss), classes=classes), linear_data(loss), config)
    assert page.verdict == "consistent"
    assert page.claim is not None
    assert page.claim.epsilon == lethe.certify(linear_run(loss), DELTA).epsilon
    assert [result.kind for result in page.audits] == ["certified", "conditional"]
    assert page.audits[0].threat == threat


@pytest.mark.sampled(2)
@pytest.mark.parametrize("canary", ["mislabelled", "random_direction", "least_moved"])
def test_noise_that_is_missing_is_seen_by_every_canary(canary: Any) -> None:
    stated = linear_run("softmax", noise_multiplier=10.0)
    claim = claim_of(lethe.certify(stated, DELTA))
    trained = LinearTraining(run=linear_run("softmax", noise_multiplier=0.1), classes=2)
    config = AuditConfig(delta=DELTA, canary=canary, game=TwoWorldGame(runs=60), level=1e-3)
    page = audit(trained, linear_data("softmax"), config, claim=claim)
    assert page.verdict == "refuted"


def test_a_chosen_start_makes_the_canary_s_gradient_as_large_as_it_can_be() -> None:
    """At 0 half of a logistic gradient is there; at the chosen start all of it, and the audit proves more."""
    run = linear_run("logistic", neighbours="zero_out", noise_multiplier=0.7)
    game, data = TwoWorldGame(runs=300 if by_night() else 60), linear_data("logistic")
    pages = [audit(run, data, AuditConfig(delta=DELTA, threat=threat, game=game)) for threat in ("black_box", "black_box_chosen_start")]
    assert pages[1].audits[1].epsilon > 1.5 * pages[0].audits[1].epsilon


@pytest.mark.parametrize("threat", ["final_model", "black_box", "black_box_chosen_start"])
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_one_run_for_every_adversary(threat: Any, noise: float) -> None:
    """All canaries are found out where there is no noise; what is found with it is below the certificate."""
    run = linear_run("logistic", records=60, batches=lethe.batches.Cyclic(30), noise_multiplier=noise, neighbours="zero_out", passes=4)
    claim = Claim(epsilon=1.0, delta=DELTA, neighbours="zero_out", release="last", source="a run with noise")
    config = AuditConfig(delta=DELTA, game=OneRunGame(canaries=60, guesses=((20, 20),)), threat=threat)
    page = audit(run, (np.zeros((60, 80)), np.zeros(60)), config, claim=claim if noise == 0.0 else None)
    assert page.audits[0].threat == threat
    assert page.verdict == ("refuted" if noise == 0.0 else "consistent")


def test_the_gaussian_bound_is_near_the_truth_of_a_canary_alone() -> None:
    run = linear_run(batches=lethe.batches.Full(), records=4, step_size=0.5, passes=4, noise_multiplier=2.0)
    page = audit(run, (np.zeros((4, 3)), np.zeros(4)), AuditConfig(delta=DELTA, game=TwoWorldGame(runs=500 if by_night() else 150)))
    truth = gaussian_epsilon(2 * math.sqrt(4) / 2.0, DELTA)
    assert 0.5 * truth < page.audits[1].epsilon < truth
    assert page.claim is not None
    assert page.claim.epsilon >= truth * (1 - 1e-9)


def test_the_canary_may_be_given_and_delta_large_where_that_is_meant() -> None:
    canary = Canary((np.array([1.0, 0, 0, 0]), 5.0), (np.array([-1.0, 0, 0, 0]), 5.0), "mine")
    config = AuditConfig(delta=0.5, game=TwoWorldGame(runs=20, position=3), allow_large_delta=True)
    page = audit(linear_run(), linear_data("least squares"), config, custom_canary=canary)
    assert page.canary == "mine"
    assert page.claim is not None
    assert "delta >= 1/records" in page.claim.source


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"threat": "white_box"}, "last iterate only"),
        ({"subject": LinearTraining(run=linear_run("softmax", neighbours="zero_out"), classes=2)}, "intercept"),
        ({"canary": "blank"}, "no labels"),
        ({"canary": "mislabelled"}, "no labels"),
        ({"game": OneRunGame(canaries=13)}, "canaries"),
        ({"game": OneRunGame(canaries=5), "canary": "least_moved"}, "one coordinate"),
        ({"game": OneRunGame(canaries=5), "custom_canary": Canary((np.eye(4)[0], 1.0), (np.zeros(4), 0.0), "x")}, "one_run needs 5"),
        ({"custom_canary": Canary((np.ones(4), 9.0), (np.ones(4), 9.0), "x")}, "in its place"),
        ({"custom_canary": ("a", "b", "c")}, "needs a Canary"),
        ({"game": TwoWorldGame(position=12)}, "position"),
        ({"data": (np.zeros((12, 4)), np.zeros(11))}, "length"),
        ({"subject": 3}, "subject"),
        ({"subject": lambda data, seed: 0.0}, "subject: got function.*\n.*\n.*a FunctionTraining"),
        ({"config": {"delta": DELTA}}, "needs an AuditConfig"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 0.5}, "delta"),
    ],
)
def test_what_of_a_linear_model_is_refused(change: dict[str, Any], word: str) -> None:
    given: dict[str, Any] = {"subject": linear_run(), "data": linear_data("least squares"), "custom_canary": None, **change}
    subject, data, canary = (given.pop(name) for name in ("subject", "data", "custom_canary"))
    config = given.pop("config", None) or AuditConfig(**{"delta": DELTA, "game": TwoWorldGame(runs=20), **given})
    with pytest.raises(InputError, match=word):
        audit(subject, data, config, custom_canary=canary)


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


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("size", "steps"), [(1, 8), (2, 5), (2, 12)])
def test_a_shuffled_epoch_leaks_what_is_certified_and_no_more(size: int, steps: int) -> None:
    """Two worlds of `fit`, told apart by the likelihood of all noisy gradients: the excess at any epsilon is the certified delta.

    One record of full norm, and three across it; in (2, 5) training ends within a pass.
    """
    runs = 2000 if by_night() else 60
    run = run_of(records=4, batches=lethe.batches.RandomAllocation(size), steps=steps, step_size=1.0, clip_norm=1.0, noise_multiplier=1.0)
    per_pass, logs = run.steps_per_pass, np.zeros((2, runs))
    for world, trial in np.ndindex(2, runs):
        seen: list[float] = []
        model = nn.Linear(2, 1, bias=False)
        own = torch.optim.SGD(model.parameters(), lr=1.0)
        own.register_step_post_hook(lambda *_, kept=seen, weight=model.weight: kept.append(weight.detach()[0, 0].item()))
        start, inputs = model.weight.detach()[0, 0].item(), torch.tensor([[2.0 * world, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        fit(model, lambda outputs, _: outputs[:, 0], (inputs, torch.zeros(4)), run, optimizer=own)
        shares = -np.diff(seen, prepend=start) * run.batch_size  # of the record, with noise of deviation 1
        likelihoods = np.pad(np.exp(shares - 0.5), (0, -steps % per_pass), constant_values=1.0)
        logs[world, trial] = np.log(likelihoods.reshape(-1, per_pass).mean(axis=1)).sum()
    guarantee = lethe.certify(run, DELTA).guarantee
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        gamma, certified, (without, inside) = math.exp(epsilon), guarantee.delta(epsilon), logs
        pairs = ((inside, without), (-without, -inside))  # in both directions
        excess = max((one > epsilon).mean() - gamma * (other > epsilon).mean() for one, other in pairs)
        room = (1.0 + gamma) * math.sqrt(math.log(1e6) / (2 * runs))
        assert abs(excess - certified) <= room


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


def squares(outputs: Any, targets: Any) -> Any:
    return (outputs[:, 0] - targets.to(outputs.dtype)) ** 2


@pytest.mark.parametrize(
    ("change", "loss", "word"),
    [
        ({"canary": "random_direction"}, None, "follow from a record"),
        ({"canary": "least_moved"}, None, "follow from a record"),
        ({"threat": "black_box_chosen_start"}, None, "what `build` makes"),
        ({}, squares, "has a gradient"),  # a loss that ignores no label needs replacement
    ],
)
def test_what_of_a_network_is_refused(change: dict[str, Any], loss: Any, word: str) -> None:
    training = NetworkTraining(run=run_of(noise_multiplier=1.0), build=build, **({} if loss is None else {"loss": loss}))
    with pytest.raises(InputError, match=word):
        audit(training, data_of(), AuditConfig(delta=DELTA, game=TwoWorldGame(runs=4), **change))
