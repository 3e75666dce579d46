"""The shape of noise: equal privacy, least harm, and honest words; correlated noise, pass ends and other batches among the candidates."""

from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run
from scipy import linalg

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.calculus.composition import overshoot
from lethe.calculus.correlated.sensitivity import output_square, sensitivity
from lethe.noise_allocation.allocate import SCHEDULES, allocate
from lethe.noise_allocation.candidates import other_designs, step_noise
from lethe.noise_allocation.noise_shapes import correlated, harm_of, influence_of_curvature, shaped
from lethe.run.schedules import Influence

DELTA = 1e-5
CONVEX = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}
DECAY, FLAT = Influence(rate=0.95, basis="assumed"), Influence(rate=1.0, basis="assumed")


def run_of(**changes: Any) -> lethe.Run:
    return make_run(**{"noise_multiplier": None, "loss": CONVEX, **changes})


def clipped(**changes: Any) -> lethe.Run:
    """Cyclic batches of a loss of which nothing is known."""
    unknown = {"loss": {"kind": "unknown"}, "clip_norm": 1.0, "neighbours": "zero_out"}
    return run_of(**{"records": 200, "batches": batches("cyclic", 20), "passes": 5, **unknown, **changes})


# Every trial composes sampled Gaussians, or convolves the laws of bins.
SLOW = ("poisson", "cyclic_poisson", "without_replacement", "balls_in_bins")


AT_NIGHT = pytest.mark.nightly(by_day="test_random_batches_are_calibrated_by_the_heterogeneous_accountant")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("design", "release"),
    [
        *((design, release) for design in DESIGNS if design not in SLOW for release in ("last", "all")),
        *(pytest.param(design, release, marks=AT_NIGHT) for design, release in zip(SLOW, ("all", "all", "last", "last"), strict=True)),
    ],
)
def test_every_candidate_meets_the_target_and_the_chosen_one_does_least_harm(design: str, release: str) -> None:
    passes = 1 if design in SLOW else 4  # four steps of four different noises
    run = make_run(batches=batches(design, 25), records=100, passes=passes, release=release, noise_multiplier=None)
    found = allocate(run, 1.0, DELTA, influence=DECAY)
    harms = []
    for one in found.candidates:
        if one.run is None:
            assert one.shape in ("joint", "pass_ends", "correlated")
            assert one.why
            continue
        assert lethe.certify(one.run, DELTA).epsilon <= 1.0
        assert lethe.certify(one.run.with_noise_scaled(1 - 1e-4), DELTA).epsilon > 1.0
        shares = np.sqrt(DECAY.values(run.total_steps)) * one.run.uncorrelated.noise_stds
        strategy = np.array([1.0] + [0.0] * (run.total_steps - 1)) if one.run.noise is None else one.run.noise.strategy(run.total_steps)
        assert one.harm == pytest.approx(float(np.sum((shares @ np.linalg.inv(np.tril(linalg.toeplitz(strategy)))) ** 2)))
        if not one.needs:
            harms.append(one.harm)
    assert found.chosen.harm <= min(harms) * 1.001
    assert found.certificate.epsilon <= 1.0


def test_uniform_is_plan_and_the_influence_schedule_of_full_batches_the_closed_form() -> None:
    """Composition: z_t proportional to q_t^(-1/4)."""
    run = make_run(noise_multiplier=None)
    assert allocate(run, 1.0, DELTA, schedule="uniform").run == lethe.plan(run, 1.0, DELTA)
    run = run.replace(batches=lethe.batches.Full(), steps=20, release="all")
    found = allocate(run, 1.0, DELTA, schedule="influence", influence=DECAY).run
    expected = DECAY.values(20) ** -0.25
    assert found.noise_multipliers / found.noise_multipliers[-1] == pytest.approx(expected / expected[-1], rel=1e-9)


def test_where_nothing_contracts_full_batches_gain_nothing_from_the_last_iterate_and_it_says_so() -> None:
    found = allocate(run_of(batches={"design": "full"}, steps=20), 1.0, DELTA, influence=DECAY)
    assert found.chosen.shape == "exponential"  # the simplest of the equal ones
    assert any("already optimal" in note for note in found.notes)


def test_cyclic_batches_put_the_noise_at_pass_ends_and_gain() -> None:
    """And it says what that does not protect."""
    run = run_of(batches=batches("cyclic", 20), passes=4)
    found = allocate(run, 1.0, DELTA)
    assert found.chosen.shape == "pass_ends"  # the joint optimum, said more simply
    assert np.flatnonzero(found.run.noise_multipliers).tolist() == [4, 9, 14, 19]
    assert found.run == lethe.plan(run.replace(noise_at="pass_ends"), 1.0, DELTA)
    assert found.chosen.harm < found.candidates[0].harm / 1.3
    for said in ("1/", "16 of 20 steps have no noise"):
        assert any(said in note for note in found.notes)
    assert found.chosen.shape in found.explain()
    assert len(repr(found)) < 1000
    alone = allocate(run, 1.0, DELTA, schedule="uniform", floor=1000.0)
    assert any("floor alone" in note for note in alone.notes)


