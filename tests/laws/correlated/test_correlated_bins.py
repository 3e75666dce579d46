"""Correlated noise on balls in bins: the theorem against the likelihood of whole runs, over all bins and turns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from binned_oracles import two_bins
from helpers import make_run
from numpy.typing import NDArray
from strategies import contributions_of, random_triangular

import lethe
from lethe.calculus.correlated.matrices import as_matrix
from lethe.errors import HypothesisError
from lethe.run.noise import LowerTriangular
from lethe.theorems.correlated_noise import CorrelatedBinsTheorem, CorrelatedSampledTheorem, bins_apart

Array = NDArray[np.float64]
DELTA = 1e-5
TWO_BANDS = {"kind": "banded_toeplitz", "coefficients": [1.0, 0.7]}


def run_of(slots: int = 4, **changes: Any) -> lethe.Run:
    fields = {"noise": TWO_BANDS, "steps": 2 * slots, "noise_multiplier": 1.5, "neighbours": "zero_out", "release": "all", **changes}
    return make_run(
        records=10 * slots, batches=lethe.batches.BallsInBins(10), loss={"kind": "unknown"}, clip_norm=1.0, passes=None, **fields
    )


def moved_by(run: lethe.Run, slot: int) -> Array:
    """How far a gradient that is 1 for ever moves y = C G + z, in its standard deviations, shape (T,)."""
    assert run.noise is not None
    steps = run.total_steps
    given = contributions_of(slot, run.steps_per_pass, steps, np.ones((steps, 1)))[:, 0]
    return np.asarray(as_matrix(run.noise.strategy(steps)) @ given / run.uncorrelated.noise_multipliers[0])


def whole_run(run: lethe.Run, epsilon: float, *, replaced: bool, backwards: bool) -> tuple[float, float]:
    """The hockey-stick divergence of all outputs with the bin unknown, and its standard error, from 200 000 draws."""
    random, slots = np.random.default_rng(3), run.steps_per_pass
    means = np.array([moved_by(run, slot) for slot in range(slots)])
    others = -means if replaced else np.zeros_like(means)
    first, second = (others, means) if backwards else (means, others)
    seen = first[random.integers(slots, size=200_000)] + random.normal(size=(200_000, run.total_steps))
    over, under = (np.exp(seen @ laws.T - 0.5 * np.square(laws).sum(axis=1)).mean(axis=1) for laws in (first, second))
    gains = np.maximum(1.0 - math.exp(epsilon) * under / over, 0.0)
    return float(gains.mean()), float(gains.std() / math.sqrt(gains.size))


@pytest.mark.parametrize("relation", ["zero_out", "replace_one"])
def test_it_is_the_divergence_for_whoever_knows_which_bins_it_may_be(relation: str) -> None:
    """By quadrature, of the bins 0 and 2 of four; 1 % more noise is seen. And no more than that for whoever knows less."""
    run = run_of(neighbours=relation)
    bound, lucky = (CorrelatedBinsTheorem().bound(run.replace(noise_multiplier=noise)).guarantee for noise in (1.5, 1.515))
    mus = [float(np.linalg.norm(moved_by(run, slot))) for slot in (0, 2)]
    assert moved_by(run, 0) @ moved_by(run, 2) == 0.0
    replaced = relation == "replace_one"
    for epsilon in (0.3, 1.0):
        ways: Any = ("replaced",) if replaced else ("P against Q", "Q against P")
        exact = max(two_bins(way, epsilon, (mus[0], mus[1])) for way in ways)
        assert exact <= bound.delta(epsilon) * (1 + 2e-5)  # quadrature
        assert exact == pytest.approx(bound.delta(epsilon), rel=1e-3)
        assert exact > lucky.delta(epsilon)
        for backwards in (False, True):
            value, error = whole_run(run, epsilon, replaced=replaced, backwards=backwards)
            assert value <= bound.delta(epsilon) + 5 * error


@pytest.mark.parametrize("backwards", [False, True])
def test_gradients_that_answer_what_was_released_reach_no_more(tmp_path: Path, *, backwards: bool) -> None:
    """Entries of any sign, three bands, seven bins, of which the adversary knows that it is the first or the fourth."""
    matrix = random_triangular(np.random.default_rng(5), 14, signed=True)
    matrix[np.subtract.outer(np.arange(14), np.arange(14)) > 2] = 0.0
    run = run_of(7, noise=LowerTriangular.saved(matrix, tmp_path / "banded.npy"), noise_multiplier=3.0)
    random, sigma, count = np.random.default_rng(1), 3.0, 200_000
    true = np.where(random.random(count) < 0.5, 0, 3)  # the bin, in the world with the record
    seen, loglikelihoods = np.zeros((count, 14)), {slot: np.zeros(count) for slot in (0, 3)}
    given = {slot: np.zeros((count, 14)) for slot in (0, 3)}
    for step in range(14):
        before = seen[:, :step].sum(axis=1)
        for slot in (0, 3):
            if step % 7 == slot:
                given[slot][:, step] = np.where(before >= 0.0, 1.0, -1.0)
        moved = {slot: given[slot] @ matrix[step] / sigma for slot in (0, 3)}
        seen[:, step] = random.normal(size=count) + (0.0 if backwards else np.where(true == 0, moved[0], moved[3]))
        for slot in (0, 3):
            loglikelihoods[slot] += seen[:, step] * moved[slot] - 0.5 * moved[slot] ** 2
    ratio = 0.5 * (np.exp(loglikelihoods[0]) + np.exp(loglikelihoods[3]))
    bound = CorrelatedBinsTheorem().bound(run).guarantee
    for epsilon in (0.1, 0.5):
        gains = np.maximum(1.0 - math.exp(epsilon) * (ratio if backwards else 1.0 / ratio), 0.0)
        error = float(gains.std()) / math.sqrt(count)
        assert gains.mean() <= bound.delta(epsilon) + 5 * error
        assert gains.mean() > 0.1 * bound.delta(epsilon)  # and the attack is worth the name


def test_no_turn_of_the_bins_costs_more_by_rank() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        slots = int(random.integers(2, 30))
        bins = int(random.integers(1, slots + 1))
        mus = random.choice([0.5, 1.0, 1.0, 2.0], size=int(random.integers(1, slots + 1)))
        levels, counts = bins_apart(mus, slots, bins)
        assert sum(counts) == bins
        assert len(set(levels)) == len(levels)
        by_rank = np.repeat(levels, counts)
        every = np.append(mus, np.zeros(slots - mus.size))
        places = np.arange(bins) * slots // bins
        assert np.diff(np.append(places, slots)).min() >= slots // bins
        for turn in range(slots):
            assert (np.sort(every[(places + turn) % slots])[::-1] <= by_rank).all()


def test_one_band_is_balls_in_bins_and_many_bands_get_no_credit() -> None:
    alone = run_of(8, noise={"kind": "banded_toeplitz", "coefficients": [1.0]})
    independent = lethe.certify(alone.uncorrelated, DELTA)
    assert independent.theorem == "balls-in-bins"
    assert lethe.certify(alone, DELTA).epsilon == pytest.approx(independent.epsilon, rel=1e-9)
    few, many = run_of(8), run_of(3)
    known = few.replace(batches=lethe.batches.Cyclic(10))
    assert lethe.certify(few, DELTA).theorem == "correlated-bins"
    assert lethe.certify(few, DELTA).epsilon < lethe.certify(known, DELTA).epsilon
    assert lethe.certify(many, DELTA).theorem == "correlated-noise"
    assert CorrelatedBinsTheorem().bound(few.replace(noise_multiplier=0.0)).guarantee == lethe.guarantees.GDP(math.inf)
    with pytest.raises(HypothesisError, match="at most half as many bands as there are bins, 3; the strategy has 2"):
        CorrelatedBinsTheorem().bound(many)
    with pytest.raises(HypothesisError, match="batches are shuffled_once"):  # the other records say which place is left
        CorrelatedBinsTheorem().bound(few.replace(batches=lethe.batches.ShuffledOnce(10)))


def test_it_needs_a_secret_and_a_bound_on_each_gradient_by_itself() -> None:
    """A large term common to all records tells which of them a batch holds, and so the record's bin, or its coins."""
    bins, sampled = CorrelatedBinsTheorem(), CorrelatedSampledTheorem()
    groups = run_of(8).replace(batches=lethe.batches.CyclicPoisson(10, groups=2))
    for theorem, run in ((bins, run_of(8)), (sampled, groups)):
        assert "secrecy" in {finding.name for finding in theorem.examine(run)}
        loss = {"kind": "strongly_convex", "strong_convexity": 0.1, "smoothness": 0.5, "gradient_bound": 1.0}
        common = run.replace(loss=loss, clip_norm=None, regulariser={"kind": "ball", "radius": 100.0}, neighbours="replace_one")
        assert common.bounds_differences_only
        with pytest.raises(HypothesisError, match="it needs a bound on each record's gradient"):
            theorem.bound(common)


def test_a_pass_that_the_run_does_not_end_has_bins_that_cost_nothing() -> None:
    short = run_of(8, steps=3)
    certificate = lethe.certify(short, DELTA)
    assert certificate.theorem == "correlated-bins"
    assert certificate.epsilon < lethe.certify(run_of(8, steps=8), DELTA).epsilon
    # Of two bins apart one at most is among three steps in a row that the run reaches.
    norm = math.sqrt(1.0 + 0.49) / 1.5
    assert bins_apart(np.array([norm, norm, 1.0 / 1.5]), 8, 2) == ((norm, 0.0), (1, 1))
