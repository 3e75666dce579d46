"""Last-iterate certificates of heavy-tailed solutions: the same as a run written by hand, never for what is no recursion."""

import math
from dataclasses import replace

import numpy as np
import pytest

import lethe
from lethe.accounting.heavy_tailed import certify_solution
from lethe.errors import InputError
from lethe.heavy_tailed import BallDomain, Problem, multi_pass
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian
from lethe.heavy_tailed.private_moments import private_moment
from lethe.heavy_tailed.sets import BoxDomain, ConvexSet, WholeSpace
from lethe.heavy_tailed.solution import Solution
from lethe.run.losses import Convex, GeneralisedLinear
from lethe.run.regularisers import Ball as BallConstraint
from lethe.run.regularisers import Box as BoxConstraint

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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_what_the_certificate_proves_is_at_least_the_exact_privacy_of_a_linear_run() -> None:
    """Linear losses are convex for every smoothness: the last iterate is Gaussian, its shift 2 C/b a pass, without a domain."""
    solution = solved(WholeSpace())
    run = solution.run
    assert run is not None
    exact = 20 * 2 * 1.5 / 40 * 0.1 / math.sqrt(math.fsum(run.noise_stds**2))
    found = certify_solution(solution, DELTA, loss=GeneralisedLinear(smoothness=0.0, weak_convexity=0.0))
    assert found.epsilon >= lethe.guarantees.GDP(exact).epsilon(DELTA)


@pytest.mark.slow
def test_without_a_loss_phases_are_as_good_and_say_so() -> None:
    found = certify_solution(solved(BallDomain(radius=1000.0)), DELTA)
    assert found.basis == "phases"
    assert found.release == "all"
    assert found.epsilon == pytest.approx(solved().guarantee.epsilon(DELTA), rel=1e-12)
    assert "all iterates released" in found.explain()


@pytest.mark.slow
def test_steps_too_long_for_the_loss_fall_back_on_the_phases() -> None:
    found = certify_solution(solved(BallDomain(radius=1000.0)), DELTA, loss=Convex(smoothness=1e6))
    assert found.basis == "phases"
    assert found.epsilon == solved(BallDomain(radius=1000.0)).guarantee.epsilon(DELTA)


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_what_is_refused() -> None:
    solution = solved()
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="delta"):
            certify_solution(solution, delta)
    with pytest.raises(InputError, match="loss"):
        certify_solution(solution, DELTA, loss="convex")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="Solution"):
        certify_solution(solution.run, DELTA)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="disjoint"):
        certify_solution(replace(solution, phases=(solution.phases[0], solution.phases[0])), DELTA)
