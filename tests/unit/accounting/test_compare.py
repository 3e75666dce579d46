"""compare: every theorem once, nothing that is no guarantee ever chosen, and sweeps whose points are certificates."""

import json
import math
from typing import Any

import pytest
from helpers import make_run
from made_up_theorems import CLAIMS, FAKES, Fake

import lethe
from lethe.certificates.comparison import Comparison, RowStatus
from lethe.certificates.sweep import OVERS
from lethe.documents.strict import to_json
from lethe.theorems.composition import GaussianComposition
from lethe.theorems.registry import OURS


def _rows(comparison: Comparison) -> dict[str, tuple[RowStatus, float | None]]:
    return {row.theorem: (row.status, row.epsilon) for row in comparison.rows}


def test_what_is_no_guarantee_is_shown_and_never_chosen() -> None:
    comparison = lethe.compare(make_run(), 1e-5, theorems=(*FAKES, *OURS))
    ours = lethe.certify(make_run(), 1e-5)
    assert (comparison.certificate.theorem, comparison.certificate.epsilon) == (ours.theorem, ours.epsilon)
    rows = _rows(comparison)
    for soundness in CLAIMS:
        status, epsilon = rows[f"tiny-{soundness}"]
        assert status == soundness
        assert epsilon == lethe.guarantees.GDP(1e-3).epsilon(1e-5) < ours.epsilon
    assert rows["shadow"][0] == "dominated"
    assert rows["huge"][0] == "looser"
    assert rows["long"] == ("refused", None)
    groups = ["used" if row.status == "used" else row.usable if row.epsilon is not None else "refused" for row in comparison.rows]
    assert groups == sorted(groups, key=["used", True, False, "refused"].index)
    text = comparison.explain()
    assert "(0.0" in next(line for line in text.splitlines() if line.startswith("tiny-refuted"))
    assert "length: length [b] fails (also fails: size)" in text
    assert "it is dominated; here" in text


def test_ratios_say_how_much_looser() -> None:
    best = lethe.guarantees.GDP(1.0).epsilon(1e-5)
    theorems = (Fake("best", 1.0), Fake("same", 1.0), Fake("near", 1.01), Fake("far", 3.0))
    why = {row.theorem: row.why for row in lethe.compare(make_run(), 1e-5, theorems=theorems).rows}
    assert why["best"] == "the smallest epsilon that is proved"
    assert why["same"] == "applies, and says the same"
    assert why["near"] == f"applies, but looser: {100 * (lethe.guarantees.GDP(1.01).epsilon(1e-5) / best - 1):.2g}% larger"
    assert why["far"] == f"applies, but looser: {lethe.guarantees.GDP(3.0).epsilon(1e-5) / best:.3g} times as large"
    named = lethe.compare(make_run(), 1e-5, theorems=["feldman-2018", GaussianComposition()])
    assert sorted(row.theorem for row in named.rows) == ["composition", "feldman-2018"]


def test_a_certificate_of_many_theorems_stays_readable() -> None:
    certificate = lethe.certify(make_run(), 1e-5, (*OURS, *FAKES))
    last = certificate.explain().splitlines()[-1]
    assert last == "17 others do not apply or are looser or claim what is not proved (--all, or explain(every=True))"
    lines = certificate.explain(every=True).splitlines()
    assert len([line for line in lines if line.split()[0] in {other.theorem for other in certificate.others}]) == 17
    assert any(line.startswith("    tiny-refuted ") and "; it claims epsilon = 0.0" in line for line in lines)
    alone = lethe.certify(make_run(), 1e-5, ["composition", "optimal-shift"]).explain().splitlines()
    assert alone[-1] == "1 other is looser (--all, or explain(every=True))"
    assert "other" not in lethe.certify(make_run(), 1e-5, ["composition"]).explain()


def test_a_theorem_may_apply_along_a_part_of_a_sweep_only() -> None:
    sweep = lethe.compare(make_run(), 1e-5, over="steps", values=[500, 1000], theorems=(*OURS, *FAKES))
    assert sweep.epsilons("long") == (None, lethe.guarantees.GDP(0.5).epsilon(1e-5))
    assert all(row.theorem not in ("long", "tiny-refuted") for row in sweep.certified)
    content = json.loads(to_json(sweep.to_dict()))
    assert content == sweep.to_dict()
    assert [line["theorem"] for line in content["lines"]] == [theorem.name for theorem in (*OURS, *FAKES)]


FEW: Any = ["optimal-shift", "composition"]
CONVEX = lethe.losses.Convex(smoothness=0.5, gradient_bound=1.0)
WEAKLY = lethe.losses.WeaklyConvex(weak_convexity=0.1, smoothness=0.5, gradient_bound=1.0)


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


EXPONENTIAL = lethe.schedules.Exponential(first=0.5, ratio=0.99)
IN_STEPS = make_run(steps=50)
LISTED = make_run(noise_multiplier=[1.0] * 25 + [3.0] * 25)
POINTS: list[tuple[lethe.Run, Any, float, lethe.Run]] = [
    (make_run(loss=CONVEX), "step_size", 0.25, make_run(loss=CONVEX, step_size=0.25)),
    (make_run(step_size=EXPONENTIAL), "step_size", 2.0, make_run(step_size=lethe.schedules.Exponential(first=1.0, ratio=0.99))),
    (make_run(passes=2), "batch_size", 20, make_run(passes=2, batches=lethe.batches.Cyclic(20))),  # as many passes, or steps, as it says
    (IN_STEPS, "batch_size", 20, IN_STEPS.replace(batches=lethe.batches.Cyclic(20))),
    (make_run(loss=CONVEX), "smoothness", 1.5, make_run(loss=CONVEX.model_copy(update={"smoothness": 1.5}))),
    (make_run(loss=WEAKLY), "weak_convexity", 0.2, make_run(loss=WEAKLY.model_copy(update={"weak_convexity": 0.2}))),
    (LISTED, "noise", 2.0, LISTED.with_noise_scaled(2.0)),
    (make_run(), "passes", 1, make_run(passes=1)),
    (make_run(), "steps", 20, make_run(steps=20)),
]


@pytest.mark.parametrize(("run", "over", "value", "point"), POINTS)
def test_each_point_is_the_certificate_of_its_run(run: lethe.Run, over: Any, value: float, point: lethe.Run) -> None:
    assert point != run
    sweep = lethe.compare(run, 1e-5, over=over, values=[value], theorems=FEW)
    assert sweep.certified[0].epsilon == lethe.certify(point, 1e-5, FEW).epsilon
    assert ("times" in sweep.axis) == (sweep.own == 1.0)
    assert ("50 steps" in sweep.title) == (run is IN_STEPS or over in ("noise", "step_size", "smoothness", "weak_convexity"))


def test_delta_moves_no_run() -> None:
    run, deltas = make_run(), [1e-9, 1e-6, 1e-5]
    sweep = lethe.compare(run, 1e-6, over="delta", values=[1e-5, *deltas], theorems=FEW)
    assert (sweep.values, sweep.own) == (tuple(deltas), 1e-6)
    assert [row.epsilon for row in sweep.certified] == [lethe.certify(run, delta, FEW).epsilon for delta in deltas]
    assert "delta 1e-06" not in sweep.title


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
