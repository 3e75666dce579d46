"""Random allocation: never below the exact law of its worst pair and within 1 % of its epsilon; never above composition."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

import lethe
from lethe.calculus.any_guarantee import Composition
from lethe.calculus.balls_in_bins.profile import BallsInBinsGaussian
from lethe.calculus.balls_in_bins.truncated import TruncatedAllocation
from lethe.theorems.composition import GaussianComposition
from lethe.theorems.sampling import RandomAllocationTheorem
from lethe.theorems.truncation import full_bins, truncation_slack

Array = NDArray[np.float64]
STEP = 2e-3


@cache
def cells(mus: tuple[float, ...], relation: str) -> tuple[Array, Array]:
    """Masses of P and of Q of one pass in the cells of a grid, in as many dimensions as batches are visited; mu = 0 of those that are not.

    Whoever sees the cell alone sees less, so that what is computed from these is never above the truth.
    """
    visited = [mu for mu in mus if mu > 0.0]
    edges = np.concatenate(([-np.inf], np.linspace(-5.0 - max(mus), 5.0 + max(mus), {1: 3000, 2: 400, 3: 80}[len(visited)]), [np.inf]))

    def at(mean: float) -> Array:
        """Of N(mean, 1), by the tail on its own side."""
        return np.abs(np.where(edges[:-1] < mean, np.diff(special.ndtr(edges - mean)), -np.diff(special.ndtr(mean - edges))))

    def mixture(sign: float) -> Array:
        means = [tuple(sign * mu * (place == own) for place, mu in enumerate(visited)) for own in range(len(mus))]
        return sum((math.prod(np.ix_(*map(at, one)), start=np.ones(())) for one in means), np.zeros(())) / len(mus)

    return mixture(1.0).ravel(), mixture(-1.0 if relation == "replace_one" else 0.0).ravel()


def truth(passes: list[tuple[float, ...]], relation: str, epsilon: float) -> float:
    """The divergence of the product of the passes, the larger of both directions, from below: losses are rounded down."""
    ways: list[float] = []
    for way in (slice(None), slice(None, None, -1)):
        total, lowest = np.ones(1), 0
        for mus in passes:
            mine, theirs = cells(mus, relation)[way]
            known = (mine > 0.0) & (theirs > 0.0)
            places = np.floor(np.log(mine[known] / theirs[known]) / STEP).astype(np.int64)
            total = np.convolve(total, np.bincount(places - places.min(), weights=mine[known]))
            lowest += int(places.min())
        beyond = np.minimum(epsilon - STEP * (lowest + np.arange(total.size)), 0.0)
        ways.append(float(total @ -np.expm1(beyond)))
    return max(ways)


def a_run(bins: int, noise: Any, **changes: Any) -> lethe.Run:
    fields = {"records": 200 * bins, "batches": lethe.batches.RandomAllocation(200), "step_size": 0.1, "clip_norm": 1.0, "release": "all"}
    return lethe.Run(**{**fields, "noise_multiplier": noise, "neighbours": "zero_out", **changes})


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@settings(max_examples=examples(8))
@given(data=st.data())
def test_it_is_never_below_the_exact_law_and_within_1_percent_of_its_epsilon(relation: str, data: st.DataObject) -> None:
    """Whole passes and a last one that is cut short; noise that varies within a pass, and over passes."""
    bins, noise = data.draw(st.integers(2, 3)), data.draw(st.sampled_from([0.7, 1.0, 2.5]))
    steps, slope = data.draw(st.integers(1, 3 * bins)), data.draw(st.sampled_from([0.0, 0.25]))
    epsilon = data.draw(st.floats(0.1, 2.0)) / noise
    levels = [noise * (1.0 + slope * (step % 3)) for step in range(steps)]
    run = a_run(bins, levels, steps=steps, neighbours=relation)
    passes = [tuple(1.0 / level for level in levels[first : first + bins]) for first in range(0, steps, bins)]
    passes[-1] += (0.0,) * (bins - len(passes[-1]))
    guarantee = RandomAllocationTheorem().bound(run).guarantee
    found, low = guarantee.delta(epsilon), truth(passes, relation, epsilon)
    assert found >= low * (1.0 - 1e-9)
    assert low < 1e-7 or found <= truth(passes, relation, 0.99 * epsilon - STEP * len(passes))
    assert found <= GaussianComposition().bound(run).guarantee.delta(epsilon) * (1.0 + 1e-9)
    if relation == "zero_out":
        assert RandomAllocationTheorem().bound(run.replace(neighbours="add_or_remove")).guarantee.delta(epsilon) == found


def losses(mus: Array, passes: int, relation: str, towards: bool, count: int, generator: np.random.Generator) -> Array:
    """Privacy losses of independent runs, drawn from the law whose divergence it is: log P/Q under P, or log Q/P under Q."""
    total = np.zeros(count)
    for _ in range(passes):
        noise, own = generator.standard_normal((count, mus.size)), generator.integers(mus.size, size=count)
        means = np.zeros((count, mus.size))
        if towards or relation == "replace_one":
            means[np.arange(count), own] = (1.0 if towards else -1.0) * mus[own]
        seen = (noise + means) * mus

        def likelihood(sign: float, seen: Array = seen) -> Array:
            """To N(0, I), shape (count,)."""
            return special.logsumexp(sign * seen - 0.5 * mus**2, axis=1) - math.log(mus.size)

        other = likelihood(-1.0) if relation == "replace_one" else 0.0
        total += (likelihood(1.0) - other) * (1.0 if towards else -1.0)
    return total


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("bins", "passes", "noise"), [(5, 3, 0.8), (20, 3, 0.7), (20, 20, 2.0), (50, 5, 0.6), (100, 2, 0.5), (8, 30, 3.0)])
def test_monte_carlo_at_more_bins_is_not_above(bins: int, passes: int, noise: float, relation: str) -> None:
    """Near delta .01, five standard errors allowed, in both directions; the larger is within 15 % of the bound on delta."""
    slope = 1.0 + 0.2 * (np.arange(bins) % 2)
    run = a_run(bins, (noise * np.tile(slope, passes)).tolist(), steps=bins * passes, neighbours=relation)
    guarantee = RandomAllocationTheorem().bound(run).guarantee
    epsilon, reached = guarantee.epsilon(0.01), list[float]()
    for towards in (True, False):
        drawn = losses(1.0 / (noise * slope), passes, relation, towards, 20_000, np.random.default_rng(3))
        failures = -np.expm1(np.minimum(epsilon - drawn, 0.0))
        reached.append(float(failures.mean()))
        assert reached[-1] - 5.0 * failures.std() / math.sqrt(drawn.size) <= guarantee.delta(epsilon)
    assert max(reached) > 0.85 * guarantee.delta(epsilon)


def test_passes_with_the_same_costs_are_counted_together() -> None:
    guarantee = RandomAllocationTheorem().bound(a_run(3, [1.0, 2.0, 4.0, 4.0, 1.0, 2.0, 1.0], steps=7)).guarantee
    pair = BallsInBinsGaussian(mus=(0.25, 0.5, 1.0), counts=(1, 1, 1), relation="zero_out")
    assert isinstance(guarantee, Composition)
    (whole, twice), (last, once) = guarantee.parts
    assert isinstance(whole, BallsInBinsGaussian)
    assert isinstance(last, BallsInBinsGaussian)
    assert (whole.counts, twice, last.counts, once) == (pair.counts, 2, (2, 1), 1)
    assert whole.mus == pytest.approx(pair.mus, rel=1e-12)
    assert last.mus == pytest.approx((0.0, 1.0), rel=1e-12)


def test_many_different_passes_cost_no_less_than_each_by_itself() -> None:
    """They are put together at the larger costs."""
    levels = [1.0 + 0.02 * step for step in range(40)]
    found = RandomAllocationTheorem().bound(a_run(2, levels, steps=40)).guarantee
    assert isinstance(found, Composition)
    assert len(found.parts) <= 16
    assert sum(count for _, count in found.parts) == 20
    costs = [max(part.mus) for part, count in found.parts if isinstance(part, BallsInBinsGaussian) for _ in range(count)]
    costs.sort(reverse=True)
    assert all(cost >= (1.0 - 1e-12) / level for cost, level in zip(costs, levels[::2], strict=True))


@pytest.mark.parametrize(
    ("bins", "passes", "noise", "most"), [(100, 10, 1.0, 1.7025), (391, 5, 0.6, 3.0635), (1000, 10, 0.8, 0.7575), (50, 50, 3.0, 1.3115)]
)
def test_typical_shapes_are_below_poisson(bins: int, passes: int, noise: float, most: float) -> None:
    run = a_run(bins, noise, passes=passes)
    certificate = lethe.certify(run, 1e-5, allow_large_delta=True)
    assert certificate.theorem == "random-allocation"
    assert certificate.epsilon < most < lethe.certify(run.replace(batches=lethe.batches.Poisson(200)), 1e-5, allow_large_delta=True).epsilon
    assert lethe.Certificate.from_dict(certificate.to_dict()) == certificate


def test_noise_is_planned() -> None:
    run = lethe.plan(a_run(50, None, passes=4), 1.0, 1e-5)
    assert 0.999 < lethe.certify(run, 1e-5).epsilon <= 1.0


def test_what_is_cut_is_paid_for_at_every_step() -> None:
    """Records are thrown anew every pass, so every batch of the run may be the one that overflows."""
    whole, cut = a_run(10, 2.0, passes=6), a_run(10, 2.0, passes=6, batches=lethe.batches.RandomAllocation(200, truncate_at=280))
    once = truncation_slack(cut.replace(passes=1))
    assert truncation_slack(cut) == pytest.approx(6 * once, rel=1e-9)
    paid, plain, free = (lethe.certify(run, delta).epsilon for run, delta in ((cut, 4e-5), (whole, 4e-5 - 6 * once), (whole, 4e-5)))
    assert free < paid < plain


@pytest.mark.parametrize("change", [{"noise_multiplier": [1.0, 0.0, 1.0]}, {"batches": lethe.batches.Shuffled(200)}])
def test_it_refuses_other_runs(change: dict[str, Any]) -> None:
    run = a_run(3, 1.0, steps=3).replace(**change)
    assert any(finding.status == "fails" for finding in RandomAllocationTheorem().examine(run))


@pytest.mark.parametrize(("relation", "others"), [("zero_out", 39), ("replace_one", 39), ("add_or_remove", 40)])
def test_the_chance_that_others_fill_a_batch_is_exact_and_rounded_up(relation: Any, others: int) -> None:
    batches = lethe.batches.RandomAllocation(10, truncate_at=18)
    found = full_bins(a_run(4, 1.0, passes=2, records=40, batches=batches, neighbours=relation))
    exact = sum(math.comb(others, k) * 3 ** (others - k) for k in range(18, others + 1)) / 4**others
    assert found is not None
    assert exact <= found <= exact * (1.0 + 1e-6)


def test_the_delta_of_a_cut_pass_is_that_of_its_larger_direction() -> None:
    cut = TruncatedAllocation(bins=BallsInBinsGaussian(mus=(1.0,), counts=(2,), relation="zero_out"), full=0.05)
    assert cut.delta(0.5) == max(float(deltas[0]) for deltas in cut.directed_deltas(np.array([0.5])))
