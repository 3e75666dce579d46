"""What is not a problem, a batch, a protocol or a number in range is refused in words, by every function that solvers offer."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lethe.errors import InputError, LetheError
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass, practical_oracle
from lethe.heavy_tailed.localisation.plans import localised_bound, localised_practical, localised_theory
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.localisation.solver import localised, regularised_descent
from lethe.heavy_tailed.localisation.strongly_convex import strongly_convex
from lethe.heavy_tailed.oracles.clipped import ClippedMean
from lethe.heavy_tailed.oracles.coordinate import CoordinateMedian
from lethe.heavy_tailed.oracles.exact import ExactMean
from lethe.heavy_tailed.private_moments import estimated_moments, private_moment
from lethe.heavy_tailed.sets import BoxDomain
from lethe.heavy_tailed.shuffle.binomial import all_shifts_delta, binomial_delta
from lethe.heavy_tailed.shuffle.oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.shuffle.scalar import (
    ScalarProtocol,
    analyse,
    calibrated_protocol,
    chosen_protocol,
    local_messages,
    shuffled,
    simulated_ones,
)
from lethe.heavy_tailed.single_pass.accelerated import accelerated
from lethe.heavy_tailed.single_pass.accelerated_plans import (
    accelerated_bound,
    accelerated_optimised,
    accelerated_practical,
    accelerated_theory,
    step_counts,
)
from lethe.heavy_tailed.single_pass.plans import one_pass_bound, one_pass_optimised, one_pass_practical, one_pass_theory
from lethe.heavy_tailed.single_pass.proximal import proximal, proximal_optimised, proximal_practical, proximal_theory
from lethe.heavy_tailed.single_pass.solver import one_pass
from lethe_experiments.lower_bounds.bounds import convex_lower_bound, strongly_convex_lower_bound
from lethe_experiments.lowy_razaviyayn import explicit_bound, groups_for

RECORDS = np.zeros((128, 2))
PROBLEM = Problem(
    gradient=lambda parameters, records: parameters - np.asarray(records),
    dimension=2,
    domain=BallDomain(radius=2.0),
    smoothness=1.0,
    moments=Moments(order=4, bound=4.0, kind="uniform"),
)
ORACLE = ClippedMean(clip_norm=1.0, rho=0.5)
SCHEDULE = localised_practical(PROBLEM, 128, 0.5, most_steps=2)
PROTOCOL = ScalarProtocol(users=10, range=1.0, levels=4, bits=10, probability=0.5)

TAKES_A_PROBLEM: dict[str, Callable[[Any], object]] = {
    "multi_pass": lambda p: multi_pass(p, RECORDS, oracle=ORACLE),
    "one_pass": lambda p: one_pass(p, RECORDS, oracle=ORACLE, steps=4),
    "accelerated": lambda p: accelerated(p, RECORDS, oracle=ORACLE, steps=4, step=2.0),
    "proximal": lambda p: proximal(p, RECORDS, oracle=ORACLE, steps=4),
    "regularised_descent": lambda p: regularised_descent(p, RECORDS, oracle=ORACLE, steps=4, step_size=0.1, strength=1.0),
    "localised": lambda p: localised(p, RECORDS, schedule=SCHEDULE, rho=0.5),
    "sampled_localised": lambda p: sampled_localised(p, RECORDS, schedule=SCHEDULE, epsilon=1.0, delta=1e-5),
    "strongly_convex": lambda p: strongly_convex(p, RECORDS, rho=0.5),
    "estimated_moments": lambda p: estimated_moments(p, RECORDS, order=2, rho=0.5),
    "practical_oracle": lambda p: practical_oracle(p, rho=0.5),
    "convex_lower_bound": lambda p: convex_lower_bound(p, 100, 0.5),
    "strongly_convex_lower_bound": lambda p: strongly_convex_lower_bound(p, 100, 0.5),
    "localised_theory": lambda p: localised_theory(p, 100, 0.5),
    "localised_practical": lambda p: localised_practical(p, 100, 0.5),
    "localised_bound": lambda p: localised_bound(p, SCHEDULE, 0.5, lipschitz=1.0),
    "step_counts": lambda p: step_counts(p, 100, 0.5),
    "explicit_bound": lambda p: explicit_bound(p, 100, 0.5, 4),
    **{
        plan.__name__: lambda p, plan=plan: plan(p, 100, 0.5) for plan in (accelerated_theory, accelerated_optimised, accelerated_practical)
    },
    **{plan.__name__: lambda p, plan=plan: plan(p, 100, 0.5) for plan in (one_pass_theory, one_pass_optimised, one_pass_practical)},
    **{
        plan.__name__: lambda p, plan=plan: plan(p, 100, 0.5, gap=1.0) for plan in (proximal_theory, proximal_optimised, proximal_practical)
    },
}


@pytest.mark.parametrize("name", TAKES_A_PROBLEM)
def test_what_is_no_problem(name: str) -> None:
    for wrong in (None, "problem", 1.0, ORACLE, [PROBLEM]):
        with pytest.raises(InputError, match="problem"):
            TAKES_A_PROBLEM[name](wrong)


@pytest.mark.parametrize(
    "oracle",
    [
        ORACLE,
        CoordinateMedian(threshold=1.0, groups=1, rho=0.5),
        ExactMean(),
        ShuffledClippedMean(clip_norm=1.0, epsilon=1.0, delta=1e-5),
        ShuffledCoordinateMedian(threshold=1.0, groups=1, epsilon=1.0, delta=1e-5),
    ],
)
def test_what_is_no_batch(oracle: Any) -> None:
    rng = np.random.default_rng(0)
    for wrong in (None, 1.0, [[1.0, 2.0]], np.ones(3), np.ones((2, 2, 2)), np.zeros((0, 2)), np.zeros((3, 0)), np.array([["a"]])):
        with pytest.raises(InputError, match="rows"):
            oracle.mean(wrong, rng)
    with pytest.raises(InputError, match="rows"):
        oracle.mean(np.array([[True, False]]), rng)
    if not isinstance(oracle, ExactMean):
        with pytest.raises(InputError, match="generator"):
            oracle.mean(np.ones((4, 2)), 7)


RAGGED = [[1], [1, 2]]
REFUSED: dict[str, Callable[[], object]] = {
    "moments, kind": lambda: Moments(order=2, bound=1.0, kind=np.array(["raw", "raw"])),  # pyright: ignore[reportArgumentType]
    "ball, ragged": lambda: BallDomain(radius=1.0, centre=RAGGED),  # pyright: ignore[reportArgumentType]
    "box, ragged": lambda: BoxDomain(low=RAGGED, high=(1.0, 1.0)),  # pyright: ignore[reportArgumentType]
    "step size, ragged": lambda: multi_pass(PROBLEM, RECORDS, oracle=ORACLE, step_size=RAGGED),
    "step size, text": lambda: multi_pass(PROBLEM, RECORDS, oracle=ORACLE, step_size="a"),
    "sizes, ragged": lambda: private_moment(RAGGED, order=2, rho=0.5),
    "failure, a list": lambda: private_moment(np.ones(500), order=2, rho=0.5, failure=[0.1]),  # pyright: ignore[reportArgumentType]
    "points, a number": lambda: estimated_moments(PROBLEM, RECORDS, order=2, rho=0.5, points=3.0),  # pyright: ignore[reportArgumentType]
    "schedule, numbers": lambda: localised_bound(PROBLEM, (1, 2), 0.5, lipschitz=1.0),  # pyright: ignore[reportArgumentType]
    "schedule, rho nan": lambda: localised_bound(PROBLEM, SCHEDULE, math.nan, lipschitz=1.0),
    "schedule, rho 0": lambda: localised_bound(PROBLEM, SCHEDULE, 0.0, lipschitz=1.0),
    "localised, rho huge": lambda: localised_theory(PROBLEM, 100, 1e308),
    "localised, extra huge": lambda: localised_theory(PROBLEM, 100, 0.5, extra=1e13),
    "localised, distance tiny": lambda: localised_theory(PROBLEM, 100, 0.5, distance=5e-324),
    "localised, distance an array": lambda: localised_theory(PROBLEM, 100, 0.5, distance=np.ones(2)),  # pyright: ignore[reportArgumentType]
    "one pass, distance huge": lambda: one_pass_bound(10, 1.0, 0.5, 1e200, 0.1, 1.0),
    "accelerated, distance huge": lambda: accelerated_bound(10, 2.0, 1.0, 1e200, 0.1, 1.0),
    "median, dimension": lambda: CoordinateMedian(threshold=1.0, groups=3, rho=0.5).release(10, -1),
    "protocol, epsilon tiny": lambda: chosen_protocol(10, 1.0, 5e-324, 1e-5),
    "protocol, users": lambda: calibrated_protocol(0, 1.0, 1.0, 1e-5, levels=4),
    "probability tiny": lambda: binomial_delta(100, 5e-324, 3, 1.0),
    "less than one trial": lambda: all_shifts_delta(5e-324, 0.5, 3, 1.0),  # pyright: ignore[reportArgumentType]
    "message, text": lambda: local_messages("a", PROTOCOL, np.random.default_rng(0)),  # pyright: ignore[reportArgumentType]
    "message, ragged": lambda: local_messages(RAGGED, PROTOCOL, np.random.default_rng(0)),  # pyright: ignore[reportArgumentType]
    "message, no protocol": lambda: local_messages(0.5, None, np.random.default_rng(0)),  # pyright: ignore[reportArgumentType]
    "message, a seed": lambda: local_messages(0.5, PROTOCOL, 7),  # pyright: ignore[reportArgumentType]
    "shuffler, numbers": lambda: shuffled(np.array([1.0, math.nan]), np.random.default_rng(0)),  # pyright: ignore[reportArgumentType]
    "analyser, too many": lambda: analyse(10 * 14 + 1, PROTOCOL),
    "analyser, fewer than none": lambda: analyse(-1, PROTOCOL),
    "analyser, true": lambda: analyse(True, PROTOCOL),
    "analyser, no protocol": lambda: analyse(3, None),  # pyright: ignore[reportArgumentType]
    "ones, a list": lambda: simulated_ones([1.0] * 10, PROTOCOL, np.random.default_rng(0)),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_out_of_range(name: str) -> None:
    with pytest.raises(InputError):
        REFUSED[name]()


def test_the_edge_of_floating_point_is_said_and_never_a_nan() -> None:
    assert groups_for(10, 5e-324) < 10**4
    assert proximal_theory(
        Problem(
            **{**{name: getattr(PROBLEM, name) for name in ("gradient", "dimension", "moments")}, "smoothness": 1.0, "pl_constant": 0.5}
        ),
        100,
        0.5,
        gap=1e308,
    ).notes
    free = Problem(gradient=lambda parameters, records: parameters - np.asarray(records), dimension=2)
    far = multi_pass(PROBLEM, RECORDS, oracle=ORACLE, step_size=1e200, passes=2)
    assert np.linalg.norm(far.parameters) == pytest.approx(2.0)
    with pytest.raises(LetheError, match="range of floating-point numbers"), np.errstate(all="ignore"):
        multi_pass(free, RECORDS, oracle=ClippedMean(clip_norm=1e150, rho=1e-50), step_size=1e200, passes=2)
