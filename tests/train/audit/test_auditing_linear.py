"""Audits of fit_linear: what a canary does to the model, in closed form; what the adversaries find; what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from how_many import by_night

import lethe

pytest.importorskip("torch")
pytest.importorskip("joblib")

from lethe.audit import AuditConfig, Claim, TwoWorldGame
from lethe.audit.config import OneRunGame
from lethe.audit.games.two_worlds import play
from lethe.audit.statistics.curves import gaussian_epsilon
from lethe.audit.trainers import Canary, LinearTraining, audit
from lethe.errors import InputError

DELTA = 1e-5
LOSSES: dict[str, Any] = {
    "least squares": lethe.losses.LeastSquares(feature_norm=1.0, residual_bound=1.0, evidence="enforced"),
    "logistic": lethe.losses.Logistic(feature_norm=1.0, evidence="enforced"),
    "softmax": lethe.losses.Softmax(feature_norm=1.0, intercept=True, evidence="enforced"),
}


def run_of(loss: str = "least squares", **changes: Any) -> lethe.Run:
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


def data_of(loss: str, records: int = 12) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(0)
    return drawn.normal(size=(records, 4)), drawn.integers(0, 2, records)


def test_the_displacement_of_a_canary_alone_is_the_walk_that_it_should_be() -> None:
    """Residuals at their bound, others without gradients: means 2 passes x 0.5 / 4 apart on each side, noise of 6 steps of 0.5 / 4."""
    run = run_of(neighbours="zero_out", noise_multiplier=0.01)  # so little that a hundred show a displacement that is 1 % too small
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
    page = audit(LinearTraining(run=run_of(loss), classes=classes), data_of(loss), config)
    assert page.verdict == "consistent"
    assert page.claim is not None
    assert page.claim.epsilon == lethe.certify(run_of(loss), DELTA).epsilon
    assert [result.kind for result in page.audits] == ["certified", "conditional"]
    assert page.audits[0].threat == threat


@pytest.mark.sampled(2)
@pytest.mark.parametrize("canary", ["mislabelled", "random_direction", "least_moved"])
def test_noise_that_is_missing_is_seen_by_every_canary(canary: Any) -> None:
    stated = run_of("softmax", noise_multiplier=10.0)
    claim = Claim(
        epsilon=lethe.certify(stated, DELTA).epsilon, delta=DELTA, neighbours="replace_one", release="last", source="a run with more noise"
    )
    trained = LinearTraining(run=run_of("softmax", noise_multiplier=0.1), classes=2)
    config = AuditConfig(delta=DELTA, canary=canary, game=TwoWorldGame(runs=60), level=1e-3)
    page = audit(trained, data_of("softmax"), config, claim=claim)
    assert page.verdict == "refuted"


def test_a_chosen_start_makes_the_canary_s_gradient_as_large_as_it_can_be() -> None:
    """At 0 half of a logistic gradient is there; at the chosen start all of it, and the audit proves more."""
    run = run_of("logistic", neighbours="zero_out", noise_multiplier=0.7)
    found = [
        audit(run, data_of("logistic"), AuditConfig(delta=DELTA, threat=threat, game=TwoWorldGame(runs=300 if by_night() else 60)))
        .audits[1]
        .epsilon
        for threat in ("black_box", "black_box_chosen_start")
    ]
    assert found[1] > 1.5 * found[0]


@pytest.mark.parametrize("threat", ["final_model", "black_box", "black_box_chosen_start"])
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_one_run_for_every_adversary(threat: Any, noise: float) -> None:
    """All canaries are found out where there is no noise; what is found with it is below the certificate."""
    run = run_of("logistic", records=60, batches=lethe.batches.Cyclic(30), noise_multiplier=noise, neighbours="zero_out", passes=4)
    claim = Claim(epsilon=1.0, delta=DELTA, neighbours="zero_out", release="last", source="a run with noise")
    config = AuditConfig(delta=DELTA, game=OneRunGame(canaries=60, guesses=((20, 20),)), threat=threat)
    page = audit(run, (np.zeros((60, 80)), np.zeros(60)), config, claim=claim if noise == 0.0 else None)
    assert page.audits[0].threat == threat
    assert page.verdict == ("refuted" if noise == 0.0 else "consistent")


def test_the_gaussian_bound_is_near_the_truth_of_a_canary_alone() -> None:
    run = run_of(batches=lethe.batches.Full(), records=4, step_size=0.5, passes=4, noise_multiplier=2.0)
    page = audit(run, (np.zeros((4, 3)), np.zeros(4)), AuditConfig(delta=DELTA, game=TwoWorldGame(runs=500 if by_night() else 150)))
    truth = gaussian_epsilon(2 * math.sqrt(4) / 2.0, DELTA)
    assert 0.5 * truth < page.audits[1].epsilon < truth
    assert page.claim is not None
    assert page.claim.epsilon >= truth * (1 - 1e-9)


def test_the_canary_may_be_given() -> None:
    canary = Canary((np.array([1.0, 0, 0, 0]), 5.0), (np.array([-1.0, 0, 0, 0]), 5.0), "mine")
    config = AuditConfig(delta=DELTA, game=TwoWorldGame(runs=10, position=3))
    assert audit(run_of(), data_of("least squares"), config, custom_canary=canary).canary == "mine"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"threat": "white_box"}, "last iterate only"),
        ({"subject": LinearTraining(run=run_of("softmax", neighbours="zero_out"), classes=2)}, "intercept"),
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
def test_what_is_refused(change: dict[str, Any], word: str) -> None:
    given: dict[str, Any] = {"subject": run_of(), "data": data_of("least squares"), "custom_canary": None, **change}
    subject, data, canary = (given.pop(name) for name in ("subject", "data", "custom_canary"))
    config = given.pop("config", None) or AuditConfig(**{"delta": DELTA, "game": TwoWorldGame(runs=20), **given})
    with pytest.raises(InputError, match=word):
        audit(subject, data, config, custom_canary=canary)


def test_a_large_delta_is_certified_where_it_is_meant() -> None:
    page = audit(run_of(), data_of("least squares"), AuditConfig(delta=0.5, game=TwoWorldGame(runs=20), allow_large_delta=True))
    assert page.claim is not None
    assert "delta >= 1/records" in page.claim.source