def test_the_joint_schedule_of_averaged_passes() -> None:
    run = make_run(noise_at="pass_ends", pass_weights=1.0, noise_multiplier=None)
    found = allocate(run, 1.0, DELTA, schedule="joint", influence=DECAY)
    assert found.certificate.epsilon <= 1.0
    assert len(found.run.noise_multiplier.listed) == 5  # type: ignore[union-attr]


@pytest.mark.parametrize("schedule", [one for one in SCHEDULES if one != "pass_ends"])
def test_a_floor_is_kept_and_the_target_met(schedule: Any) -> None:
    found = allocate(run_of(batches=batches("cyclic", 25), passes=3), 1.0, DELTA, schedule=schedule, influence=DECAY, floor=2.0)
    assert step_noise(found.run).min() >= 2.0
    assert 0.99 < found.certificate.epsilon <= 1.0


@pytest.mark.parametrize(
    "target", [lethe.guarantees.GDP(0.4), lethe.guarantees.ZCDP(0.1), lethe.guarantees.RDPCurve((2.0, 8.0), (0.2, 0.7))]
)
def test_targets_of_other_kinds(target: lethe.guarantees.Guarantee) -> None:
    found = allocate(run_of(batches=batches("cyclic", 25), passes=3), target=target, schedule="joint")
    bounds = [verdict.bound for verdict in evaluate_theorems(found.run) if verdict.usable]
    assert 0.999 < min(overshoot(bound.guarantee, target) for bound in bounds if bound) <= 1.0


def test_random_batches_are_calibrated_by_the_heterogeneous_accountant() -> None:
    """Never by c p^2 / sigma^2: every step's own noise enters the sampled Gaussian's composition."""
    run = make_run(batches=batches("poisson", 10), steps=3, noise_multiplier=None, release="all", neighbours="zero_out")
    found = allocate(run, 1.0, DELTA, schedule="exponential", influence=Influence(rate=0.9, basis="assumed"))
    assert found.certificate.theorem == "sampled-gaussian"
    assert len(set(found.run.noise_multipliers.tolist())) == 3


def test_the_default_influence_is_what_curvature_proves_and_one_by_hand_is_taken_and_said() -> None:
    assert influence_of_curvature(make_run()).rate == 1.0
    ridge = influence_of_curvature(make_run(regulariser={"kind": "ridge", "strength": 0.2}))
    assert ridge.values(50)[:-1] / ridge.values(50)[1:] == pytest.approx(1 / 1.1**2)
    long = influence_of_curvature(make_run(passes=500, regulariser={"kind": "ridge", "strength": 1.0}))
    assert long.values(5000).min() == pytest.approx(1e-24)
    run = make_run(noise_multiplier=None)
    by_rate, by_list = (allocate(run, 1.0, DELTA, influence=hand) for hand in (0.97, (0.97 ** np.arange(49, -1, -1)).tolist()))
    assert by_rate.influence == Influence(rate=0.97, detail="given by hand")
    assert by_rate.chosen.harm == pytest.approx(by_list.chosen.harm, rel=1e-6)


def test_no_residue_is_left_where_no_noise_is_meant() -> None:
    """A strong ridge forgets all but the last touches: all noise belongs at the end."""
    ridge = {"kind": "ridge", "strength": 0.1}
    run = make_run(records=6000, batches=batches("cyclic", 600), passes=10, regulariser=ridge, noise_multiplier=None)
    noise = allocate(run, 1.0, DELTA, schedule="joint", influence=0.99).run.noise_multipliers
    assert noise[noise > 0].min() > 0.01 * noise.max()


# --- correlated noise ---


def test_the_output_square_is_that_of_the_inverse() -> None:
    random = np.random.default_rng(0)
    for steps in (1, 2, 7):
        dense = np.tril(random.normal(size=(steps, steps))) + 3.0 * np.eye(steps)
        column = np.append(1.0, random.uniform(size=steps - 1) / 4)
        weights = random.uniform(size=steps)
        for strategy, matrix in ((dense, dense), (column, np.tril(linalg.toeplitz(column)))):
            assert output_square(strategy, weights) == pytest.approx(np.sum((weights @ np.linalg.inv(matrix)) ** 2), rel=1e-12)


def test_harm_is_the_variance_of_the_last_model() -> None:
    """Drawn, not computed: the noise of all steps, summed, of a run with steps of two sizes."""
    run = lethe.correlate(clipped()).replace(step_size=[2.0] * 25 + [1.0] * 25, noise_multiplier=3.0)
    random, sums = np.random.default_rng(1), np.zeros(20_000)
    stream = run.noise.stream()
    for size in run.step_sizes:
        sums += size * stream.next(random.normal(size=20_000))
    assert harm_of(run, FLAT) == pytest.approx(sums.var() * (3.0 / 20) ** 2, rel=0.05)  # 5 standard errors of a variance


