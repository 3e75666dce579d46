"""Audits of fit_linear: what a canary does to the model, in closed form; what the adversaries find; what is refused."""

import math
from typing import Any

import numpy as np
import pytest

import lethe

pytest.importorskip("torch")
pytest.importorskip("joblib")

from lethe.audit import Claim, gaussian_epsilon
from lethe.audit.games import OneByOne, RecordTrial, play, replaced
from lethe.audit.trainers import Canary, LinearTraining, audit
from lethe.audit.trainers.subject import OnlyScore
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
        "batches": lethe.Cyclic(size=4),
        "passes": 2,
        "step_size": 0.5,
        "noise_multiplier": 1.0,
        "loss": LOSSES[loss],
        "release": "last",
    }
    return lethe.Run(**{**fields, **changes})


def data_of(loss: str, records: int = 12) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(0)
    return drawn.normal(size=(records, 4)), drawn.integers(0, 2, records)


@pytest.mark.slow
def test_the_displacement_of_a_canary_alone_is_the_walk_that_it_should_be() -> None:
    """Residuals at their bound, others without gradients: means 2 passes x 0.5 / 4 apart on each side, noise of 6 steps of 0.5 / 4."""
    run = run_of(neighbours="zero_out")
    subject, data = LinearTraining(run=run), (np.zeros((12, 4)), np.zeros(12))
    (canary,) = subject.canaries("random_direction", data, [11], seed=0)
    train, scores = subject.game("final_model", [canary])
    worlds = [replaced(data, {11: record}) for record in (canary.outside, canary.inside)]
    trial = RecordTrial(train=train, without=worlds[0], including=worlds[1], score=OnlyScore(scores))
    played = play(OneByOne(trial), runs=500, seed=0)
    std = 0.5 / 4 * math.sqrt(6)
    assert played.out_scores.mean() == pytest.approx(0.0, abs=5 * std / math.sqrt(500))
    assert played.in_scores.mean() == pytest.approx(2 * 0.5 / 4, abs=5 * std / math.sqrt(500))
    assert played.out_scores.std() == pytest.approx(std, rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("loss", list(LOSSES))
@pytest.mark.parametrize("threat", ["final_model", "black_box", "black_box_chosen_start"])
def test_sound_runs_are_consistent(loss: str, threat: Any) -> None:
    classes = 2 if loss == "softmax" else None
    page = audit(run_of(loss), data_of(loss), delta=DELTA, threat=threat, classes=classes, runs=60, level=1e-3)
    assert page.verdict == "consistent"
    assert page.claim is not None
    assert page.claim.epsilon == lethe.certify(run_of(loss), DELTA).epsilon
    assert [result.kind for result in page.audits] == ["certified", "conditional"]
    assert page.audits[0].threat == threat


@pytest.mark.parametrize("canary", ["mislabelled", "random_direction", "least_moved"])
def test_noise_that_is_missing_is_seen_by_every_canary(canary: Any) -> None:
    stated = run_of("softmax", noise_multiplier=10.0)
    claim = Claim(
        epsilon=lethe.certify(stated, DELTA).epsilon, delta=DELTA, neighbours="replace_one", release="last", source="a run with more noise"
    )
    trained = run_of("softmax", noise_multiplier=0.1)
    page = audit(trained, data_of("softmax"), delta=DELTA, canary=canary, classes=2, runs=60, level=1e-3, claim=claim)
    assert page.verdict == "refuted"


@pytest.mark.slow
def test_a_chosen_start_makes_the_canary_s_gradient_as_large_as_it_can_be() -> None:
    """At 0 half of a logistic gradient is there; at the chosen start all of it, and the audit proves more."""
    run = run_of("logistic", neighbours="zero_out", noise_multiplier=0.7)
    found = [
        audit(run, data_of("logistic"), delta=DELTA, threat=threat, runs=300).audits[1].epsilon
        for threat in ("black_box", "black_box_chosen_start")
    ]
    assert found[1] > 1.5 * found[0]


def test_one_run_with_many_canaries() -> None:
    run = run_of(records=200, batches=lethe.Cyclic(size=50), noise_multiplier=0.5)
    drawn = np.random.default_rng(0)
    data = drawn.normal(size=(200, 300)) / 100, drawn.normal(size=200)
    page = audit(run, data, delta=DELTA, game="one_run", canaries=150)
    assert page.verdict == "consistent"
    assert page.audits[0].unit == "canary"
    assert page.audits[0].epsilon > 0.5


@pytest.mark.parametrize("threat", ["final_model", "black_box", "black_box_chosen_start"])
@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_one_run_for_every_adversary(threat: Any, noise: float) -> None:
    """All canaries are found out where there is no noise; what is found with it is below the certificate."""
    run = run_of("logistic", records=60, batches=lethe.Cyclic(size=30), noise_multiplier=noise, neighbours="zero_out", passes=4)
    claim = Claim(epsilon=1.0, delta=DELTA, neighbours="zero_out", release="last", source="a run with noise")
    page = audit(
        run,
        (np.zeros((60, 80)), np.zeros(60)),
        delta=DELTA,
        game="one_run",
        threat=threat,
        canaries=60,
        guesses=[(20, 20)],
        claim=claim if noise == 0.0 else None,
    )
    assert page.audits[0].threat == threat
    assert page.verdict == ("refuted" if noise == 0.0 else "consistent")


@pytest.mark.slow
def test_the_gaussian_bound_is_near_the_truth_of_a_canary_alone() -> None:
    run = run_of(batches=lethe.Full(), records=4, step_size=0.5, passes=4, noise_multiplier=4.0)
    page = audit(run, (np.zeros((4, 3)), np.zeros(4)), delta=DELTA, runs=500)
    truth = gaussian_epsilon(2 * math.sqrt(4) / 4.0, DELTA)
    assert 0.5 * truth < page.audits[1].epsilon < truth
    assert page.claim is not None
    assert page.claim.epsilon >= truth * (1 - 1e-9)


def test_the_canary_may_be_given() -> None:
    canary = Canary((np.array([1.0, 0, 0, 0]), 5.0), (np.array([-1.0, 0, 0, 0]), 5.0), "mine")
    page = audit(run_of(), data_of("least squares"), delta=DELTA, canary=canary, position=3, runs=30)
    assert page.canary == "mine"


def test_scores_are_kept(tmp_path: Any) -> None:
    given: dict[str, Any] = {"delta": DELTA, "runs": 20, "score_file": tmp_path / "scores.jsonl"}
    first = audit(run_of(), data_of("least squares"), **given)
    assert audit(run_of(), data_of("least squares"), **given) == first
    with pytest.raises(InputError, match="another game"):
        audit(run_of(noise_multiplier=2.0), data_of("least squares"), **given)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"threat": "white_box"}, "last iterate only"),
        ({"game": "three_world"}, "game"),
        ({"canary": "yellow"}, "canary"),
        ({"canary": "blank"}, "no labels"),
        ({"canary": "mislabelled"}, "no labels"),
        ({"score": lambda model, record: 0.0}, "score"),
        ({"neighbours": "zero_out"}, "neighbours"),
        ({"game": "one_run", "canaries": 13}, "canaries"),
        ({"game": "one_run", "canaries": 5, "canary": "least_moved"}, "one coordinate"),
        ({"game": "one_run", "canaries": 5, "canary": Canary((np.eye(4)[0], 1.0), (np.zeros(4), 0.0), "x")}, "one_run needs 5"),
        ({"canary": Canary((np.ones(4), 9.0), (np.ones(4), 9.0), "x")}, "in its place"),
        ({"position": 12}, "position"),
        ({"data": (np.zeros((12, 4)), np.zeros(11))}, "length"),
        ({"subject": 3}, "subject"),
        ({"delta": 0.0}, "delta"),
        ({"runs": 1}, "runs"),
    ],
)
def test_what_is_refused(change: dict[str, Any], word: str) -> None:
    given: dict[str, Any] = {"subject": run_of(), "data": data_of("least squares"), "delta": DELTA, "runs": 20, **change}
    with pytest.raises(InputError, match=word):
        audit(**given)


def test_a_record_without_gradient_needs_a_model_without_intercept() -> None:
    with pytest.raises(InputError, match="intercept"):
        audit(run_of("softmax", neighbours="zero_out"), data_of("softmax"), delta=DELTA, classes=2, runs=20)
