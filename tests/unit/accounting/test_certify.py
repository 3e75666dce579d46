"""Certificates: the theorem that is used, its number and labels; compare: every theorem once, what proves nothing never chosen."""

import json
import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, EXACT_SLOT_DESIGNS, batches, make_run
from made_up_theorems import CLAIMS, FAKES
from scipy import special

import lethe
from lethe.certificates.comparison import Comparison, RowStatus
from lethe.certificates.sweep import OVERS
from lethe.documents.strict import to_json
from lethe.theorems.registry import ALL, OURS
from lethe.theorems.steps import OVERFILL_SLACK, largest_batch, step_constants


def test_an_unknown_loss_is_composition_unless_the_domain_is_bounded() -> None:
    unknown = make_run(loss={"kind": "unknown"}, clip_norm=1.0)
    assert lethe.certify(unknown, 1e-5).theorem == "composition"
    tiny = unknown.replace(regulariser=lethe.regularisers.Ball(1e-3), step_size=0.5)
    epsilon = lethe.certify(tiny, 1e-5, ["optimal-shift"]).epsilon
    # One step: mu = (D + 2 lambda C) / tau with tau = .5 * 5 * 1 / 10.
    assert lethe.guarantees.GDP((2e-3 + 2 * 0.5) / 0.25).epsilon(1e-5) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("design", DESIGNS)
def test_no_noise_is_infinite_and_says_so(design: str) -> None:
    certificate = lethe.certify(make_run(batches=batches(design, 10), noise_multiplier=0.0), 1e-5)
    assert certificate.epsilon == math.inf
    assert "NOT PRIVATE" in certificate.explain()
    assert certificate.to_dict()["epsilon"] == "inf"
    if design in ("cyclic", "shuffled_once"):  # none after the last touch: of the last slot, a secret one with probability 1/10
        end = lethe.certify(make_run(noise_multiplier=[5.0] * 49 + [0.0], batches=batches(design, 10)), 1e-5)
        assert end.epsilon == math.inf
        assert design == "cyclic" or 0.1 < end.delta_at(50.0) < 0.2


def test_noise_at_pass_ends_costs_what_one_touch_a_pass_costs() -> None:
    # theory.md section 6: for L = 1 the pass is one map, mu^2 = sum over passes of (s/tau)^2, whatever the order inside.
    for design in EXACT_SLOT_DESIGNS:
        certificate = lethe.certify(make_run(batches=batches(design, 10), noise_at="pass_ends"), 1e-5)
        assert certificate.theorem == "optimal-shift"
        assert certificate.epsilon == pytest.approx(lethe.guarantees.GDP(math.sqrt(5) * 2 / 5.0).epsilon(1e-5), rel=1e-9)
    # Constant L > 1: a pass moves by at most s L^(l-1), nothing merges, and each pass pays for itself.
    run = make_run(noise_at="pass_ends", loss={"kind": "smooth", "smoothness": 0.2, "gradient_bound": 1.0})
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    assert guarantee.mu == pytest.approx(math.sqrt(5) * 2 / 5.0 * (1 + 0.5 * 0.2) ** 9, rel=1e-9)


def test_a_step_beyond_the_hypothesis_expands_and_the_certificate_says_so() -> None:
    certificate = lethe.certify(make_run(step_size=6.0), 1e-5)  # 2/M = 4
    assert certificate.theorem == "optimal-shift"
    assert certificate.lipschitz is not None
    assert certificate.lipschitz.constant == pytest.approx(2.0)  # |1 - 6/2|
    assert any("expands" in finding.detail for finding in certificate.findings)
    assert certificate.epsilon > lethe.certify(make_run(step_size=4.0), 1e-5).epsilon


def test_the_contraction_is_that_of_the_step_before() -> None:
    """Unequal step sizes: the prox of step 1 contracts by 1/(1 + .1 * 4), not that of step 2."""
    sizes = (0.1, 1.0)
    run = make_run(regulariser={"kind": "ridge", "strength": 4.0}, steps=2, batches={"design": "full"}, step_size=list(sizes))
    touches, noises = run.sensitivities, run.noise_stds
    first = np.linspace(0, 1, 200_001) * touches[0]
    cost = (first / noises[0]) ** 2 + ((touches[1] + (touches[0] - first) / (1 + sizes[0] * 4.0)) / noises[1]) ** 2
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.guarantees.GDP)
    assert guarantee.mu == pytest.approx(math.sqrt(cost.min()), rel=1e-8)


