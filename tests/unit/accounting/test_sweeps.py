"""Sweeps over step size, batch size, curvature and delta: each point is the certificate of the run that it says."""

import math
from typing import Any

import pytest
from helpers import make_run

import lethe
from lethe.certificates.swept import OVERS
from lethe.theorems.registry import OURS

FEW: Any = ["optimal-shift", "composition"]
CONVEX = lethe.losses.Convex(smoothness=0.5, gradient_bound=1.0)
WEAKLY = lethe.losses.WeaklyConvex(weak_convexity=0.1, smoothness=0.5, gradient_bound=1.0)


@pytest.mark.slow
def test_each_point_is_the_certificate_of_its_run() -> None:
    run = make_run(loss=CONVEX)
    expected = {
        "step_size": (0.25, run.replace(step_size=0.25)),
        "batch_size": (20, run.replace(batches=lethe.batches.Cyclic(20))),
        "smoothness": (1.5, run.replace(loss=lethe.losses.Convex(smoothness=1.5, gradient_bound=1.0))),
    }
    for over, (value, moved) in expected.items():
        assert moved != run
        sweep = lethe.compare(run, 1e-5, over=over, values=[value], theorems=OURS)
        assert sweep.certified[0].epsilon == lethe.certify(moved, 1e-5).epsilon
    weakly = make_run(loss=WEAKLY)
    sweep = lethe.compare(weakly, 1e-5, over="weak_convexity", values=[0.0, 0.1, 0.2], theorems=OURS)
    assert sweep.certified[1].epsilon == lethe.certify(weakly, 1e-5).epsilon
    assert sweep.certified[0].epsilon < sweep.certified[1].epsilon < sweep.certified[2].epsilon


def test_delta_moves_no_run() -> None:
    run = make_run()
    deltas = [1e-9, 1e-6, 1e-5]
    sweep = lethe.compare(run, 1e-6, over="delta", values=deltas, theorems=OURS)
    assert [row.epsilon for row in sweep.certified] == [lethe.certify(run, delta).epsilon for delta in deltas]
    assert "delta 1e-06" not in sweep.title
    assert "50 steps" in sweep.title
    assert sweep.own == 1e-6


def test_a_schedule_of_step_sizes_is_multiplied() -> None:
    run = make_run(step_size=lethe.schedules.Exponential(first=0.5, ratio=0.99))
    sweep = lethe.compare(run, 1e-5, over="step_size", values=[0.5, 1.0], theorems=FEW)
    assert sweep.own == 1.0
    assert sweep.axis == "step size, times that of the run"
    assert sweep.certified[1].epsilon == lethe.certify(run, 1e-5, FEW).epsilon


@pytest.mark.parametrize("over", OVERS)
def test_the_grid_holds_the_run_itself_and_fits(over: Any) -> None:
    run = make_run(loss=WEAKLY)
    sweep = lethe.compare(run, 1e-5, over=over, theorems=["composition"])
    assert sweep.own in sweep.values
    assert 3 <= len(sweep.values) <= 13
    place = sweep.values.index(sweep.own)
    assert sweep.certified[place].epsilon == lethe.certify(run, 1e-5, ["composition"]).epsilon
    assert sweep.title.startswith(f"run {run.run_id}, {over} varied")
    assert sweep.to_dict()["over"] == over


def test_a_batch_size_keeps_passes_or_steps() -> None:
    in_passes, in_steps = make_run(passes=2), make_run(steps=50)
    for run, said in ((in_passes, ""), (in_steps, "50 steps")):
        sweep = lethe.compare(run, 1e-5, over="batch_size", values=[10, 20], theorems=FEW)
        assert ("50 steps" in sweep.title) == bool(said)
        moved = run.replace(batches=lethe.batches.Cyclic(20))
        assert sweep.certified[1].epsilon == lethe.certify(moved, 1e-5, FEW).epsilon


@pytest.mark.parametrize(
    ("changes", "over", "values", "words"),
    [
        ({"batches": lethe.batches.Full()}, "batch_size", [10], "no size that could be varied"),
        ({}, "batch_size", [10.5], "whole numbers"),
        ({}, "batch_size", [10**9], "values: at batch_size"),
        ({"loss": lethe.losses.Logistic(feature_norm=1.0)}, "smoothness", [1.0], "states no smoothness"),
        ({"loss": lethe.losses.Logistic(feature_norm=1.0)}, "smoothness", None, "states no smoothness"),
        ({"loss": CONVEX}, "weak_convexity", [0.1], "states no weak convexity"),
        ({}, "step_size", [0.0], "> 0"),
        ({}, "delta", [1.0], "delta"),
        ({}, "delta", [0.0], "> 0"),
        ({}, "curvature", [1.0], "did you mean 'smoothness'"),
        ({"noise_multiplier": [5.0] * 50}, "batch_size", [20], "do not say how a longer"),
    ],
)
def test_a_value_that_no_run_has_is_refused(changes: Any, over: Any, values: Any, words: str) -> None:
    with pytest.raises(lethe.InputError, match=words):
        lethe.compare(make_run(**changes), 1e-5, over=over, values=values, theorems=FEW)


def test_a_large_delta_among_the_values_is_refused_or_told() -> None:
    run = make_run()
    large = 2.0 / run.records
    with pytest.raises(lethe.InputError, match="records"):
        lethe.compare(run, 1e-5, over="delta", values=[1e-6, large], theorems=FEW)
    sweep = lethe.compare(run, 1e-5, over="delta", values=[1e-6, large], theorems=FEW, allow_large_delta=True)
    assert sweep.to_dict()["large_delta"] is True
    assert "published whole" in str(sweep)
    assert "published whole" in sweep.explain()
    assert ">= 1/records" in repr(sweep)
    assert not math.isinf(sweep.certified[0].epsilon or math.inf)
