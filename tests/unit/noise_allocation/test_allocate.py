"""The shape of noise: equal privacy, least harm, and honest words."""

import numpy as np
import pytest
from helpers import DESIGNS, batches, make_run
from scipy import linalg

import lethe
from lethe.accounting.certify import evaluate_theorems
from lethe.calculus.composition import overshoot
from lethe.noise_allocation.allocate import SCHEDULES, allocate
from lethe.noise_allocation.candidates import step_noise
from lethe.noise_allocation.noise_shapes import influence_of_curvature
from lethe.run.schedules import Influence

CONVEX = {"kind": "convex", "smoothness": 0.5, "gradient_bound": 1.0}
DECAY = Influence(rate=0.95, basis="assumed")


# Every trial composes sampled Gaussians, or convolves the laws of bins.
SLOW = ("poisson", "cyclic_poisson", "without_replacement", "balls_in_bins")
AT_NIGHT = pytest.mark.nightly(by_day="test_random_batches_are_calibrated_by_the_heterogeneous_accountant")


@pytest.mark.slow
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
    found = allocate(run, 1.0, 1e-5, influence=DECAY)
    harms = []
    for one in found.candidates:
        if one.run is None:
            assert one.shape in ("joint", "pass_ends", "correlated")
            assert one.why
            continue
        assert lethe.certify(one.run, 1e-5).epsilon <= 1.0
        assert lethe.certify(one.run.with_noise_scaled(1 - 1e-4), 1e-5).epsilon > 1.0
        shares = np.sqrt(DECAY.values(run.total_steps)) * one.run.uncorrelated.noise_stds
        strategy = np.array([1.0] + [0.0] * (run.total_steps - 1)) if one.run.noise is None else one.run.noise.strategy(run.total_steps)
        assert one.harm == pytest.approx(float(np.sum((shares @ np.linalg.inv(np.tril(linalg.toeplitz(strategy)))) ** 2)))
        if not one.needs:
            harms.append(one.harm)
    assert found.chosen.harm <= min(harms) * 1.001
    assert found.certificate.epsilon <= 1.0


@pytest.mark.slow
def test_uniform_is_plan() -> None:
    run = make_run(noise_multiplier=None)
    assert allocate(run, 1.0, 1e-5, schedule="uniform").run == lethe.plan(run, 1.0, 1e-5)


def test_full_batches_follow_the_closed_form() -> None:
    """Composition: z_t proportional to q_t^(-1/4)."""
    run = make_run(batches={"design": "full"}, steps=20, noise_multiplier=None, release="all")
    found = allocate(run, 1.0, 1e-5, schedule="influence", influence=DECAY).run
    expected = DECAY.values(20) ** -0.25
    assert found.noise_multipliers / found.noise_multipliers[-1] == pytest.approx(expected / expected[-1], rel=1e-9)


@pytest.mark.slow
def test_where_nothing_contracts_full_batches_gain_nothing_from_the_last_iterate_and_it_says_so() -> None:
    run = make_run(batches={"design": "full"}, steps=20, noise_multiplier=None, loss=CONVEX)
    found = allocate(run, 1.0, 1e-5, influence=DECAY)
    assert found.chosen.shape == "exponential"  # the simplest of the equal ones
    assert any("already optimal" in note for note in found.notes)


@pytest.mark.slow
def test_cyclic_batches_put_the_noise_at_pass_ends_and_gain() -> None:
    run = make_run(records=100, batches=batches("cyclic", 20), passes=4, noise_multiplier=None, loss=CONVEX)
    found = allocate(run, 1.0, 1e-5)
    assert found.chosen.shape == "pass_ends"  # the joint optimum, said more simply
    assert np.flatnonzero(found.run.noise_multipliers).tolist() == [4, 9, 14, 19]
    assert found.run == lethe.plan(run.replace(noise_at="pass_ends"), 1.0, 1e-5)
    uniform = found.candidates[0]
    assert found.chosen.harm < uniform.harm / 1.3
    assert any("1/" in note for note in found.notes)


