"""Plans meet their targets and waste nothing; certificates of drawn batches, of beginnings of a run, and of heavy-tailed solutions."""

import importlib
import math
from typing import Any

import numpy as np
import pytest
from helpers import DESIGNS, EVERY_STEP_DESIGNS, SCHEDULES, batches, make_run

import lethe
from lethe.accounting.certify import cumulative_privacy, evaluate_theorems, stopped
from lethe.accounting.heavy_tailed import certify_solution
from lethe.calculus.composition import overshoot
from lethe.heavy_tailed import BallDomain, Problem, multi_pass
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian
from lethe.heavy_tailed.private_moments import private_moment
from lethe.heavy_tailed.sets import BoxDomain, ConvexSet
from lethe.heavy_tailed.solution import Solution
from lethe.run.losses import Convex
from lethe.run.regularisers import Ball as BallConstraint
from lethe.run.regularisers import Box as BoxConstraint
from lethe.theorems.registry import ALL
from lethe.theorems.shift import engine as shift

# By day: a public place, a secret one, batches drawn anew; bins are planned in tests/unit/theorems too.
PLANNED = {("cyclic", "last"), ("shuffled", "last"), ("shuffled_once", "all"), ("poisson", "last")}


@pytest.mark.parametrize(
    ("design", "release"),
    [
        pytest.param(design, release, marks=[] if (design, release) in PLANNED else pytest.mark.nightly)
        for design in DESIGNS
        for release in ("last", "all")
    ],
)
def test_a_plan_meets_its_target_and_wastes_nothing(design: str, release: str) -> None:
    planned = lethe.plan(make_run(batches=batches(design, 10), release=release, noise_multiplier=None), epsilon=1.0, delta=1e-5)
    assert lethe.certify(planned, 1e-5).epsilon <= 1.0
    assert lethe.certify(planned.with_noise_scaled(1 - 2e-5), 1e-5).epsilon > 1.0  # half of it is kept for the rounding of hidden iterates


@pytest.mark.parametrize("schedule", [*SCHEDULES[1:], [1e-140] * 50, [1e100] * 50])
def test_a_schedule_keeps_its_shape(schedule: object) -> None:
    run = make_run(noise_multiplier=schedule)
    planned = lethe.plan(run, epsilon=0.5, delta=1e-6)
    ratio = planned.noise_multipliers / run.noise_multipliers
    assert ratio == pytest.approx(ratio[0], rel=1e-12)
    assert lethe.certify(planned, 1e-6).epsilon == pytest.approx(0.5, rel=3e-5)
    assert lethe.certify(planned, 1e-6).epsilon <= 0.5