def test_where_all_is_released_correlated_noise_is_taken_and_is_what_correlate_and_plan_give() -> None:
    run = clipped(release="all")
    found = allocate(run, 1.0, DELTA)
    assert found.chosen.shape == "correlated"
    assert found.run == lethe.plan(lethe.correlate(run), 1.0, DELTA)
    assert found.certificate.epsilon <= 1.0
    assert lethe.certify(found.run.with_noise_scaled(1 - 1e-4), DELTA).epsilon > 1.0
    by_name = {one.shape: one for one in found.candidates}
    assert by_name["uniform"].harm > 2.0 * found.chosen.harm
    assert by_name["uniform"].noise == pytest.approx(float(np.linalg.norm(by_name["uniform"].run.noise_stds)))
    assert "would be shown without noise" in by_name["pass_ends"].why
    assert "every iterate pays for itself" in by_name["joint"].why
    assert all(one.words in found.explain() or one.why in found.explain() for one in found.candidates)
    last = allocate(run.replace(release="last"), 1.0, DELTA, schedule="correlated")
    assert last.run.noise_multiplier == found.run.noise_multiplier
    assert [any("release: all costs no more" in note for note in one.notes) for one in (last, found)] == [True, False]
    table = found.to_dict()["candidates"]
    assert [row["noise"] is None for row in table] == [one.run is None for one in found.candidates]


def test_no_correlation_leaves_less_noise_in_the_last_iterate_than_the_joint_schedule() -> None:
    """Full batches that contract by f: joint attains s (1 + f + f^2 + ...) / mu, and with all iterates certified nothing is below that."""
    steps, rate = 12, 0.9
    loss = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 1.0, "gradient_bound": 1.0}
    run = make_run(records=10, batches=lethe.batches.Full(), steps=steps, passes=None, step_size=1.0, loss=loss, noise_multiplier=None)
    run = run.replace(precision=lethe.Precision(dtype="float64", parameter_norm=1.0))  # no noise is kept in reserve for its rounding
    fading = Influence(rate=rate**2, basis="assumed")
    found = allocate(run, target=lethe.guarantees.GDP(1.0), schedule="joint", influence=fading)
    least = float(run.sensitivities[0]) * sum(rate**back for back in range(steps))
    assert found.chosen.noise == pytest.approx(least, rel=1e-9)
    random = np.random.default_rng(0)
    for _ in range(50):
        column = np.append(1.0, random.uniform(size=steps - 1) * random.uniform())
        kept = output_square(column, rate ** np.arange(steps)[::-1])
        assert run.sensitivities[0] * sensitivity(column, 1) * np.sqrt(kept) >= least * (1 - 1e-12)


def test_of_balls_in_bins_fewer_bands_are_tried_which_a_secret_bin_hides_better() -> None:
    run = clipped(release="all", records=1000, batches=batches("balls_in_bins", 20), passes=2)
    found = allocate(run, 1.0, DELTA, schedule="correlated")
    assert found.certificate.theorem == "correlated-bins"
    usual = lethe.plan(lethe.correlate(run), 1.0, DELTA)
    assert found.chosen.harm < 0.9 * harm_of(usual, FLAT)
    short = allocate(run.replace(steps=3), 1.0, DELTA, schedule="correlated")
    assert short.certificate.epsilon <= 1.0


@pytest.mark.nightly(by_day="test_every_candidate_meets_the_target_and_the_chosen_one_does_least_harm")
def test_what_needs_other_batches_is_shown_and_never_chosen() -> None:
    run = clipped(release="all", records=10_000, batches=batches("cyclic", 20), passes=None, steps=10)
    found = allocate(run, 1.0, DELTA)
    poisson = found.candidates[-1]
    assert (poisson.shape, poisson.needs) == ("poisson", "poisson batches")
    assert poisson.harm < found.chosen.harm
    assert poisson.run == lethe.plan(run.replace(batches=lethe.batches.Poisson(20)), 1.0, DELTA)
    assert found.run.batches == run.batches
    assert any("With poisson batches" in note for note in found.notes)
    assert [name for name, *_ in other_designs(run.replace(batches=lethe.batches.Poisson(20)))] == ["cyclic"]
    assert other_designs(run.replace(batches=lethe.batches.Poisson(20), neighbours="add_or_remove")) == []
    assert other_designs(run.replace(batches=lethe.batches.Poisson(20, truncate_at=40))) == []
    assert other_designs(run.replace(batches=lethe.batches.Full())) == []


def test_the_strategy_follows_the_influence_and_steps_of_several_sizes_take_that_of_equal_ones() -> None:
    run, fading = clipped(release="all"), Influence(rate=0.8, basis="assumed")
    follows, plain = correlated(run, fading), correlated(run, FLAT)
    assert follows.noise != plain.noise

    def cost(one: lethe.Run) -> float:
        return harm_of(one, fading) * sensitivity(one.noise.strategy(run.total_steps), run.steps_per_pass) ** 2

    assert cost(follows) < cost(plain)
    assert shaped(run.replace(step_size=[1.0] * 25 + [0.5] * 25), "correlated", FLAT).noise == plain.noise
    long = clipped(release="all", records=4000, batches=batches("cyclic", 20), passes=2)  # it reaches back over a long pass
    assert correlated(long, FLAT).noise.kind == "buffered_toeplitz"
