"""What solvers refuse: the call, the argument that the error names, and what it says to do."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from solver_problems import QUADRATIC, quadratic_gradient

from lethe.errors import InputError, LetheError
from lethe.heavy_tailed import BallDomain, Moments, Problem, multi_pass
from lethe.heavy_tailed.accelerated import accelerated, accelerated_bound, accelerated_theory
from lethe.heavy_tailed.coordinate_wise import SmoothedMean, median_oracle, smoothed_oracle
from lethe.heavy_tailed.localisation.descent import localised, strongly_convex
from lethe.heavy_tailed.localisation.plans import LocalPhase, localised_bound, localised_theory, noise_led_phases
from lethe.heavy_tailed.localisation.population import population_localised
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass, one_pass_bound, step_weights
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, ExactMean, PureClippedMean
from lethe.heavy_tailed.private_moments import blocks_for, estimated_moments, private_moment
from lethe.heavy_tailed.problem import clipping_bias
from lethe.heavy_tailed.proximal import proximal, proximal_bound, proximal_map, proximal_theory
from lethe.heavy_tailed.sets import BoxDomain
from lethe.heavy_tailed.shuffled_oracles import ShuffledClippedMean, ShuffledCoordinateMedian
from lethe.heavy_tailed.shuffled_sums import ScalarProtocol, analyse, binomial_delta, calibrated_protocol, chosen_protocol, simulated_ones
from lethe.run.regularisers import L1, NuclearNorm
from lethe_experiments.lowy_razaviyayn.printed import groups_for

ROWS, ORACLE, RNG = np.zeros((8, 2)), ClippedMean(clip_norm=1.0, rho=1.0), np.random.default_rng(0)
BARE = Problem(gradient=quadratic_gradient, dimension=2)
STATED = replace(QUADRATIC, moments=Moments(order=4, bound=4.0, kind="uniform"))
PHASE = {"records": 4, "steps": 2, "step_size": 0.1, "strength": 1.0, "radius": 1.0, "clip_norm": 1.0}
SCHEDULE = localised_theory(STATED, 8, 0.5)
PROTOCOL = ScalarProtocol(users=10, range=1.0, levels=4, bits=10, probability=0.5)
SHUFFLED = {"epsilon": 1.0, "delta": 1e-3}


def with_some(call: Callable[..., object], good: dict[str, Any], name: str, *bad: Any) -> list[tuple[Callable[[], object], str]]:
    """The same call with each bad value of one argument, which the error names."""
    return [(lambda value=value: call(**{**good, name: value}), name) for value in bad]


NUMBERS = (0.0, -1.0, math.nan, True, "1", None)
PROBLEM = {"gradient": quadratic_gradient, "dimension": 2}
MOMENTS = {"order": 2.0, "bound": 1.0}
SMOOTHED = {"scale": 1.0, "precision": 5.0, "rho": 1.0}
CLIPPED, MEDIAN = {"clip_norm": 1.0, "rho": 1.0}, {"threshold": 1.0, "groups": 1, "rho": 1.0}
MULTI = {"problem": QUADRATIC, "records": ROWS, "oracle": ORACLE}
LOCAL = {"problem": STATED, "records": ROWS, "schedule": SCHEDULE, "rho": 0.5}
POPULATION = {"problem": STATED, "records": ROWS, "schedule": SCHEDULE, "oracle": ORACLE, "parts": 1}
SAMPLED = {"problem": STATED, "records": ROWS, "schedule": SCHEDULE, "epsilon": 1.0, "delta": 1e-3}
MOMENT = {"sizes": np.ones(500), "order": 2.0, "rho": 0.5}
ESTIMATE = {"problem": BARE, "records": np.ones((500, 2)), "order": 2.0, "rho": 0.5}

REFUSED: list[tuple[Callable[[], object], str]] = [
    *with_some(Problem, PROBLEM, "gradient", 3),
    *with_some(Problem, PROBLEM, "dimension", 0, True, 2.0),
    *with_some(Problem, PROBLEM, "domain", 1.0),
    *with_some(Problem, PROBLEM, "smoothness", math.nan, -1.0),
    *with_some(Problem, PROBLEM, "strong_convexity", 0.0),
    *with_some(Problem, PROBLEM, "pl_constant", math.inf),
    *with_some(Problem, PROBLEM, "moments", 2.0),
    (lambda: Problem(**PROBLEM, domain=BallDomain(radius=1.0, centre=(0.0, 0.0, 0.0))), "centre"),
    (lambda: Problem(**PROBLEM, strong_convexity=2.0, smoothness=1.0), "at most smoothness"),
    (lambda: BARE.known("pl_constant"), "pl_constant"),
    (BARE.known_moments, "moments"),
    (BARE.distance, "distance"),
    *with_some(Moments, MOMENTS, "order", 1.5, math.nan),
    *with_some(Moments, MOMENTS, "bound", 0.0, 1e61),
    *with_some(Moments, MOMENTS, "kind", "loose"),
    *with_some(Moments, MOMENTS, "second", 2.0, True),
    *with_some(Moments, MOMENTS, "half", -1.0),
    (lambda: clipping_bias(1.9, 1.0, 1.0), "order"),
    *with_some(BallDomain, {}, "radius", 0.0, -1.0, math.nan, math.inf, True, "1"),
    *with_some(BallDomain, {"radius": 1.0}, "centre", (math.nan,), [[1], [1, 2]], ()),
    (lambda: BoxDomain(low=(0.0, 1.0), high=(1.0, 1.0)), "below its high"),
    *with_some(ClippedMean, CLIPPED, "clip_norm", *NUMBERS, math.inf, 1e200),
    *with_some(ClippedMean, CLIPPED, "rho", *NUMBERS),
    *with_some(CoordinateMedian, MEDIAN, "threshold", *NUMBERS),
    *with_some(CoordinateMedian, MEDIAN, "groups", *NUMBERS, 4),
    *with_some(CoordinateMedian, MEDIAN, "rho", *NUMBERS),
    (lambda: CoordinateMedian(threshold=1.0, groups=5, rho=1.0).release(4, 2), "fewer groups"),
    *with_some(SmoothedMean, SMOOTHED, "scale", *NUMBERS, math.inf),
    *with_some(SmoothedMean, SMOOTHED, "precision", *NUMBERS, math.inf, 0.9, 1e7),
    *with_some(SmoothedMean, SMOOTHED, "rho", *NUMBERS),
    *with_some(PureClippedMean, {"clip_norm": 1.0, "epsilon": 1.0}, "clip_norm", *NUMBERS, math.inf),
    *with_some(PureClippedMean, {"clip_norm": 1.0, "epsilon": 1.0}, "epsilon", *NUMBERS, math.inf, 1e-101, 1e7),
    *((lambda bad=bad: median_oracle(STATED, 10, bad), "rho") for bad in (0.0, math.nan, math.inf, True)),
    *((lambda bad=bad: smoothed_oracle(STATED, 10, 0.5, failure=bad), "failure") for bad in (0.0, 1.0, math.nan)),
    (lambda: median_oracle(STATED, 2, 0.5), "fewer groups"),
    (lambda: noise_led_phases(STATED, 8, ORACLE, parts=5), "parts"),
    (lambda: noise_led_phases(BARE, 8, ORACLE), "distance"),
    *with_some(population_localised, POPULATION, "oracle", None, ExactMean()),
    *with_some(population_localised, POPULATION, "parts", 0, 2, True),
    (lambda: CoordinateMedian(threshold=1.0, groups=3, rho=0.5).release(10, -1), "dimension"),
    *((lambda bad=bad: ORACLE.release(bad, 2), "size") for bad in NUMBERS),  # pyright: ignore[reportArgumentType]
    *((lambda bad=bad: ORACLE.shared(bad), "touches") for bad in NUMBERS),  # pyright: ignore[reportArgumentType]
    *((lambda bad=bad: groups_for(10, bad), "=") for bad in NUMBERS),  # pyright: ignore[reportArgumentType]
    *with_some(multi_pass, MULTI, "problem", None, "problem", 1.0),
    *with_some(multi_pass, MULTI, "records", [1, 2], (), (np.zeros(3), np.zeros(4)), np.zeros((0, 2)), np.float64(1.0)),
    *with_some(multi_pass, MULTI, "oracle", None, 3.0),
    *with_some(multi_pass, MULTI, "passes", 0, 1.0),
    *with_some(multi_pass, MULTI, "batch_size", 9, True),
    *with_some(multi_pass, MULTI, "step_size", 0.0, [0.1, 0.2], math.nan, "a"),
    *with_some(multi_pass, MULTI, "start", [1.0], [math.nan, 0.0], "ab", [[1.0, 2.0]], [True, False]),
    *with_some(multi_pass, MULTI, "generator", 7),
    (lambda: multi_pass(replace(BARE, smoothness=0.0), ROWS, oracle=ORACLE), "no step size"),
    (lambda: multi_pass(replace(QUADRATIC, gradient=lambda w, x: np.zeros(2)), ROWS, oracle=ExactMean()), "one row a record"),
    (lambda: one_pass(QUADRATIC, ROWS, oracle=ORACLE, steps=9), "batch needs a record"),
    (lambda: one_pass(replace(BARE, smoothness=1.0), ROWS, oracle=ORACLE, steps=1), "strong_convexity"),
    *((lambda bad=bad: one_pass_bound(10, bad, 1.0, 1.0, 0.0, 1.0), "smoothness") for bad in (0.0, math.nan, math.inf, -1.0)),
    *((lambda bad=bad: one_pass_bound(10, 1.0, bad, 1.0, 0.0, 1.0), "strong_convexity") for bad in (0.0, math.nan, -1.0)),
    (lambda: one_pass_bound(10, 1.0, 2.0, 1.0, 0.0, 1.0), "above"),
    (lambda: one_pass_bound(10, 1.0, 1.0, 1.0, math.nan, 1.0), "bias"),
    (lambda: one_pass_bound(10, 1.0, 0.5, 1e200, 0.1, 1.0), "distance"),
    (lambda: step_weights(3, 2.0, 1.0), "at least a"),
    (lambda: accelerated(QUADRATIC, ROWS, oracle=ORACLE, steps=2, step=19.0), "inverse step size"),
    (lambda: accelerated(QUADRATIC, ROWS, oracle=ORACLE, steps=9, step=20.0), "batch needs a record"),
    *((lambda bad=bad: accelerated(QUADRATIC, ROWS, oracle=ORACLE, steps=2, step=bad), "step") for bad in (0.0, -1.0, math.nan, True)),
    *((lambda bad=bad: accelerated_theory(STATED, 100, bad), "rho") for bad in (0.0, math.nan, math.inf, True)),
    (lambda: accelerated_theory(replace(BARE, smoothness=1.0, moments=STATED.moments), 10, 0.5), "unbounded"),
    (lambda: accelerated_bound(4, 1.0, 1.0, 1.0, 0.0, 1.0), "inverse step size"),
    *((lambda bad=bad: accelerated_bound(4, 2.0, 1.0, bad, 0.0, 1.0), "distance") for bad in (0.0, math.nan, 1e200)),
    (lambda: proximal_map(np.zeros(1), 1.0, L1(strength=1.0), BallDomain(radius=1.0, centre=(0.5,))), "ball about 0"),
    (lambda: proximal(QUADRATIC, ROWS, oracle=ORACLE, steps=2, regulariser=NuclearNorm(strength=1.0)), "regulariser"),
    (lambda: proximal(BARE, ROWS, oracle=ORACLE, steps=2), "smoothness"),
    (lambda: proximal(replace(BARE, smoothness=0.0), ROWS, oracle=ORACLE, steps=2), "smoothness"),
    (lambda: proximal_bound(4, 1.0, 2.0, 1.0, 0.0, 0.0), "above"),
    *((lambda bad=bad: proximal_bound(4, 1.0, 1.0, bad, 0.0, 0.0), "gap") for bad in (-1.0, math.nan, math.inf, True)),
    *((lambda bad=bad: proximal_theory(replace(STATED, pl_constant=1.0), 100, 0.5, gap=bad), "gap") for bad in (-1.0, math.nan, math.inf)),
    *with_some(LocalPhase, PHASE, "step_size", 0.0, -1.0, math.nan, math.inf, True),
    *with_some(LocalPhase, PHASE, "steps", 0),
    *with_some(LocalPhase, PHASE, "radius", 0.0),
    (lambda: LocalPhase(**{**PHASE, "strength": 21.0}), "at most 2"),
    *((lambda bad=bad: localised_theory(STATED, 8, bad), "rho") for bad in (0.0, -1.0, math.nan, math.inf, True, 1e308)),
    (lambda: localised_theory(STATED, 8, 0.5, extra=1e13), "extra"),
    (lambda: localised_theory(STATED, 8, 0.5, distance=5e-324), "distance"),
    (lambda: localised_theory(replace(STATED, moments=Moments(order=4, bound=1.0)), 8, 0.5), "uniform"),
    (lambda: localised_theory(replace(STATED, moments=Moments(order=2, bound=1.0, kind="uniform")), 8, 0.5), "2k"),
    *((lambda bad=bad: localised_bound(STATED, SCHEDULE, bad, lipschitz=1.0), "rho") for bad in (0.0, math.nan)),
    *with_some(localised, LOCAL, "schedule", (), (1, 2)),
    (lambda: localised(STATED, ROWS[:6], schedule=SCHEDULE, rho=0.5), "fewer records"),
    (lambda: localised(STATED, ROWS, schedule=SCHEDULE, rho=0.5, most_gradients=10), "localised_practical"),
    *with_some(sampled_localised, SAMPLED, "epsilon", 0.0, math.inf, True),
    *with_some(sampled_localised, SAMPLED, "delta", 0.0, 1.0),
    *with_some(sampled_localised, SAMPLED, "schedule", ()),
    (lambda: strongly_convex(replace(STATED, strong_convexity=0.5), ROWS[:4], rho=0.4), "records"),
    (lambda: strongly_convex(replace(STATED, strong_convexity=None), np.zeros((70, 2)), rho=0.4), "strong_convexity"),
    *with_some(private_moment, MOMENT, "order", 1.9, 101),
    *with_some(private_moment, MOMENT, "rho", 0.0),
    *with_some(private_moment, MOMENT, "low", 0.0),
    *with_some(private_moment, MOMENT, "failure", 0.0, 1.0, [0.1]),
    *with_some(private_moment, MOMENT, "sizes", np.zeros((5, 2)), [], ["a"], [[1], [1, 2]], np.full(500, -1.0), np.full(500, True)),
    (lambda: private_moment(np.ones(500), order=2, rho=0.5, low=1.0, high=3.0), "four times"),
    (lambda: private_moment(np.ones(40), order=2, rho=0.5), "41 blocks"),
    (lambda: private_moment(np.ones(500), order=2, rho=0.5).others(np.ones(500)), "none is left"),
    (lambda: blocks_for(1.0, 1.0), "failure"),
    (lambda: blocks_for(0.1, 1e9), "larger one"),
    *with_some(estimated_moments, ESTIMATE, "share", 1.0),
    *with_some(estimated_moments, ESTIMATE, "points", [np.ones(3)], []),
    *with_some(ShuffledClippedMean, {"clip_norm": 1.0, **SHUFFLED}, "clip_norm", *NUMBERS, math.inf),
    *with_some(ShuffledClippedMean, {"clip_norm": 1.0, **SHUFFLED}, "epsilon", *NUMBERS, 9.8),
    *with_some(ShuffledClippedMean, {"clip_norm": 1.0, **SHUFFLED}, "delta", *NUMBERS),
    *with_some(ShuffledCoordinateMedian, {"threshold": 1.0, "groups": 1, **SHUFFLED}, "threshold", *NUMBERS),
    *with_some(ShuffledCoordinateMedian, {"threshold": 1.0, "groups": 1, **SHUFFLED}, "epsilon", *NUMBERS),
    *with_some(chosen_protocol, {"users": 4, "range": 1.0, **SHUFFLED}, "range", *NUMBERS),
    *with_some(chosen_protocol, {"users": 4, "range": 1.0, **SHUFFLED}, "epsilon", *NUMBERS, 15.1, 5e-324),
    *with_some(calibrated_protocol, {"users": 4, "range": 1.0, **SHUFFLED}, "epsilon", -1.0, math.nan, True, "1"),
    (lambda: calibrated_protocol(0, 1.0, 1.0, 1e-5), "users"),
    *((lambda bad=bad: binomial_delta(10, bad, 1, 1.0), "probability") for bad in (*NUMBERS, 5e-324)),  # pyright: ignore[reportArgumentType]
    (lambda: analyse(10 * 14 + 1, PROTOCOL), "bits"),
    (lambda: analyse(-1, PROTOCOL), "bits"),
    (lambda: simulated_ones(np.zeros(3), PROTOCOL, RNG), "users"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_refused_is_named(case: int) -> None:
    call, named = REFUSED[case]
    with pytest.raises(InputError, match=re.escape(named)):
        call()


def test_the_edge_of_floating_point_is_said_and_never_a_nan() -> None:
    assert groups_for(10, 5e-324) < 10**4
    assert proximal_theory(replace(STATED, pl_constant=0.5), 100, 0.5, gap=1e308).notes
    target = Problem(gradient=lambda w, x: w - np.asarray(x), dimension=2, domain=BallDomain(radius=2.0))
    far = multi_pass(target, ROWS, oracle=ORACLE, step_size=1e200, passes=2)
    assert np.linalg.norm(far.parameters) == pytest.approx(2.0)
    with pytest.raises(LetheError, match="range of floating-point numbers"), np.errstate(all="ignore"):
        multi_pass(BARE, ROWS, oracle=ClippedMean(clip_norm=1e150, rho=1e-50), step_size=1e200, passes=2)