def test_the_joint_schedule_of_averaged_passes() -> None:
    run = make_run(noise_at="pass_ends", pass_weights=1.0, noise_multiplier=None)
    found = allocate(run, 1.0, 1e-5, schedule="joint", influence=DECAY)
    assert found.certificate.epsilon <= 1.0
    assert len(found.run.noise_multiplier.listed) == 5  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [one for one in SCHEDULES if one != "pass_ends"])
def test_a_floor_is_kept_and_the_target_met(schedule) -> None:
    run = make_run(records=100, batches=batches("cyclic", 25), passes=3, noise_multiplier=None, loss=CONVEX)
    found = allocate(run, 1.0, 1e-5, schedule=schedule, influence=DECAY, floor=2.0)
    assert step_noise(found.run).min() >= 2.0
    assert found.certificate.epsilon <= 1.0
    assert found.certificate.epsilon > 0.99


@pytest.mark.parametrize(
    "target", [lethe.guarantees.GDP(0.4), lethe.guarantees.ZCDP(0.1), lethe.guarantees.RDPCurve((2.0, 8.0), (0.2, 0.7))]
)
def test_targets_of_other_kinds(target) -> None:
    run = make_run(records=100, batches=batches("cyclic", 25), passes=3, noise_multiplier=None, loss=CONVEX)
    found = allocate(run, target=target, schedule="joint")
    bounds = [verdict.bound for verdict in evaluate_theorems(found.run) if verdict.usable]
    assert min(overshoot(bound.guarantee, target) for bound in bounds if bound) <= 1.0


@pytest.mark.slow
def test_random_batches_are_calibrated_by_the_heterogeneous_accountant() -> None:
    """Never by c p^2 / sigma^2: every step's own noise enters the sampled Gaussian's composition."""
    run = make_run(records=1000, batches=batches("poisson", 10), steps=6, noise_multiplier=None, release="all", neighbours="zero_out")
    found = allocate(run, 1.0, 1e-5, schedule="exponential", influence=Influence(rate=0.9, basis="assumed"))
    assert found.certificate.theorem == "sampled-gaussian"
    assert len(set(found.run.noise_multipliers.tolist())) == 6


def test_the_default_influence_is_what_curvature_proves() -> None:
    assert influence_of_curvature(make_run()).rate == 1.0
    ridge = influence_of_curvature(make_run(regulariser={"kind": "ridge", "strength": 0.2}))
    assert ridge.values(50)[:-1] / ridge.values(50)[1:] == pytest.approx(1 / 1.1**2)
    long = influence_of_curvature(make_run(passes=500, regulariser={"kind": "ridge", "strength": 1.0}))
    assert long.values(5000).min() == pytest.approx(1e-24)


@pytest.mark.slow
def test_an_influence_by_hand_is_taken_and_says_so() -> None:
    run = make_run(noise_multiplier=None)
    by_rate, by_list = (
        allocate(run, 1.0, 1e-5, influence=0.97),
        allocate(run, 1.0, 1e-5, influence=(0.97 ** np.arange(49, -1, -1)).tolist()),
    )
    assert by_rate.influence == Influence(rate=0.97, detail="given by hand")
    assert by_rate.chosen.harm == pytest.approx(by_list.chosen.harm, rel=1e-6)


@pytest.mark.slow
def test_no_residue_is_left_where_no_noise_is_meant() -> None:
    """A strong ridge forgets all but the last touches: all noise belongs at the end."""
    run = make_run(
        records=6000, batches=batches("cyclic", 600), passes=10, regulariser={"kind": "ridge", "strength": 0.1}, noise_multiplier=None
    )
    noise = allocate(run, 1.0, 1e-5, schedule="joint", influence=0.99).run.noise_multipliers
    assert noise[noise > 0].min() > 0.01 * noise.max()


@pytest.mark.slow
def test_it_says_what_it_does_not_protect() -> None:
    found = allocate(make_run(noise_multiplier=None), 1.0, 1e-5)
    assert any("45 of 50 steps have no noise" in note for note in found.notes)
    assert found.chosen.shape in found.explain()
    assert len(repr(found)) < 1000
    alone = allocate(make_run(noise_multiplier=None), 1.0, 1e-5, schedule="uniform", floor=1000.0)
    assert any("floor alone" in note for note in alone.notes)
