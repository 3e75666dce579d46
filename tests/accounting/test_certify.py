import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run
from scipy import special

import lethe
from lethe.theorems.registry import ALL, OURS
from lethe.theorems.shift import engine as shift
from lethe.theorems.steps import OVERFILL_SLACK, largest_batch, step_constants


def _others(certificate: lethe.Certificate) -> dict[str, tuple[str, float | None, str]]:
    return {other.theorem: (other.status, other.epsilon, other.why) for other in certificate.others}


@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "shuffled", "poisson"])
def test_the_schema_s_example(design: str) -> None:
    run = lethe.Run(
        records=60_000,
        batches=batches(design, 600),
        passes=20,
        step_size=0.5,
        clip_norm=None,
        noise_multiplier=10.0,
        noise_at="every_step",
        loss=lethe.losses.Softmax(feature_norm=1.0),
        regulariser=None,
        release="last",
        neighbours="replace_one",
    )
    certificate = lethe.certify(run, delta=1e-6)
    assert 0 < certificate.epsilon < 1.5
    assert {certificate.theorem, *_others(certificate)} == {theorem.name for theorem in OURS}
    assert all(why for _, _, why in _others(certificate).values())
    if design == "poisson":
        assert certificate.theorem == "sampled-gaussian"
    else:
        status, epsilon, why = _others(certificate)["sampled-gaussian"]
        assert (status, epsilon) == ("refused", None)
        assert design in why
        assert certificate.theorem == "optimal-shift"


def test_releasing_every_iterate_refuses_the_optimal_shift() -> None:
    certificate = lethe.certify(make_run(release="all"), 1e-5)
    assert certificate.theorem == "composition"
    assert "release is all" in _others(certificate)["optimal-shift"][2]


def test_an_unknown_loss_is_composition_unless_the_domain_is_bounded() -> None:
    unknown = make_run(loss={"kind": "unknown"}, clip_norm=1.0)
    assert lethe.certify(unknown, 1e-5).theorem == "composition"
    tiny = unknown.replace(regulariser=lethe.Ball(radius=1e-3), step_size=0.5)
    certificate = lethe.certify(tiny, 1e-5)
    # One step: mu = (D + 2 lambda C) / tau with tau = .5 * 5 * 1 / 10.
    assert lethe.GDP((2e-3 + 2 * 0.5) / 0.25).epsilon(1e-5) == pytest.approx(_epsilon(certificate, "optimal-shift"), rel=1e-12)


def _epsilon(certificate: lethe.Certificate, theorem: str) -> float | None:
    return certificate.epsilon if certificate.theorem == theorem else _others(certificate)[theorem][1]


@pytest.mark.parametrize("design", ["poisson", "balls_in_bins"])
def test_one_step_on_a_bounded_domain_needs_batches_of_exact_size(design: str) -> None:
    run = make_run(batches=batches(design, 10), loss={"kind": "unknown"}, clip_norm=1.0, regulariser={"kind": "ball", "radius": 1e-3})
    status, epsilon, why = _others(lethe.certify(run, 1e-5))["optimal-shift"]
    assert (status, epsilon) == ("refused", None)
    assert "exact size" in why


@pytest.mark.parametrize("design", DESIGNS)
def test_no_noise_is_infinite_and_says_so(design: str) -> None:
    certificate = lethe.certify(make_run(batches=batches(design, 10), noise_multiplier=0.0), 1e-5)
    assert certificate.epsilon == math.inf
    assert "NOT PRIVATE" in certificate.explain()
    assert certificate.to_dict()["epsilon"] == "inf"


def test_no_noise_after_the_last_touch_is_infinite() -> None:
    listed = [5.0] * 49 + [0.0]
    certificate = lethe.certify(make_run(noise_multiplier=listed), 1e-5)
    assert certificate.epsilon == math.inf  # cyclic: the record of the last slot
    average = lethe.certify(make_run(noise_multiplier=listed, batches=batches("shuffled_once", 10)), 1e-5)
    assert average.epsilon == math.inf  # it is in the last slot with probability 1/10 > delta
    assert 0.1 < average.delta_at(50.0) < 0.2