def test_a_plan_that_rounding_left_short_is_raised_until_it_certifies(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("lethe.accounting.plan")
    honest = module.smallest
    monkeypatch.setattr(module, "smallest", lambda *args, **options: honest(*args, **options) * (1 - 1e-6))
    planned = lethe.plan(make_run(), epsilon=1.0, delta=1e-5)
    assert lethe.certify(planned, 1e-5).epsilon <= 1.0


def test_pass_ends_and_extreme_targets() -> None:
    for epsilon, delta in [(1e-4, 1e-5), (50.0, 1e-12), (1.0, 1e-200)]:
        planned = lethe.plan(make_run(noise_at="pass_ends", noise_multiplier=None), epsilon=epsilon, delta=delta)
        assert lethe.certify(planned, delta).epsilon == pytest.approx(epsilon, rel=3e-5)
        assert lethe.certify(planned, delta).epsilon <= epsilon


@pytest.mark.sampled(3)
@pytest.mark.parametrize("design", ["cyclic", "shuffled_once", "poisson"])
@pytest.mark.parametrize(
    "target",
    [
        lethe.guarantees.GDP(0.5),
        lethe.guarantees.ZCDP(0.1),
        lethe.guarantees.RDPCurve((2.0, 16.0), (0.2, 1.0)),
        lethe.guarantees.ApproxDP(1.0, 1e-5),
    ],
)
def test_targets_of_other_kinds_are_met_and_nothing_is_wasted(design: str, target: lethe.guarantees.Guarantee) -> None:
    run = make_run(batches=batches(design, 10), noise_multiplier={"schedule": "exponential", "first": 1.0, "ratio": 0.99})
    planned = lethe.plan(run, target=target)
    assert _met(planned, target)
    assert not _met(planned.with_noise_scaled(1 - 2e-5), target)


def _met(run: lethe.Run, target: lethe.guarantees.Guarantee) -> bool:
    bounds = [verdict.bound for verdict in evaluate_theorems(run) if verdict.usable]
    return any(overshoot(bound.guarantee, target) <= 1 for bound in bounds if bound is not None)


@pytest.mark.parametrize("changes", [{}, {"batches": batches("full", 1)}, {"noise_at": "pass_ends"}, {"release": "all"}])
def test_what_a_run_loses_step_by_step_ends_at_its_own_certificates(changes: dict[str, Any]) -> None:
    run = make_run(**changes)
    grown = cumulative_privacy(run, 1e-5, points=6)
    assert grown.steps[-1] == run.total_steps
    for found, release in ((grown.last_iterate, "last"), (grown.every_iterate, "all")):
        assert found[-1] == pytest.approx(lethe.certify(run.replace(release=release), 1e-5).epsilon, rel=1e-12)
    assert list(grown.every_iterate) == sorted(grown.every_iterate)
    assert all(last <= every * (1 + 1e-9) for last, every in zip(grown.last_iterate, grown.every_iterate, strict=True))


def test_a_beginning_keeps_noise_and_step_sizes_and_without_noise_after_a_touch_is_not_private() -> None:
    step = {"schedule": "step", "first": 0.5, "factor": 0.5, "period": 7}
    run = make_run(noise_at="pass_ends", noise_multiplier=[1.0, 2.0, 3.0, 4.0, 5.0], step_size=step)
    assert stopped(run, 30).noise_stds == pytest.approx(run.noise_stds[:30], rel=1e-15)
    found = cumulative_privacy(make_run(noise_multiplier=[0.0, 5.0] * 25), 1e-5, points=10)
    assert found.last_iterate[0] == math.inf
    assert found.to_dict()["last_iterate"][0] == "inf"


DELTA = 1e-5
RECORDS = np.zeros((400, 3))


def solved(domain: ConvexSet | None = None, *, batch_size: int | None = 40, passes: int = 20, rho: float = 0.5) -> Solution:
    problem = Problem(
        gradient=lambda parameters, records: np.asarray(records) + parameters,
        dimension=3,
        domain=BallDomain(radius=1.0) if domain is None else domain,
        smoothness=1.0,
    )
    oracle = ClippedMean(clip_norm=1.5, rho=rho)
    return multi_pass(problem, RECORDS, oracle=oracle, passes=passes, batch_size=batch_size, step_size=0.1)


def test_the_run_costs_by_composition_what_the_phases_do() -> None:
    for batch_size in (None, 40, 33):
        solution = solved(batch_size=batch_size)
        found = certify_solution(solution, DELTA)
        assert found.certificate is not None
        assert solution.run is not None
        run = solution.run
        assert np.allclose(run.noise_stds, 0.1 * solution.phases[0].release.noise_std, rtol=1e-12)
        assert (run.total_steps, run.batch_size) == (solution.phases[0].steps, solution.phases[0].batch_size)
        assert lethe.certify(run, DELTA, ["composition"]).epsilon == pytest.approx(solution.guarantee.epsilon(DELTA), rel=1e-9)
        assert found.epsilon == pytest.approx(min(solution.guarantee.epsilon(DELTA), found.certificate.epsilon), rel=1e-6)


def test_a_convex_loss_is_certified_as_a_run_written_by_hand() -> None:
    solution = solved()
    noise = solution.phases[0].release.noise_std
    run = lethe.Run(
        records=400,
        batches=lethe.batches.Cyclic(40),
        passes=20,
        step_size=0.1,
        clip_norm=1.5,
        noise_multiplier=noise * 40 / 1.5,
        loss=Convex(smoothness=1.0),
        regulariser=BallConstraint(radius=1.0),
        release="last",
        neighbours="replace_one",
    )
    found = certify_solution(solution, DELTA, loss=Convex(smoothness=1.0))
    by_hand = lethe.certify(run, DELTA)
    assert found.epsilon == pytest.approx(by_hand.epsilon, rel=1e-9)
    assert {found.basis, by_hand.theorem} <= {"optimal-shift", "holder-shift"}  # which say the same here, but for rounding
    assert found.release == "last"
    assert found.epsilon < 0.6 * solution.guarantee.epsilon(DELTA)
    assert found.basis in found.explain()
    assert "last iterate only" in found.explain()


def test_without_a_loss_or_with_steps_too_long_for_it_phases_are_as_good_and_say_so() -> None:
    for loss in (None, Convex(smoothness=1e6)):
        found = certify_solution(solved(BallDomain(radius=1000.0)), DELTA, loss=loss)
        assert (found.basis, found.release) == ("phases", "all")
        assert found.epsilon == pytest.approx(solved().guarantee.epsilon(DELTA), rel=1e-12)
        assert "all iterates released" in found.explain()


def test_a_moment_released_beside_is_never_forgotten() -> None:
    solution = solved()
    estimate = private_moment(np.ones(300), order=2, rho=0.5)
    joined = estimate.joined(solution)
    found = certify_solution(joined, DELTA, loss=Convex(smoothness=1.0))
    alone = certify_solution(solution, DELTA, loss=Convex(smoothness=1.0))
    assert found.beside == estimate.phase.guarantee.epsilon(DELTA)
    assert found.epsilon == max(alone.epsilon, found.beside)
    cheap = private_moment(np.ones(300), order=2, rho=0.05).joined(solution)
    assert certify_solution(cheap, DELTA, loss=Convex(smoothness=1.0)).epsilon == alone.epsilon


def test_what_is_no_recursion_has_phases_only() -> None:
    problem = Problem(gradient=lambda parameters, records: np.asarray(records), dimension=3, smoothness=1.0, strong_convexity=1.0)
    once = one_pass(problem, RECORDS, oracle=ClippedMean(clip_norm=1.0, rho=0.5), steps=4)
    median = multi_pass(problem, RECORDS, oracle=CoordinateMedian(threshold=1.0, groups=3, rho=0.5), passes=3)
    uneven = solved(BoxDomain(low=(-1.0, -1.0, -2.0), high=(1.0, 1.0, 1.0)))
    for solution in (once, median, uneven, solved(rho=math.inf)):
        assert solution.run is None
        found = certify_solution(solution, DELTA, loss=Convex(smoothness=1.0))
        assert found.certificate is None
        assert found.epsilon == solution.guarantee.epsilon(DELTA)
        assert "not one noisy recursion" in found.explain()
    even = solved(BoxDomain(low=(0.0, 1.0, 2.0), high=(2.0, 3.0, 4.0)))
    assert even.run is not None
    assert isinstance(even.run.regulariser, BoxConstraint)
    assert 1.0 <= even.run.regulariser.half_width <= 1.0 + 1e-15
    far = solved(BallDomain(radius=2.0, centre=(5.0, 0.0, 0.0))).run
    assert far is not None
    assert far.regulariser == BallConstraint(radius=2.0)


def test_a_published_formula_for_the_same_number_does_not_take_its_place() -> None:
    """The engine's outward rounding grows with the steps: Bok et al.'s closed form is below it by 1e-8 here."""
    run = make_run(passes=10_000, noise_multiplier=300.0)
    everything = lethe.certify(run, 1e-5, theorems=ALL)
    ours = lethe.certify(run, 1e-5)
    assert everything.theorem == ours.theorem == "optimal-shift"
    assert everything.epsilon == ours.epsilon


def test_poisson_sampling_end_to_end() -> None:
    # peers_accounting: q = .01, z = 1, T = 1e4, delta = 1e-5 by privacy loss distributions: 6.1877 for zero out, 10.8808 for replace one.
    run = make_run(records=1000, batches=batches("poisson", 10), steps=10_000, noise_multiplier=1.0, release="all")
    for relation, epsilon in (("zero_out", 6.1877), ("add_or_remove", 6.1877), ("replace_one", 10.8808)):
        assert lethe.certify(run.replace(neighbours=relation), 1e-5).epsilon == pytest.approx(epsilon, rel=2e-4)


@pytest.mark.parametrize("design", EVERY_STEP_DESIGNS)
def test_random_batches_are_touched_at_every_step_without_credit(design: str) -> None:
    run = make_run(batches=batches(design, 10), regulariser={"kind": "ridge", "strength": 0.4}, steps=50)
    contraction = 1 / (1 + 0.5 * 0.4)
    engine = shift.solve([contraction] * 50, run.sensitivities, run.noise_stds).mu
    epsilon = lethe.certify(run, 1e-5, ["optimal-shift"]).epsilon
    assert epsilon == pytest.approx(lethe.guarantees.GDP(engine).epsilon(1e-5), rel=1e-9)


@pytest.mark.parametrize(("records", "passes", "noise"), [(100, 5, 5.0), pytest.param(1000, 20, 20.0, marks=pytest.mark.nightly)])
def test_fresh_orders_are_not_taken_for_one(records: int, passes: int, noise: float) -> None:
    """Clipped steps, 100 batches, 20 passes, h = .05, s/tau = .1: averaged over 1500 random paths the optimum of each gives .2595
    (standard error .0005); one shuffle, another mechanism, gives .2457."""
    facts: dict[str, Any] = {"records": records, "passes": passes, "noise_multiplier": noise, "step_size": 0.05, "clip_norm": 1.0}
    run = make_run(batches=batches("shuffled", 10), loss={"kind": "convex", "smoothness": 1.0}, **facts)
    fresh, once = (lethe.certify(one, 1e-5).epsilon for one in (run, run.replace(batches=lethe.batches.ShuffledOnce(10))))
    assert fresh > 1.005 * once
    if passes == 20:
        assert 0.258 <= fresh <= 1.03 * 0.2595
        assert once == pytest.approx(0.24575, rel=1e-3)
