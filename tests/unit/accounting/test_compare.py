"""compare: every theorem once, each with its reason, nothing that is no guarantee ever chosen, and sweeps whose points are certificates."""

import json
import math
from typing import Any

import pytest
from helpers import DESIGNS, batches, make_run
from made_up_theorems import CLAIMS, FAKES, Fake

import lethe
from lethe.certificates.comparison import Comparison, RowStatus
from lethe.certificates.sweep import OVERS
from lethe.documents.strict import to_json
from lethe.theorems.composition import GaussianComposition
from lethe.theorems.registry import ALL, OURS


def _rows(comparison: Comparison) -> dict[str, tuple[RowStatus, float | None]]:
    return {row.theorem: (row.status, row.epsilon) for row in comparison.rows}


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("release", ["last", "all"])
@pytest.mark.parametrize("design", DESIGNS)
def test_every_theorem_appears_once_with_a_reason(design: str, release: str) -> None:
    run = make_run(batches=batches(design, 10), release=release)
    comparison = lethe.compare(run, 1e-5)
    assert sorted(row.theorem for row in comparison.rows) == sorted(theorem.name for theorem in ALL)
    assert all(row.why and row.citations for row in comparison.rows)
    assert {row.theorem for row in comparison.rows if row.ours} == {theorem.name for theorem in OURS}
    assert [row.status for row in comparison.rows].count("used") == 1
    assert comparison.rows[0].status == "used"
    assert comparison.rows[0].theorem == comparison.certificate.theorem
    assert comparison.certificate.epsilon == comparison.rows[0].epsilon == lethe.certify(run, 1e-5, ALL).epsilon
    # No sound published bound is smaller, but by rounding where one is a special case of ours.
    assert comparison.certificate.epsilon == pytest.approx(lethe.certify(run, 1e-5).epsilon, rel=1e-9)
    for row in comparison.rows:
        assert (row.epsilon is None) == (row.status == "refused")
        if row.status == "refused":
            theorem = next(theorem for theorem in ALL if theorem.name == row.theorem)
            failing = [finding for finding in theorem.examine(run) if finding.status == "fails"]
            assert (row.hypothesis, row.why) == (failing[0].name, failing[0].detail)
        else:
            assert row.hypothesis is None
        if row.usable:
            assert row.epsilon is not None
            assert row.epsilon >= comparison.certificate.epsilon * (1 - 1e-9)  # a tie goes to the first in the registry


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


@pytest.mark.slow
def test_a_sweep_over_noise_is_monotone_and_holds_the_run() -> None:
    run = make_run()
    sweep = lethe.compare(run, 1e-5, over="noise")
    assert sweep.own == 5.0
    assert 5.0 in sweep.values
    assert sweep.values[0] == pytest.approx(5 / 3, rel=1e-3)  # four digits
    assert sweep.values[-1] == 15.0
    for theorem in OURS:
        epsilons = [epsilon for epsilon in sweep.epsilons(theorem.name) if epsilon is not None]
        assert len(epsilons) in (0, len(sweep.values))
        assert epsilons == sorted(epsilons, reverse=True)
    assert sweep.certified[sweep.values.index(5.0)].epsilon == lethe.certify(run, 1e-5, ALL).epsilon


@pytest.mark.parametrize("noise", [[1.0] * 25 + [3.0] * 25, {"schedule": "exponential", "first": 5.0, "ratio": 1.01}])
def test_a_schedule_of_noise_is_swept_by_a_factor(noise: object) -> None:
    run = make_run(noise_multiplier=noise)
    sweep = lethe.compare(run, 1e-5, over="noise", values=[2, 1, 2], theorems=OURS)
    assert (sweep.values, sweep.own) == ((1.0, 2.0), 1.0)
    assert "times" in sweep.axis
    assert [row.epsilon for row in sweep.certified] == [lethe.certify(run.with_noise_scaled(factor), 1e-5).epsilon for factor in (1, 2)]


@pytest.mark.slow
def test_a_sweep_over_length() -> None:
    run = make_run()
    told: list[tuple[int, int]] = []
    steps = lethe.compare(run, 1e-5, over="steps", theorems=OURS, progress=lambda done, points: told.append((done, points)))
    assert told == [(point, len(steps.values)) for point in range(1, len(steps.values) + 1)]
    assert (steps.values[0], steps.values[-1], steps.own) == (10, 500, 50)
    assert 50 in steps.values
    assert all(value % 10 == 0 for value in steps.values)
    passes = lethe.compare(run, 1e-5, over="passes", theorems=OURS)
    assert tuple(10 * value for value in passes.values) == steps.values
    assert [row.epsilon for row in passes.certified] == [row.epsilon for row in steps.certified]
    assert passes.epsilons("composition")[0] == lethe.certify(run.replace(passes=1), 1e-5, (GaussianComposition(),)).epsilon
    assert lethe.compare(make_run(steps=4), 1e-5, over="steps", theorems=OURS).values[-1] == 40  # shorter than a pass
    with pytest.raises(lethe.InputError, match="the sweep holds no theorem of that name") as raised:
        passes.epsilons("compositon")
    assert raised.value.remedy == "give a name such as composition."


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