def test_noise_at_pass_ends_costs_what_one_touch_a_pass_costs() -> None:
    # theory.md section 6: for L = 1 the pass is one map, mu^2 = sum over passes of (s/tau)^2, whatever the order inside.
    for design in ("cyclic", "shuffled_once", "shuffled"):
        certificate = lethe.certify(make_run(batches=batches(design, 10), noise_at="pass_ends"), 1e-5)
        assert certificate.theorem == "optimal-shift"
        assert certificate.epsilon == pytest.approx(lethe.GDP(math.sqrt(5) * 2 / 5.0).epsilon(1e-5), rel=1e-9)


def test_noise_at_pass_ends_with_expanding_steps() -> None:
    # theory.md section 6: constant L: a pass moves by at most s L^(l-1) and has constant L^l; the engine over passes bounds it.
    run = make_run(noise_at="pass_ends", loss={"kind": "smooth", "smoothness": 0.2, "gradient_bound": 1.0})
    expansion = 1 + 0.5 * 0.2
    touch = 2 / 5.0
    exact = math.sqrt(5) * touch * expansion**9  # L > 1: nothing merges, each pass pays for itself
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.GDP)
    assert guarantee.mu == pytest.approx(exact, rel=1e-9)


def test_a_step_beyond_the_hypothesis_expands_and_the_certificate_says_so() -> None:
    certificate = lethe.certify(make_run(step_size=6.0), 1e-5)  # 2/M = 4
    assert certificate.theorem == "optimal-shift"
    assert certificate.lipschitz is not None
    assert certificate.lipschitz.constant == pytest.approx(2.0)  # |1 - 6/2|
    assert any("expands" in finding.detail for finding in certificate.findings)
    assert certificate.epsilon > lethe.certify(make_run(step_size=4.0), 1e-5).epsilon


def test_a_ridge_contracts_from_the_next_step_on() -> None:
    run = make_run(regulariser={"kind": "ridge", "strength": 0.4}, steps=2, batches={"design": "full"})
    contraction = 1 / (1 + 0.5 * 0.4)
    # Two full-batch steps, L_2 = contraction: z_1 = s merges or not; brute force over a_1 in [0, s].
    touch = 2 / 5.0
    first = np.linspace(0, 1, 200_001)
    cost = first**2 + (1 + contraction * (1 - first)) ** 2
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.GDP)
    assert guarantee.mu == pytest.approx(touch * math.sqrt(cost.min()), rel=1e-8)


def test_the_contraction_is_that_of_the_step_before() -> None:
    """Unequal step sizes: the prox of step 1 contracts by 1/(1 + .1 * 4), not that of step 2."""
    sizes = (0.1, 1.0)
    run = make_run(regulariser={"kind": "ridge", "strength": 4.0}, steps=2, batches={"design": "full"}, step_size=list(sizes))
    touches, noises = run.sensitivities, run.noise_stds
    first = np.linspace(0, 1, 200_001) * touches[0]
    cost = (first / noises[0]) ** 2 + ((touches[1] + (touches[0] - first) / (1 + sizes[0] * 4.0)) / noises[1]) ** 2
    guarantee = lethe.certify(run, 1e-5).guarantee
    assert isinstance(guarantee, lethe.GDP)
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


def test_the_slack_of_overfull_batches_is_part_of_the_guarantee() -> None:
    ridge = {"kind": "ridge", "strength": 5.0}
    certificate = lethe.certify(
        make_run(records=2000, batches=batches("balls_in_bins", 100), regulariser=ridge, noise_multiplier=50.0), 1e-5, ["optimal-shift"]
    )
    assert certificate.delta_at(1000.0) >= OVERFILL_SLACK


def test_composition_of_fresh_orders_takes_the_worst_slot_of_each_pass() -> None:
    noises = [4.0, 8.0, 2.0, 16.0] * 3
    run = make_run(records=40, batches=batches("shuffled", 10), passes=3, noise_multiplier=noises, release="all")
    assert lethe.certify(run, 1e-5).epsilon == pytest.approx(lethe.GDP(math.sqrt(3) * 2 / 2.0).epsilon(1e-5), rel=1e-12)


@pytest.mark.slow
def test_poisson_sampling_end_to_end() -> None:
    # peers_accounting: q = .01, z = 1, T = 1e4, delta = 1e-5 by privacy loss distributions: 6.1877 for zero out, 10.8808 for replace one.
    run = make_run(records=1000, batches=batches("poisson", 10), steps=10_000, noise_multiplier=1.0, release="all")
    for relation, epsilon in (("zero_out", 6.1877), ("add_or_remove", 6.1877), ("replace_one", 10.8808)):
        assert lethe.certify(run.replace(neighbours=relation), 1e-5).epsilon == pytest.approx(epsilon, rel=2e-4)