def test_an_empty_batch_contracts_nothing() -> None:
    loss = {"kind": "strongly_convex", "strong_convexity": 0.5, "smoothness": 1.0, "gradient_bound": 1.0}
    # Batches of 100 among 2000 stay below 250, so that a step of .05 times 2.5 cannot expand.
    runs = [make_run(records=2000, loss=loss, batches=batches(design, 100), step_size=0.05) for design in ("cyclic", "poisson")]
    fixed, random = map(step_constants, runs)
    assert fixed is not None
    assert random is not None
    assert fixed.lipschitz.max() == pytest.approx(0.975)
    assert random.lipschitz.min() == random.lipschitz.max() == 1.0


def test_a_contracting_prox_does_not_shrink_a_bounded_domain() -> None:
    """The reset of the shift is measured before the prox: with ridge and ball it is D (1 + lambda kappa), not D."""
    radius, strength, step = 0.05, 4.0, 0.5
    run = make_run(
        regulariser=[{"kind": "ridge", "strength": strength}, {"kind": "ball", "radius": radius}],
        loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0},
        steps=30,
        step_size=step,
        noise_multiplier=1.0,
        batches={"design": "full"},
        records=10,
    )
    # Two iterates at opposite ends of the ball, one linear step with noise tau = .05: they stay D apart, plus the touch s = 2 lambda / n.
    steps = step_constants(run)
    assert steps is not None
    assert steps.diameter is not None
    assert steps.lipschitz[-1] * steps.diameter[-2] == pytest.approx(2 * radius, rel=1e-12)


def test_one_step_on_a_ball_counts_the_added_record_too() -> None:
    """Full batch, add or remove: one side has one clipped gradient more. Two records, unknown losses, a tiny ball: record A's gradient is
    -1/4 at 0, +1 left of 0 and -1 right of it, the added one's is +1. After a step without noise {A} sits at +r and {A, B} at -r; after
    a step with noise 1 the sign of x tells them apart: delta(.5) is at least Phi(1) - e^.5 Phi(-2)."""
    run = lethe.Run(
        records=1,
        batches=lethe.batches.Full(),
        steps=2,
        step_size=1.0,
        clip_norm=1.0,
        noise_multiplier=[0.0, 1.0],
        loss=lethe.losses.Unknown(),
        regulariser=lethe.regularisers.Ball(1e-6),
        neighbours="add_or_remove",
        release="last",
    )
    attack = special.ndtr(1.0) - math.exp(0.5) * special.ndtr(-2.0)
    assert lethe.certify(run, 0.6, allow_large_delta=True).delta_at(0.5) >= attack


def test_labels_claim_no_more_than_was_seen() -> None:
    findings = {finding.name: finding for finding in lethe.certify(make_run(regulariser={"kind": "ball", "radius": 9.0}), 1e-5).findings}
    assert findings["release"].evidence == "declared"
    assert findings["curvature"].evidence == "declared"
    assert findings["domain"].evidence == "checked"
    box = lethe.certify(make_run(regulariser={"kind": "box", "half_width": 0.01, "dimension": 4}), 1e-5)
    assert {finding.name: finding.evidence for finding in box.findings}["domain"] == "declared"
    with pytest.raises(lethe.InputError, match="nothing enforces"):
        make_run(loss={"kind": "convex", "smoothness": 0.0, "gradient_bound": 1.0, "evidence": "enforced"})
    run = make_run(records=2000, batches=batches("balls_in_bins", 100), step_size=3.0, noise_multiplier=20.0)
    overfull = lethe.certify(run, 1e-5, ["optimal-shift"])
    (step,) = [finding.detail for finding in overfull.findings if finding.name == "step size"]
    assert "such a step expands" in step  # 3 <= 4, but not for the batch sizes allowed for
    assert "divided by 100" in step


