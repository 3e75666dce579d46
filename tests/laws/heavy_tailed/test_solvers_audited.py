"""The referee's lower bounds for every oracle and solver: below what is stated with its noise, above it with half of that."""

from collections.abc import Callable

import numpy as np
import pytest

from lethe.audit import AuditSetting, two_world
from lethe.audit.statistics.rules import FixedThreshold
from lethe.calculus.guarantees import Guarantee
from lethe.heavy_tailed import Problem, multi_pass
from lethe.heavy_tailed.accelerated import accelerated
from lethe.heavy_tailed.localisation.descent import regularised_descent
from lethe.heavy_tailed.localisation.plans import LocalPhase
from lethe.heavy_tailed.localisation.sampled import sampled_localised
from lethe.heavy_tailed.one_pass import one_pass
from lethe.heavy_tailed.oracles import ClippedMean, CoordinateMedian, MeanOracle
from lethe.heavy_tailed.proximal import proximal
from lethe.heavy_tailed.sets import Array

RUNS, DELTA, LEVEL = 2000, 0.2, 1e-4
FEW = 1000  # show half of the noise: in three games of each kind, .99 or more, where .65 is stated
LEAST, TARGET = 0.1, 0.55
COUNT, DIMENSION = 8, 3
PROBLEM = Problem(
    gradient=lambda parameters, records: np.asarray(records, dtype=np.float64),
    dimension=DIMENSION,
    smoothness=1.0,
    strong_convexity=0.5,
    pl_constant=0.5,
)
CLIPPED = ClippedMean(clip_norm=1.5, rho=0.5)
MEDIAN = CoordinateMedian(threshold=1.5, groups=1, rho=0.5)

# What is released, and what is stated of it: asked for once, where there are thousands of releases.
Release = Callable[[Array, np.random.Generator], tuple[Array, Callable[[], Guarantee]]]


class HalfNoise(np.random.Generator):
    """A generator whose normal numbers are half as large as they should be."""

    def standard_normal(self, *args: object, **kwargs: object) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return 0.5 * super().standard_normal(*args, **kwargs)  # pyright: ignore


def rows(sign: float) -> Array:
    """Neighbours: all records 0 but the first, which is long and in opposite directions."""
    table = np.zeros((COUNT, DIMENSION))
    table[0] = sign * 1e6
    return table


def from_oracle(oracle: MeanOracle) -> Release:
    return lambda table, rng: (-oracle.mean(table, rng), lambda: oracle.release(*table.shape).guarantee)


def from_solver(solve: Callable[[Array, np.random.Generator], object]) -> Release:
    def release(table: Array, rng: np.random.Generator) -> tuple[Array, Callable[[], Guarantee]]:
        done = solve(table, rng)
        return done.parameters, lambda: done.fresh.guarantee  # pyright: ignore

    return release


LONG = LocalPhase(records=COUNT, steps=4, step_size=0.1, strength=1e-6, radius=1e6, clip_norm=1.5)
RELEASES: dict[str, Release] = {
    "clipped mean": from_oracle(CLIPPED),
    "coordinate means": from_oracle(MEDIAN),
    "multi-pass": from_solver(lambda table, rng: multi_pass(PROBLEM, table, oracle=CLIPPED, passes=2, generator=rng)),
    "one-pass": from_solver(lambda table, rng: one_pass(PROBLEM, table, oracle=CLIPPED, steps=1, generator=rng)),
    "accelerated": from_solver(lambda table, rng: accelerated(PROBLEM, table, oracle=CLIPPED, steps=1, step=4.0, generator=rng)),
    "proximal": from_solver(lambda table, rng: proximal(PROBLEM, table, oracle=CLIPPED, steps=1, generator=rng)),
    "regularised": from_solver(lambda table, rng: regularised_descent(PROBLEM, table, LONG, 0.5, generator=rng)),
    "records taken all": from_solver(
        lambda table, rng: sampled_localised(
            PROBLEM, table, schedule=(LONG,), epsilon=TARGET, delta=DELTA, allow_large_delta=True, generator=rng
        )
    ),
}


def bound(
    release: Release, make: Callable[[int], np.random.Generator], tables: tuple[Array, Array], runs: int = RUNS
) -> tuple[float, float]:
    """The referee's epsilon, and the one that is stated."""
    scores = [np.array([release(table, make(world))[0].sum() for _ in range(runs)]) for world, table in enumerate(tables)]
    stated = release(tables[0], make(2))[1]().epsilon(DELTA)
    return audited(scores[0], scores[1], float(np.median(np.concatenate(scores)))), stated


def audited(first: Array, second: Array, threshold: float) -> float:
    setting = AuditSetting(delta=DELTA, neighbours="replace_one", threat="black_box", level=LEVEL)
    return two_world(first, second, setting, rule=FixedThreshold(threshold=threshold)).epsilon


def makers() -> tuple[Callable[[int], np.random.Generator], Callable[[int], np.random.Generator]]:
    whole, half = np.random.default_rng(0), HalfNoise(np.random.PCG64(0))
    return (lambda _: whole), (lambda _: half)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", RELEASES)
def test_the_lower_bound_is_below_what_is_stated_and_catches_half_the_noise(name: str) -> None:
    sound, broken = makers()
    found, stated = bound(RELEASES[name], sound, (rows(1.0), rows(-1.0)))
    assert LEAST < found <= stated
    caught, _ = bound(RELEASES[name], broken, (rows(1.0), rows(-1.0)), runs=FEW)
    assert caught > stated