@pytest.mark.slow
def test_fresh_orders_are_not_taken_for_one() -> None:
    """Clipped steps, 100 batches, 20 passes, h = .05, s/tau = .1: averaged over 1500 random paths the optimum of each gives .2595
    (standard error .0005); one shuffle, another mechanism, gives .2457."""
    run = make_run(
        records=1000,
        batches=batches("shuffled", 10),
        passes=20,
        step_size=0.05,
        clip_norm=1.0,
        noise_multiplier=20.0,
        loss={"kind": "convex", "smoothness": 1.0},
    )
    assert 0.258 <= lethe.certify(run, 1e-5).epsilon <= 1.03 * 0.2595
    assert lethe.certify(run.replace(batches=lethe.ShuffledOnce(size=10)), 1e-5).epsilon == pytest.approx(0.24575, rel=1e-3)


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
        batches=lethe.Full(),
        steps=2,
        step_size=1.0,
        clip_norm=1.0,
        noise_multiplier=[0.0, 1.0],
        loss=lethe.losses.Unknown(),
        regulariser=lethe.Ball(radius=1e-6),
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


@pytest.mark.parametrize("run", [None, {}, "run.yaml"])
def test_what_is_no_run_is_refused(run: object) -> None:
    with pytest.raises(lethe.InputError, match=r"needs a lethe\.Run"):
        lethe.certify(run, 1e-5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(lethe.InputError, match=r"needs a lethe\.Run"):
        lethe.plan(run, 1.0, 1e-5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan, "x", "1e-5", True, None, [1]])
def test_delta_out_of_range(delta: Any) -> None:
    with pytest.raises(lethe.InputError, match="delta"):
        lethe.certify(make_run(), delta)


def test_a_run_without_noise_yet_is_not_certified() -> None:
    with pytest.raises(lethe.InputError, match="no noise yet"):
        lethe.certify(make_run(noise_multiplier=None), 1e-5)


def test_the_step_constant_allows_for_overfull_random_batches() -> None:
    """A random batch is divided by the nominal size: K records act as a step size times K/b, so L = 1 needs room above b."""
    run = make_run(records=2000, batches=batches("poisson", 100), step_size=3.0, passes=5)
    steps = step_constants(run)
    assert steps is not None
    assert steps.slack == OVERFILL_SLACK
    fixed = step_constants(run.replace(batches=lethe.WithoutReplacement(size=100)))
    assert fixed is not None
    assert fixed.slack == 0
    assert fixed.constant.constant == 1.0
    # h = 3 * .5 = 1.5 at the nominal size; the largest batch allowed for is K with P(Bin(2000, .05) > K) * 100 steps <= 1e-18.
    counts = np.arange(100, 400)
    largest = counts[np.flatnonzero(special.bdtrc(counts, 2000, 0.05) * 100 <= OVERFILL_SLACK)[0]] + 1
    assert steps.constant.constant == pytest.approx(abs(1 - 1.5 * largest / 100), rel=1e-12)
    assert steps.constant.constant > 1


def test_balls_in_bins_is_the_average_over_bins() -> None:
    run = make_run(records=2000, batches=batches("balls_in_bins", 100), step_size=0.5)
    bins = lethe.certify(run, 1e-5, ["optimal-shift"])
    once = lethe.certify(make_run(records=2000, batches=batches("shuffled_once", 100), step_size=0.5), 1e-5)
    # Same positions; only the slack for overfull bins separates them.
    assert once.epsilon <= bins.epsilon <= once.epsilon * (1 + 1e-9)


def test_composition_of_one_secret_order_is_the_average_over_slots() -> None:
    noises = [4.0, 8.0, 2.0, 16.0] * 3
    for design in ("shuffled_once", "balls_in_bins"):
        run = make_run(records=40, batches=batches(design, 10), passes=3, noise_multiplier=noises, release="all")
        certificate = lethe.certify(run, 1e-5, ["composition"])
        for epsilon in (0.1, 1.0, 3.0):
            average = np.mean([lethe.GDP(math.sqrt(3) * 2 / noise).delta(epsilon) for noise in noises[:4]])
            assert certificate.delta_at(epsilon) == pytest.approx(average, rel=1e-9)


