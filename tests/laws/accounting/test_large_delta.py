"""Which deltas n records allow: at 1/n refused unless it is said, shown where it is allowed, above 1/(10 n) a warning."""

import inspect
import json
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_run
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import lethe
import lethe.estimators
from lethe.accounting.certify import cumulative_privacy
from lethe.accounting.heavy_tailed import certify_solution
from lethe.calculus.large_delta import delta_for, is_large, usual_delta
from lethe.cli.app import app
from lethe.estimators.private_estimator import PrivateEstimator
from lethe.heavy_tailed import Problem, multi_pass
from lethe.heavy_tailed.localisation.plans import LocalPhase
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean
from lethe.heavy_tailed.shuffled_oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.jobs.training import Job

RUN = make_run(noise_multiplier=9.0)  # of 100 records
PROBLEM = Problem(gradient=lambda parameters, records: parameters - np.asarray(records), dimension=2, smoothness=1.0, strong_convexity=1.0)
ROWS = np.zeros((100, 2))
PHASE = LocalPhase(records=50, steps=2, step_size=0.1, clip_norm=1.0, strength=1.0, radius=1.0)
SOLUTION = multi_pass(PROBLEM, ROWS, oracle=ClippedMean(clip_norm=1.0, rho=0.1), passes=2, batch_size=50, step_size=0.1)