def test_theorems_may_be_given_by_name_and_what_is_no_guarantee_is_never_chosen_even_alone() -> None:
    run = make_run()
    assert lethe.certify(run, 1e-5, theorems=["composition", "feldman-2018"]).theorem == "feldman-2018"
    assert lethe.certify(run, 1e-5, theorems="composition").theorem == "composition"
    epsilon = next(theorem for theorem in ALL if theorem.name == "kong-ribero-2024-4.5").bound(run).guarantee.epsilon(1e-5)
    certificate = lethe.certify(run, 1e-5, theorems=["kong-ribero-2024-4.5", "composition"])
    assert certificate.theorem == "composition"
    assert epsilon < certificate.epsilon
    with pytest.raises(lethe.HypothesisError):
        lethe.certify(run, 1e-5, theorems=["kong-ribero-2024-4.5"])


def test_the_step_constant_allows_for_overfull_random_batches() -> None:
    """A random batch is divided by the nominal size: K records act as a step size times K/b, so L = 1 needs room above b."""
    run = make_run(records=2000, batches=batches("poisson", 100), step_size=3.0, passes=5)
    steps = step_constants(run)
    assert steps is not None
    assert steps.slack == OVERFILL_SLACK
    fixed = step_constants(run.replace(batches=lethe.batches.WithoutReplacement(100)))
    assert fixed is not None
    assert fixed.slack == 0
    assert fixed.constant.constant == 1.0
    # h = 3 * .5 = 1.5 at the nominal size; the largest batch allowed for is K with P(Bin(2000, .05) > K) * 100 steps <= 1e-18.
    counts = np.arange(100, 400)
    largest = counts[np.flatnonzero(special.bdtrc(counts, 2000, 0.05) * 100 <= OVERFILL_SLACK)[0]] + 1
    assert steps.constant.constant == pytest.approx(abs(1 - 1.5 * largest / 100), rel=1e-12)
    assert steps.constant.constant > 1


def test_balls_in_bins_is_the_average_over_bins_and_pays_for_overfull_ones() -> None:
    run = make_run(records=2000, batches=batches("balls_in_bins", 100), step_size=0.5)
    bins = lethe.certify(run, 1e-5, ["optimal-shift"])
    once = lethe.certify(run.replace(batches=lethe.batches.ShuffledOnce(100)), 1e-5)
    # Same positions; only the slack for overfull bins separates them.
    assert once.epsilon * (1 - 1e-12) <= bins.epsilon <= once.epsilon * (1 + 1e-9)
    noisy = run.replace(regulariser=lethe.regularisers.L2(5.0), noise_multiplier=50.0)
    assert lethe.certify(noisy, 1e-5, ["optimal-shift"]).delta_at(1000.0) >= OVERFILL_SLACK


def test_the_largest_batch_is_the_smallest_that_is_safe() -> None:
    run = make_run(records=2000, batches=batches("poisson", 20), steps=100)
    largest, slack = largest_batch(run)
    # The other 1999 records fill it, with the record in question besides.
    assert 100 * float(special.bdtrc(largest - 1, 1999, 0.01)) <= slack == OVERFILL_SLACK
    assert 100 * float(special.bdtrc(largest - 2, 1999, 0.01)) > slack
    for relation, most in (("zero_out", 5), ("replace_one", 5), ("add_or_remove", 6)):  # 1e-18 is not to be had with so few records
        for size in (3, 5):
            assert largest_batch(make_run(records=5, batches=batches("poisson", size), neighbours=relation)) == (most, 0.0)


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
    assert sweep.run_value in sweep.values
    assert 3 <= len(sweep.values) <= 13
    place = sweep.values.index(sweep.run_value)
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
    assert ("times" in sweep.axis) == (sweep.run_value == 1.0)
    assert ("50 steps" in sweep.title) == (run is IN_STEPS or over in ("noise", "step_size", "smoothness", "weak_convexity"))


def test_delta_moves_no_run() -> None:
    run, deltas = make_run(), [1e-9, 1e-6, 1e-5]
    sweep = lethe.compare(run, 1e-6, over="delta", values=[1e-5, *deltas], theorems=FEW)
    assert (sweep.values, sweep.run_value) == (tuple(deltas), 1e-6)
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