@pytest.mark.parametrize("design", ["full", "poisson", "without_replacement"])
def test_random_batches_are_touched_at_every_step_without_credit(design: str) -> None:
    run = make_run(batches=batches(design, 10), regulariser={"kind": "ridge", "strength": 0.4}, steps=50)
    contraction = 1 / (1 + 0.5 * 0.4)
    engine = shift.solve([contraction] * 50, run.sensitivities, run.noise_stds).mu
    epsilon = _epsilon(lethe.certify(run, 1e-5), "optimal-shift")
    assert epsilon == pytest.approx(lethe.GDP(engine).epsilon(1e-5), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_sampling_without_replacement_end_to_end(relation: str) -> None:
    """No better than Poisson batches of the noise that a batch's contents are apart (2/z when a record is replaced, 1/z when it is zeroed
    out), and not as bad as the Rényi bound, which dp_accounting's conversion gives as 118.7."""
    run = make_run(records=1000, batches=batches("without_replacement", 10), steps=10_000, noise_multiplier=1.0, release="all")
    noise = 0.5 if relation == "replace_one" else 1.0
    poisson = run.replace(batches=batches("poisson", 10), noise_multiplier=noise, neighbours="zero_out")
    epsilon = lethe.certify(run.replace(neighbours=relation), 1e-5).epsilon
    assert lethe.certify(poisson, 1e-5).epsilon <= epsilon < 118.7 / 2


def test_theorems_may_be_given_by_name() -> None:
    run = make_run()
    assert lethe.certify(run, 1e-5, theorems=["composition", "feldman-2018"]).theorem == "feldman-2018"
    assert lethe.certify(run, 1e-5, theorems="composition").theorem == "composition"
    for bad in (["feldmann-2018"], [3], None):
        with pytest.raises(lethe.InputError, match="names of theorems"):
            lethe.certify(run, 1e-5, theorems=bad)
    with pytest.raises(lethe.HypothesisError, match=r"can certify run .*\(windowed\)"):
        lethe.certify(run, 1e-5, theorems=["windowed"])


def test_a_name_stands_for_one_theorem_only() -> None:
    with pytest.raises(lethe.InputError, match="is there twice"):
        lethe.certify(make_run(), 1e-5, theorems=["composition", "composition"])


@pytest.mark.parametrize(("relation", "most"), [("zero_out", 5), ("replace_one", 5), ("add_or_remove", 6)])
def test_the_largest_batch_counts_a_record_that_may_be_added(relation: Any, most: int) -> None:
    for size in (3, 5):  # 1e-18 is not to be had with so few records
        run = make_run(records=5, batches=batches("poisson", size), neighbours=relation)
        assert largest_batch(run) == (most, 0.0)


def test_the_largest_batch_is_the_smallest_that_is_safe() -> None:
    run = make_run(records=2000, batches=batches("poisson", 20), steps=100)
    largest, slack = largest_batch(run)
    # The other 1999 records fill it, with the record in question besides.
    assert 100 * float(special.bdtrc(largest - 1, 1999, 0.01)) <= slack == OVERFILL_SLACK
    assert 100 * float(special.bdtrc(largest - 2, 1999, 0.01)) > slack


def test_what_is_no_guarantee_is_never_chosen_even_alone() -> None:
    run = make_run()
    epsilon = next(theorem for theorem in ALL if theorem.name == "kong-ribero-2024-4.5").bound(run).guarantee.epsilon(1e-5)
    certificate = lethe.certify(run, 1e-5, theorems=["kong-ribero-2024-4.5", "composition"])
    assert certificate.theorem == "composition"
    assert epsilon < certificate.epsilon
    with pytest.raises(lethe.HypothesisError):
        lethe.certify(run, 1e-5, theorems=["kong-ribero-2024-4.5"])


def test_a_published_formula_for_the_same_number_does_not_take_its_place() -> None:
    """The engine's outward rounding grows with the steps: Bok et al.'s closed form is below it by 1e-8 here."""
    run = make_run(passes=10_000, noise_multiplier=300.0)
    everything = lethe.certify(run, 1e-5, theorems=ALL)
    assert everything.theorem == lethe.certify(run, 1e-5).theorem == "optimal-shift"
    assert everything.epsilon == lethe.certify(run, 1e-5).epsilon