DOORS: dict[str, Callable[..., Any]] = {
    "certify": lambda delta, **said: lethe.certify(RUN, delta, **said),
    "plan": lambda delta, **said: lethe.plan(RUN, 1.0, delta, **said),
    "plan to a target": lambda delta, **said: lethe.plan(RUN, target=lethe.guarantees.ApproxDP(1.0, delta), **said),
    "compare": lambda delta, **said: lethe.compare(RUN, delta, **said),
    "compare along a sweep": lambda delta, **said: lethe.compare(RUN, delta, over="steps", values=[10], **said),
    "allocate": lambda delta, **said: lethe.allocate(RUN, 1.0, delta, schedule="uniform", **said),
    "allocate to a target": lambda delta, **said: lethe.allocate(
        RUN, target=lethe.guarantees.ApproxDP(1.0, delta), schedule="uniform", **said
    ),
    "allocate, shown": lambda delta, **said: lethe.allocate(RUN, delta=delta, target=lethe.guarantees.GDP(1.0), schedule="uniform", **said),
    "cumulative": lambda delta, **said: cumulative_privacy(RUN, delta, points=2, **said),
    "certify_solution": lambda delta, **said: certify_solution(SOLUTION, delta, **said),
    "epsilon_at": lambda delta, **said: lethe.certify(RUN, 1e-5).epsilon_at(delta, **said),
    "sampled_localised": lambda delta, **said: sampled_localised(PROBLEM, ROWS, schedule=(PHASE,), epsilon=1.0, delta=delta, **said),
    "clipped mean from shuffled bits": lambda delta, **said: one_pass(
        PROBLEM, ROWS, oracle=ShuffledClippedMean(clip_norm=1.0, epsilon=1.0, delta=delta, **said), steps=1
    ),
    "median from shuffled bits": lambda delta, **said: one_pass(
        PROBLEM, ROWS, oracle=ShuffledCoordinateMedian(threshold=1.0, groups=1, epsilon=1.0, delta=delta, **said), steps=1
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS.keys())
def test_every_door_refuses_one_over_n_and_warns_from_a_tenth_of_it_on(door: Callable[..., Any]) -> None:
    for delta in (0.01, 0.01 * (1 - 1e-15), 0.5):
        with pytest.raises(lethe.InputError, match="with 100 records it needs to be below 1/records =") as caught:
            door(delta)
        assert "say allow_large_delta=True (--allow-large-delta)" in str(caught.value)
        door(delta, allow_large_delta=True)
    for delta in (0.0099, 0.00101):
        with pytest.warns(lethe.LargeDeltaWarning, match=r"above 1/\(10 records\) = 0.001"):
            door(delta)
        door(delta, allow_large_delta=True)  # warnings are errors in these tests
    door(0.001)
    for no_answer in ("yes", 1, None):
        with pytest.raises(lethe.InputError, match="allow_large_delta"):
            door(0.001, allow_large_delta=no_answer)


@given(st.integers(1, 10**12) | st.sampled_from([1, 3, 7, 1000, 60_000]))
def test_what_the_refusal_says_to_give_is_taken_without_a_warning(records: int) -> None:
    with pytest.raises(lethe.InputError, match="records") as caught:
        delta_for(records, 0.9999999999999999 if records == 1 else 1 / records)
    advised = re.search(r"give delta = (\S+) or less", str(caught.value))
    assert advised is not None
    assert delta_for(records, float(advised[1])) > 0.05 / records  # warnings are errors in these tests


@given(st.integers(1, 10**320) | st.sampled_from([1, 2, 3, 7, 10, 49, 10**5, 10**20, 10**320]))
def test_the_border_is_where_it_is_for_any_number_of_records(records: int) -> None:
    assert not is_large(usual_delta(records), records)
    if 1e-300 < (border := 1 / records) < 1.0:
        for delta in (border, math.nextafter(border, 1.0), math.nextafter(border, 0.0)):
            assert is_large(delta, records)
        assert not is_large(border * (1 - 1e-9), records)
        assert is_large(border * (1 + 1e-9), records)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert delta_for(records, 0.1 / records) == 0.1 / records
            with pytest.raises(lethe.LargeDeltaWarning):
                delta_for(records, 0.1 / records * (1 + 1e-9))


def test_allowed_it_is_shown_wherever_the_number_is() -> None:
    said = "note: delta >= 1/records = 0.01: such a delta allows one record in 100 to be published whole."
    certificate, small = lethe.certify(RUN, 0.2, allow_large_delta=True), lethe.certify(RUN, 1e-5)
    comparison = lethe.compare(RUN, 0.2, allow_large_delta=True)
    sweep = lethe.compare(RUN, 0.2, over="steps", values=[10], allow_large_delta=True)
    allocation = lethe.allocate(RUN, 1.0, 0.2, schedule="uniform", allow_large_delta=True)
    solution = certify_solution(SOLUTION, 0.2, allow_large_delta=True)
    for result in (certificate, comparison, sweep, allocation, solution):
        assert said in result.explain()
    for result in (comparison, sweep, solution):
        assert said in str(result)
    for result in (certificate, comparison, sweep):
        assert result.to_dict()["large_delta"] is True
    assert "delta 0.2 >= 1/records" in comparison.title
    assert "delta >= 1/records" in repr(certificate)
    assert "delta >= 1/records" in repr(allocation)
    assert "\n" not in repr(SOLUTION) + repr(solution)
    assert "large" not in repr(small) + small.explain() + json.dumps(small.to_dict())
    large = certificate.to_dict()
    assert lethe.Certificate.from_dict(large).large_delta
    for altered in (large | {"large_delta": False}, large | {"large_delta": "no"}, small.to_dict() | {"large_delta": True}):
        with pytest.raises(lethe.InputError, match="large_delta is"):
            lethe.Certificate.from_dict(altered)
    del large["large_delta"]  # as versions before wrote it
    assert lethe.Certificate.from_dict(large).large_delta


def classifier(**options: Any) -> Any:
    return lethe.estimators.LogisticRegression(options=lethe.estimators.EstimatorOptions(**options), feature_norm=1.0, classes=[0, 1])


ESTIMATORS = [
    value
    for name in lethe.estimators.__all__
    if isinstance(value := getattr(lethe.estimators, name), type)
    and issubclass(value, PrivateEstimator)
    and hasattr(value, "fit")
    and not inspect.isabstract(value)
]


def made(kind: type[PrivateEstimator], **said: Any) -> Any:
    if any(one.default is one.empty for one in inspect.signature(kind).parameters.values()):
        return kind(classifier(mechanism="output_perturbation"), {"C": [1.0]}, **said)  # pyright: ignore[reportCallIssue]
    return kind(**said)


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_every_estimator_refuses_it_before_anything_is_released(kind: type[PrivateEstimator]) -> None:
    rows, labels = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    assert made(kind).get_params()["options__allow_large_delta"] is False
    with pytest.raises(lethe.InputError, match="with 60 records it needs to be below 1/records"):
        made(kind, delta=1 / 60).fit(rows, labels)
    with pytest.raises(lethe.InputError, match="allow_large_delta = 'yes'; it needs True or False"):
        made(kind, delta=1 / 60, options=lethe.estimators.EstimatorOptions(allow_large_delta="yes")).fit(rows, labels)


@pytest.mark.parametrize(
    "model",
    [
        classifier(mechanism="output_perturbation"),
        classifier(mechanism="cyclic", passes=1),
        lethe.estimators.PrivateMean(moment=1.0, centre=[0.0, 0.0]),
        lethe.estimators.PrivateStandardScaler(bounds=(-1.0, 1.0)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_say_what_was_allowed(model: Any) -> None:
    rows, labels = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    model.set_params(delta=0.1, options__allow_large_delta=True, epsilon=20.0).fit(rows, labels)
    said = "note: delta >= 1/records = 0.0166: such a delta allows one record in 60 to be published whole."
    assert said in model.privacy_report_
    assert said in lethe.estimators.privacy_report_of(model, 0.1, allow_large_delta=True)
    with pytest.raises(lethe.InputError, match="with 60 records"):
        lethe.estimators.privacy_report_of(model, 0.1)
    assert "allow_large_delta=True" in repr(model)
    with pytest.warns(lethe.LargeDeltaWarning):
        model.set_params(delta=0.005, options__allow_large_delta=False).fit(rows, labels)
    assert "published whole" not in model.privacy_report_


def test_a_training_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lethe.jobs.training.fit", lambda *_, **__: pytest.fail("it trained"))
    loss = {"kind": "softmax_regression", "feature_norm": 1.0, "evidence": "enforced"}
    run = {**RUN.to_document(), "batches": {"design": "cyclic", "size": 100}, "passes": 1, "noise_multiplier": 5.0, "loss": loss}
    del run["records"]
    with pytest.raises(lethe.InputError, match="below 1/records"):
        Job(run=run, privacy={"delta": 0.01}).train(tmp_path / "out")
    assert Job(run=run, privacy={"delta": 0.01, "allow_large_delta": True}).prepare()[1].noise_multiplier == 5.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("words", ["certify", "compare", "plan --epsilon 1", "plan --epsilon 1 --schedule uniform"])
def test_the_command_refuses_warns_and_tells(tmp_path: Path, words: str) -> None:
    RUN.save(tmp_path / "run.yaml")

    def said(*options: str) -> Any:
        return CliRunner().invoke(app, [*words.split(), str(tmp_path / "run.yaml"), "--delta", *options], catch_exceptions=False)

    with pytest.raises(lethe.InputError, match="--allow-large-delta"):
        said("0.5")
    told = said("0.005")
    assert told.exit_code == 0
    assert told.stderr.startswith("lethe: warning: delta = 0.005 is above 1/(10 records) = 0.001")
    assert told.stderr.count("\n") == 1
    assert "warning" not in told.stdout
    allowed, quiet = said("0.5", "--allow-large-delta"), said("0.001")
    assert (allowed.exit_code, allowed.stderr, quiet.stderr) == (0, "", "")
    assert "such a delta allows one record in 100 to be published whole" in " ".join(allowed.stdout.split())
    assert "published whole" not in quiet.stdout
    content = json.loads(said("0.5", "--allow-large-delta", "--json").stdout)
    assert content.get("large_delta", content.get("certificate", {}).get("large_delta")) is True
