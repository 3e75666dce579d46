"""Certificates: the theorem that is used and its number, what noise, steps and drawn batches change, and labels that do not overstate."""

import math

import numpy as np
import pytest
from helpers import DESIGNS, EXACT_SLOT_DESIGNS, batches, make_run
from scipy import special

import lethe
from lethe.theorems.registry import ALL
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
    assert once.epsilon <= bins.epsilon <= once.epsilon * (1 + 1e-9)
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
